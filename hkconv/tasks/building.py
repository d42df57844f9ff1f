"""From a recipe to what it names, the dataset and the models; and what the folder of a run keeps of own data.

``data.json`` has the names of classes, features and categories, their scale and digests of the data, ``splits.npz`` the
masks of the splits, as ``--split-file`` takes them: so own data are read again in the same way. Links are divided anew,
by the seed.
"""

from pathlib import Path
from statistics import fmean
from typing import Any, cast

from hkconv import models
from hkconv.data import GraphDataset, LinkDataset, Split, load
from hkconv.data.options import PUBLISHED, R2
from hkconv.data.own.loading import check_own, is_own, load_again, load_own
from hkconv.data.own.schema import Schema, schema_of_dict
from hkconv.data.split_files import write_masks
from hkconv.engine.files import read_json, write_bytes, write_json
from hkconv.errors import InputError
from hkconv.tasks.recipe import Recipe
from hkconv.tasks.tasks import Dataset, edge_dim_of

DATA_FILE = "data.json"
SPLITS_FILE = "splits.npz"


def load_dataset(recipe: Recipe) -> Dataset:
    """The dataset of a recipe with its splits, from the catalog or from the user's own files."""
    if is_own(recipe.data.dataset):
        return load_own_data(recipe)
    given = {name: value for name, value in vars(recipe.data).items() if name not in ("dataset", "missing")}
    return load(recipe.data.dataset, root=recipe.runtime.data, seed=recipe.optim.seed, **given)


def load_own_data(recipe: Recipe) -> Dataset:
    """The own data that a recipe names.

    If the folder ``out`` holds a run on own data, they are loaded as that run read and divided them, from the path
    ``data`` if they were moved there, and refused if they have changed.

    Args:
        recipe: its ``dataset`` is a path.

    Returns:
        The dataset, with its schema.
    """
    data, place, out = recipe.data, recipe.runtime.data, recipe.runtime.out
    check_own(data.dataset, None, data.protocol)
    schema = None if out is None else find_schema(Path(out))
    if out is not None and schema is not None:
        return load_again(place or data.dataset, schema, Path(out, SPLITS_FILE), data, recipe.optim.seed)
    check_own(data.dataset, place)
    return load_own(
        data.dataset,
        task=data.task,
        split_file=data.split_file,
        num_splits=data.num_splits,
        seed=recipe.optim.seed,
        preparation=data,
    )


def keep_own_data(folder: Path, dataset: Dataset) -> None:
    """Write what was learned of own data into the folder of a run.

    Args:
        folder: of the run.
        dataset: with a schema.
    """
    if not isinstance(dataset, LinkDataset):
        write_bytes(folder / SPLITS_FILE, write_masks(dataset.splits, len(dataset.labels)))
    write_json(folder / DATA_FILE, cast(Schema, dataset.schema).as_dict())


def find_schema(folder: Path) -> Schema | None:
    """Return what the run in ``folder`` learned of its own data, None if there is no such run."""
    path = folder / DATA_FILE
    return schema_of_dict(read_json(path, "what the run knows of its data"), str(path)) if path.exists() else None


def describe_dataset(dataset: Dataset) -> dict[str, Any]:
    """Return what is written of a dataset beside a result, and what a checkpoint must agree with."""
    graphs = dataset.graphs if isinstance(dataset, GraphDataset) else [dataset.graph]
    description = {
        "name": dataset.name,
        "task": dataset.task,
        "source": dataset.source,
        "protocol": dataset.protocol,
        "num_graphs": len(graphs),
        "num_nodes": sum(graph.x.size(0) for graph in graphs),
        "num_edges": sum(graph.edge_index.size(1) for graph in graphs),
        "num_features": dataset.num_features,
        "num_classes": _num_classes(dataset),
    }
    if dataset.protocol == PUBLISHED:
        # The paper's code divides nodes and graphs, never links.
        description["overlap"] = _mean_overlap(cast(list[Split], dataset.splits))
    return description


def model_config(recipe: Recipe, name: str, dataset: Dataset) -> dict[str, Any]:
    """The constructor's arguments of the model ``name``."""
    config: dict[str, Any] = {
        **input_sizes(name, dataset.num_features, edge_dim_of(dataset)),
        "num_classes": _num_logits(dataset),
        "task": dataset.task,
        **recipe.model.arguments(name),
    }
    # A system that takes rows of the adjacency as features can only be built for one graph.
    uses_num_nodes = getattr(models.find(name), "uses_num_nodes", False) or config.get("structure", False)
    if uses_num_nodes and not isinstance(dataset, GraphDataset):
        config["num_nodes"] = dataset.graph.x.size(0)
    if _is_weighted(dataset) and not getattr(models.find(name), "uses_edge_weight", True):
        raise InputError(f"model {name!r} knows no weights of edges, and those of dataset {dataset.name!r} have some")
    return config


def input_sizes(model: str, num_features: int, edge_dim: int | None) -> dict[str, int]:
    """The arguments of a model's constructor that say how wide its inputs are; see :func:`tasks.graph_inputs`."""
    if edge_dim is None:
        return {"in_features": num_features}
    if getattr(models.find(model), "reads_edges", False):
        return {"in_features": num_features, "edge_dim": edge_dim}
    return {"in_features": num_features + edge_dim}


def _is_weighted(dataset: Dataset) -> bool:
    first = dataset.graphs[0] if isinstance(dataset, GraphDataset) else dataset.graph
    return dataset.task != "link" and first.edge_weight is not None


def _mean_overlap(splits: list[Split]) -> dict[str, float]:
    found = [split.overlap for split in splits]
    return {name: fmean(overlap[name] for overlap in found) for name in found[0]}


def _num_logits(dataset: Dataset) -> int | None:
    """Return what a model calls its number of classes: one logit for every answer to every question."""
    return None if isinstance(dataset, LinkDataset) else dataset.num_classes * dataset.num_questions


def _num_classes(dataset: Dataset) -> int | None:
    return None if isinstance(dataset, LinkDataset) or dataset.metric == R2 else dataset.num_classes
