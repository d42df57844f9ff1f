"""Options of training, and of where and how fast it happens; importable without PyTorch."""

from dataclasses import dataclass

from hkconv.engine.callbacks import LOGGERS
from hkconv.errors import InputError
from hkconv.options import (
    COUNT,
    NOT_NEGATIVE,
    REPEATS,
    SEED,
    STEP_SIZE,
    Interval,
    Options,
    Rule,
    choice,
    flag,
    names,
    number,
    rule_field,
    text,
    whole,
)

PRECISIONS = ("float32", "bf16", "fp16")
# Of a node in a layer.
SAMPLED = Interval(1, 10**6)


@dataclass(frozen=True, kw_only=True)
class OptimOptions(Options):
    """Optimization: with the data and the model, what a result depends on.

    Args:
        lr: learning rate of :class:`~hkconv.engine.optimizer.RiemannianAdam`.
        weight_decay: L2 penalty of the Euclidean parameters.
        epochs: the most epochs to train for.
        patience: stop after this many epochs without a better validation score.
        batch_size: graphs in a batch or, with ``neighbors``, nodes; without, node tasks take everything at once, and
            links have ``link_batch``.
        groupings: for graph tasks: draw so many divisions of the training graphs into batches once, and take one of
            them at random in every epoch, its batches in random order; None for a new division every epoch.
        neighbors: for node tasks: train on mini-batches of nodes with at most so many sampled neighbours of a node in
            each layer, from the last to the first, -1 for all; None for the whole graph at once.
        link_batch: for link tasks: train on shuffled batches of so many links, each with as many negatives, over the
            messages of all training links; None for all links at once.
        precision: of the training step: ``"bf16"`` or ``"fp16"`` for autocast, with the geometry in float32;
            ``"float32"`` for the model as it is. Validation and test are measured with the model as it is.
        deterministic: use only algorithms that repeat exactly.
        seeds: number of trainings on each split.
        seed: of a run, the first: data and splits are drawn with it, and the j-th training of a split with ``seed + j``
            and the number of the split. Of one training, that of the order of batches and of negatives.
    """

    lr: float = number(0.01, STEP_SIZE, "Learning rate.")
    weight_decay: float = number(5e-3, Interval(0.0, 1000.0), "L2 penalty.")
    epochs: int = whole(200, COUNT, "The most epochs to train for.")
    patience: int = whole(50, COUNT, "Stop after this many epochs without a better validation score.")
    batch_size: int = whole(32, COUNT, "Graphs in a batch of a graph task; nodes, with --neighbors.")
    groupings: int | None = whole(
        None,
        REPEATS,
        "Graph task: divisions into batches, drawn once and taken by lot; else a new one an epoch.",
        optional=True,
    )
    neighbors: tuple[int, ...] | None = rule_field(
        None,
        Rule(
            list,
            f"whole numbers such as 15,10, each {SAMPLED} or, for all neighbours, -1",
            lambda numbers: len(numbers) > 0 and all(number in SAMPLED or number == -1 for number in numbers),
            "Train nodes in mini-batches on this many sampled neighbours a layer, such as 15,10.",
            optional=True,
            interval=SAMPLED,
        ),
    )
    link_batch: int | None = whole(None, COUNT, "Link task: links in a batch; else all at once.", optional=True)
    precision: str = choice(
        "float32", PRECISIONS, "Of a training step: bf16 and fp16 by autocast, the geometry stays in float32."
    )
    deterministic: bool = flag(False, "Only algorithms that repeat exactly.")
    seeds: int = whole(1, REPEATS, "How many trainings on each split.")
    seed: int = whole(0, SEED, "First seed.")


@dataclass(frozen=True, kw_only=True)
class RuntimeOptions(Options):
    """Device, speed and folders: no result depends on it, and a resumed run may change it.

    Args:
        device: ``"auto"``, ``"cpu"`` or the name of a GPU.
        compile: train and validate with ``torch.compile``, which takes a minute or more before the first step.
        capture: replay the training step as a CUDA graph, which spares a small network the launch of each
            operation; on a GPU, for node and link tasks, and for graph tasks with ``groupings``.
        keep_every: seconds from one checkpoint of an unfinished training to the next.
        data: folder of the datasets.
        out: folder for the results.
        log: loggers besides CSV, see :func:`hkconv.engine.callbacks.make_loggers`.
    """

    device: str = text("auto", "auto, cpu or the name of a GPU such as cuda:0", "auto, cpu, cuda, cuda:1, ...")
    compile: bool = flag(False, "Train and validate with torch.compile, which first takes a minute or more.")
    capture: bool = flag(False, "Replay the training step as a CUDA graph, on a GPU; of graph tasks with --groupings.")
    keep_every: float = number(
        60.0,
        NOT_NEGATIVE,
        "Seconds from one time that an unfinished training is kept to the next.",
    )
    data: str | None = text(None, "a folder", "Folder of the datasets, else HKCONV_DATA or the cache.", optional=True)
    out: str | None = text(None, "a folder", "Folder for the results; by default a new one in runs/.", optional=True)
    log: tuple[str, ...] = names(
        (), "logger", LOGGERS, f"Loggers besides metrics.csv, with commas: {', '.join(LOGGERS)}; or none."
    )


@dataclass(frozen=True, kw_only=True)
class Settings(OptimOptions, RuntimeOptions):
    """Settings of one training: :class:`OptimOptions` and :class:`RuntimeOptions` in one.

    Of the latter a training looks at ``compile`` and ``capture``; ``seed`` is its own.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.capture and self.precision == "fp16":
            raise InputError("capture cannot hold a step in fp16, which waits for the GPU: use bf16 or no capture")
        if self.capture and self.compile:
            raise InputError("capture and compile cannot both be on: each launches a step in its own way")
