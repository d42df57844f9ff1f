"""The data of a run as options; importable without PyTorch."""

from dataclasses import dataclass

from hkconv.models.options import TASKS
from hkconv.options import REPEATS, Options, choice, flag, text, whole

CLEAN, PUBLISHED = "clean", "published"
# The protocols that a user can choose from.
CHOICES = (CLEAN, PUBLISHED)
# Whom a node hears from: those that point to it, those that it points to, or all of them.
IN, OUT, BOTH = "in", "out", "both"
DIRECTIONS = (IN, OUT, BOTH)
# How classes, numbers, and answers to yes-or-no questions are scored.
ACCURACY, R2 = "accuracy", "R2"
QUESTION_METRICS = ("ROC-AUC", "AP")
METRICS = (ACCURACY, *QUESTION_METRICS, R2)
# The scale of numeric features, and what stands for a missing one.
NONE, STANDARD, LOG = "none", "standard", "log"
SCALES = (NONE, STANDARD, LOG)
MEAN, CATEGORY, ERROR = "mean", "category", "error"
FILLINGS = (MEAN, CATEGORY, ERROR)


@dataclass(frozen=True, kw_only=True)
class DataOptions(Options):
    """A dataset, how it is divided, and what is done to its graphs before a model sees them; see
    :func:`hkconv.data.load`. Of own data ``direction`` holds for the graphs of a graph task too."""

    dataset: str = text(
        "tree", "the name of a dataset or a path", "Dataset, `hkconv datasets` lists them; or own data."
    )
    task: str | None = choice(None, TASKS, "Task; by default the dataset's usual one.", optional=True)
    protocol: str = choice(CLEAN, CHOICES, "Disjoint splits, or those of the paper's code, which overlap.")
    split_file: str | None = text(None, "a file", "JSON or .npz file with your own splits.", optional=True)
    num_splits: int = whole(3, REPEATS, "How many of the dataset's splits to train on; OGB's have one.")
    direction: str = choice(BOTH, DIRECTIONS, "Neighbours of a node: those that point to it, it points to, or both.")
    normalize_features: bool = flag(False, "Divide each row of features by its sum.")
    log_features: bool = flag(False, "Take sign(x) log(1 + |x|) of every feature.")
    scale: str | None = choice(
        None, SCALES, "Scale of numbers, learned from training rows; of own tables `standard`.", optional=True
    )
    missing: str = choice(MEAN, FILLINGS, "Missing values of own tables: mean, a category of their own, or an error.")
    edge_attributes: bool = flag(True, "Let models see attributes of edges, such as those of bonds.")
