"""How to train, apart from what: plain numbers, importable without PyTorch."""

from dataclasses import dataclass

from hkconv.errors import InputError

PRECISIONS = ("float32", "bf16", "fp16")


@dataclass(frozen=True)
class Settings:
    """How to train.

    Args:
        lr: learning rate of :class:`~hkconv.engine.optimizer.RiemannianAdam`.
        weight_decay: L2 penalty of the Euclidean parameters.
        epochs: the most epochs to train for.
        patience: stop after this many epochs without a better validation score.
        batch_size: graphs in a batch or, with ``neighbors``, nodes; without, node and link tasks take everything at
            once.
        groupings: for graph tasks: draw so many divisions of the training graphs into batches once, and take one of
            them by lot in every epoch, its batches in random order; None for a new division every epoch.
        neighbors: for node tasks: train on mini-batches of nodes with at most so many sampled neighbours of a node in
            each layer, from the last to the first, -1 for all; None for the whole graph at once.
        precision: of the training step: ``"bf16"`` or ``"fp16"`` for autocast, with the geometry in float32;
            ``"float32"`` for the model as it is. Validation and test are measured with the model as it is.
        compile: train and validate with ``torch.compile``, which takes a minute or more before the first step.
        seed: of the order of batches and of negatives. It does not seed the model or its dropout.
        capture: replay the training step as a CUDA graph, which spares a small network the launch of each
            operation; on a GPU, for node and link tasks, and for graph tasks with ``groupings``.
    """

    lr: float = 0.01
    weight_decay: float = 5e-3
    epochs: int = 200
    patience: int = 50
    batch_size: int = 32
    groupings: int | None = None
    neighbors: tuple[int, ...] | None = None
    precision: str = "float32"
    compile: bool = False
    seed: int = 0
    capture: bool = False

    def __post_init__(self) -> None:
        for name in ("epochs", "patience", "batch_size"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.groupings is not None and self.groupings < 1:
            raise InputError(f"groupings must be at least 1 or None, got {self.groupings}")
        if self.precision not in PRECISIONS:
            raise InputError(f"precision must be {' or '.join(PRECISIONS)}, got {self.precision!r}")
        if self.capture and self.precision == "fp16":
            raise InputError("capture cannot hold a step in fp16, which waits for the GPU: use bf16 or no capture")
        if self.capture and self.compile:
            raise InputError("capture and compile cannot both be on: each launches a step in its own way")
