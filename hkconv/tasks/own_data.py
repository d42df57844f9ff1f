"""Own data of a run: what was learned of them lies in its folder, so that they are read again in the same way.

``data.json`` has the names of classes, features and categories and digests of the data, ``splits.npz`` the masks of the
splits, as ``--split-file`` takes them.
"""

from pathlib import Path
from typing import cast

from hkconv.data import GraphDataset, NodeDataset
from hkconv.data.options import PUBLISHED
from hkconv.data.own.loading import load_again, load_own
from hkconv.data.own.schema import Schema, schema_of_dict
from hkconv.data.split_files import write_masks
from hkconv.engine.files import read_json, write_bytes, write_json
from hkconv.errors import InputError
from hkconv.tasks.recipe import Recipe

DATA_FILE = "data.json"
SPLITS_FILE = "splits.npz"


def load_own_data(recipe: Recipe) -> NodeDataset | GraphDataset:
    """The own data that a recipe names.

    If the folder ``out`` holds a run on own data, they are loaded as that run read and divided them, from the path
    ``data`` if they were moved there, and refused if they have changed.

    Args:
        recipe: its ``dataset`` is a path.

    Returns:
        The dataset, with its schema.
    """
    data, place, out = recipe.data, recipe.runtime.data, recipe.runtime.out
    if data.protocol == PUBLISHED:
        raise InputError(f"protocol must be 'clean' for own data, got {data.protocol!r}")
    schema = None if out is None else find_schema(Path(out))
    if out is not None and schema is not None:
        return load_again(place or data.dataset, schema, Path(out, SPLITS_FILE), data)
    if place is not None:
        raise InputError(f"data is the folder of named datasets, but {data.dataset} is own data: leave it out")
    return load_own(
        data.dataset,
        task=data.task,
        split_file=data.split_file,
        num_splits=data.num_splits,
        seed=recipe.optim.seed,
        preparation=data,
    )


def keep_own_data(folder: Path, dataset: NodeDataset | GraphDataset) -> None:
    """Write what was learned of own data into the folder of a run.

    Args:
        folder: of the run.
        dataset: with a schema.
    """
    write_bytes(folder / SPLITS_FILE, write_masks(dataset.splits, len(dataset.labels)))
    write_json(folder / DATA_FILE, cast(Schema, dataset.schema).as_dict())


def find_schema(folder: Path) -> Schema | None:
    """What the run in ``folder`` learned of its own data, None if there is no such run."""
    path = folder / DATA_FILE
    return schema_of_dict(read_json(path, "what the run knows of its data"), str(path)) if path.exists() else None
