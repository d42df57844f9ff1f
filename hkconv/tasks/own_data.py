"""Own data of a run: what was learned of them lies in its folder, so that they are read again in the same way.

``data.json`` has the names of classes, features and categories and digests of the data, ``splits.npz`` the masks of the
splits, as ``--split-file`` takes them.
"""

from dataclasses import fields
from pathlib import Path
from typing import cast

from hkconv.data import GraphDataset, NodeDataset
from hkconv.data.own.loading import Preparation, load_again, load_own
from hkconv.data.own.schema import Schema, schema_of_dict
from hkconv.data.split_files import write_masks
from hkconv.engine.files import read_json, write_bytes, write_json
from hkconv.errors import InputError
from hkconv.tasks.recipe import Recipe

DATA_FILE = "data.json"
SPLITS_FILE = "splits.npz"


def load_own_data(recipe: Recipe) -> NodeDataset | GraphDataset:
    """The own data that a recipe names.

    If the folder ``recipe.out`` holds a run on own data, they are loaded as that run read and divided them, from
    ``recipe.data`` if they were moved there, and refused if they have changed.

    Args:
        recipe: its ``dataset`` is a path.

    Returns:
        The dataset, with its schema.
    """
    if recipe.protocol == "published":
        raise InputError(f"protocol must be 'clean' for own data, got {recipe.protocol!r}")
    schema = None if recipe.out is None else find_schema(Path(recipe.out))
    if recipe.out is None or schema is None:
        if recipe.data is not None:
            raise InputError(f"data is the folder of named datasets, but {recipe.dataset} is own data: leave it out")
        return load_own(
            recipe.dataset,
            task=recipe.task,
            split_file=recipe.split_file,
            num_splits=recipe.num_splits,
            seed=recipe.seed,
            preparation=preparation_of(recipe),
        )
    path = recipe.data or recipe.dataset
    return load_again(path, schema, Path(recipe.out, SPLITS_FILE), preparation_of(recipe))


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


def preparation_of(recipe: Recipe) -> Preparation:
    """What a recipe does to graphs."""
    return Preparation(**{entry.name: getattr(recipe, entry.name) for entry in fields(Preparation)})
