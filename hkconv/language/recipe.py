"""Everything that training a translator can be told, as one checked object.

It loads neither PyTorch nor a model, so that the command line can read its fields and still start quickly.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hkconv.errors import InputError
from hkconv.models.translation import TRANSLATION_MODELS
from hkconv.options import (
    COUNT,
    KERNELS,
    LAYERS,
    POSITIVE,
    RATE,
    REPEATS,
    SEED,
    STEP_SIZE,
    WIDTH,
    Interval,
    Options,
    choice,
    flag,
    number,
    text,
    whole,
)

# Where a run happens, how long it goes on and where its files are does not change what it has computed so far.
FREE_ON_RESUME = {"train", "valid", "bert", "steps", "minutes", "device", "capture", "out"}
# The models that have more than the first of an option's choices.
CHOOSE = {"form": ("hkn",), "output": ("hkn", "hybonet")}


@dataclass(frozen=True, kw_only=True)
class TranslationRecipe(Options):
    """The training of one translator; ``hkconv translate train --help`` says what each field is for."""

    train: str = text(None, "the common beginning of two files' names", "Training text: files TRAIN.en and TRAIN.de.")
    valid: str = text(None, "the common beginning of two files' names", "Validation text, named likewise.")
    source: str = text("en", "the ending of a file's name", "Language to translate from.")
    target: str = text("de", "the ending of a file's name", "Language to translate to.")
    model: str = choice("hkn", tuple(TRANSLATION_MODELS), "System to train.")
    dim: int = whole(64, WIDTH, "Dimension of the model.")
    num_heads: int | None = whole(None, LAYERS, "Heads; by default 4 up to dimension 64, else 8.", optional=True)
    feedforward_dim: int | None = whole(
        None, Interval(1, 10**6), "Width of the feed-forward blocks, else 4 x dim.", optional=True
    )
    num_layers: int = whole(6, LAYERS, "Layers of the encoder, and of the decoder.")
    kernel_size: int = whole(4, KERNELS, "HKN: number of kernel points.")
    form: str = choice("paper", ("paper", "views"), "HKN: the paper's attention, or with three views of values.")
    output: str = choice(
        "distance", ("distance", "planes"), "HKN, HyboNet: logits by distance to tokens, or to their hyperplanes."
    )
    bert: str | None = text(None, "a folder", "BiBERT: folder of a BERT model and its tokenizer.json.", optional=True)
    dropout: float = number(0.1, RATE, "Dropout rate.")
    max_length: int = whole(
        256, Interval(2, 10**6), "Most tokens of a sentence; pairs with a longer one are left out and counted."
    )
    merges: int = whole(10_000, Interval(0, 10**6), "Merges of the joint byte-pair encoding.")
    batch_tokens: int = whole(4096, Interval(2, 10**9), "Most tokens of one side of a batch, padding included.")
    accumulate: int = whole(1, COUNT, "Batches to a step.")
    steps: int = whole(20_000, COUNT, "Steps in all; a finished run goes on if this is raised.")
    lr: float = number(1.0, STEP_SIZE, "Factor of the Noam schedule.")
    warmup: int = whole(4000, COUNT, "Steps until the highest learning rate.")
    label_smoothing: float = number(0.1, RATE, "Share of the target spread over all tokens.")
    clip: float = number(1.0, POSITIVE, "Largest norm of a step's gradient.")
    bf16: bool = flag(False, "Matrix products in bfloat16, geometry in float32.")
    validate_every: int = whole(500, COUNT, "Steps from one validation and checkpoint to the next.")
    log_every: int = whole(50, COUNT, "Steps from one line of the log to the next.")
    keep: int = whole(5, REPEATS, "How many of the latest weights to keep, besides the best.")
    seed: int = whole(0, SEED, "Seed of weights, dropout and the order of the data.")
    deterministic: bool = flag(True, "Only algorithms that repeat exactly.")
    capture: bool = flag(False, "Replay steps as CUDA graphs: several times faster on a GPU.")
    minutes: float | None = number(None, POSITIVE, "Stop in order after this time.", optional=True)
    device: str = text("auto", "auto, cpu or the name of a GPU such as cuda:0", "auto, cpu, cuda, cuda:1, ...")
    out: str | None = text(None, "a folder", "Folder of the run; by default a new one in runs/.", optional=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch_tokens < self.max_length:
            raise InputError(f"batch_tokens must be at least max_length = {self.max_length}, got {self.batch_tokens}")
        if (self.model == "bibert") != (self.bert is not None):
            raise InputError(f"bert must name a folder for the model bibert, and for no other, got {self.bert!r}")
        for name, models in CHOOSE.items():
            default, value = getattr(TranslationRecipe, name), getattr(self, name)
            if self.model not in models and value != default:
                message = f"{name} must be {default} for the model {self.model}, got {value!r}"
                raise InputError(f"{message}: the choice is for {' and '.join(models)}")


def make_translation_recipe(values: Mapping[str, Any]) -> TranslationRecipe:
    """A recipe from names and values; an :class:`InputError` names an unknown key with the nearest known one."""
    return TranslationRecipe(**TranslationRecipe.flattened(values, "the recipe"))


def check_resumed(stored: TranslationRecipe, wanted: TranslationRecipe) -> None:
    """Refuse a recipe that would make another run of the one it goes on with."""
    before, now = stored.flat(), wanted.flat()
    for name in now:
        if name not in FREE_ON_RESUME and before[name] != now[name]:
            raise InputError(f"{name} cannot change when a run is resumed: it has {before[name]!r}, got {now[name]!r}")
