"""Splits from a file of the user's: JSON with indices, or NumPy arrays with masks as Geom-GCN stores its own."""

import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hkconv.data.checks import check_disjoint, check_least, check_num_splits, check_parts, check_range
from hkconv.data.dataset import CLEAN, Split
from hkconv.data.untrusted_files import read_arrays
from hkconv.errors import InputError
from hkconv.opening import read_text

PART_NAMES = ("train", "val", "test")


def check_split_file(split_file: str | os.PathLike[str] | None, protocol: str, task: str) -> None:
    """A split file, if there is one, is for nodes or graphs and not asked for beside the published splits."""
    if split_file is None:
        return
    if task == "link":
        raise InputError("split_file is for node and graph tasks, not for links")
    if protocol != CLEAN:
        raise InputError(f"split_file takes the place of the splits of protocol {protocol!r}: give one of the two")


def read_split_parts(path: str | os.PathLike[str], count: int) -> list[dict[str, Tensor]]:
    """The splits in a file, which may overlap: for an audit.

    Args:
        path: ``.json`` with ``{"train": [...], "val": [...], "test": [...]}``, indices from 0, or a list of such
            splits; or ``.npz`` with ``train_mask``, ``val_mask`` and ``test_mask``, (N,) for one split or (S, N) for
            S of them, also under the names ``train_masks`` and so on.
        count: number of nodes or graphs of the dataset, N.

    Returns:
        For each split its index tensors by name: not empty, within range.
    """
    path = Path(path)
    readers = {".json": _read_json, ".npz": _read_masks}
    if path.suffix not in readers:
        raise InputError(f"split file must end in {' or '.join(readers)}, got {path}")
    try:
        splits = readers[path.suffix](path, count)
    except OSError as error:
        raise InputError(f"split file {path} cannot be read ({error.strerror})") from None
    for index, parts in enumerate(splits):
        owner = f"split {index} of {path}"
        check_parts(parts, owner)
        check_range(max(int(members.max()) for members in parts.values()), count, str(path))
    return splits


def read_splits(path: str | os.PathLike[str], count: int, num_splits: int | None = None) -> list[Split]:
    """The first splits in a file, which must be disjoint: for everything but an audit.

    Args:
        path: see :func:`read_split_parts`.
        count: number of nodes or graphs of the dataset.
        num_splits: how many splits; all of them, if left out.

    Returns:
        The splits.
    """
    found = read_split_parts(path, count)
    if num_splits is not None:
        check_num_splits(num_splits, f"split file {path}", most=len(found))
    for index, parts in enumerate(found):
        check_disjoint(parts, f"split {index} of {path}")
    return [Split(*(parts[name] for name in PART_NAMES)) for parts in found[:num_splits]]


def _read_json(path: Path, count: int) -> list[dict[str, Tensor]]:
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError):
        raise InputError(f"split file {path} is not valid JSON") from None
    splits = content if isinstance(content, list) else [content]
    if not splits:
        raise InputError(f"split file {path} holds no split")
    return [_indices(split, count, path, f"split {index} of {path}") for index, split in enumerate(splits)]


def _indices(split: Any, count: int, path: Path, owner: str) -> dict[str, Tensor]:
    if not isinstance(split, dict) or set(split) != set(PART_NAMES):
        raise InputError(f"{owner} must have the keys {', '.join(PART_NAMES)} and no other")
    for name, members in split.items():
        # A bool is an int to Python, and a mask of true and false would pass as indices 1 and 0.
        if not isinstance(members, list) or any(type(member) is not int for member in members):
            raise InputError(f"{name} of {owner} must be a list of whole numbers")
        if members:  # before there is a tensor, which does not hold any number
            check_least(min(members), name, owner)
            check_range(max(members), count, str(path))
    return {name: torch.tensor(split[name], dtype=torch.int64) for name in PART_NAMES}


def _read_masks(path: Path, count: int) -> list[dict[str, Tensor]]:
    return parts_of_masks(read_arrays(path, f"split file {path}"), count, f"split file {path}")


def parts_of_masks(arrays: Mapping[str, np.ndarray], count: int, owner: str) -> list[dict[str, Tensor]]:
    """The splits that masks describe.

    Args:
        arrays: has ``train_mask``, ``val_mask`` and ``test_mask``, (N,) or (S, N), also as ``train_masks`` and so on.
        count: N.
        owner: how an error calls the arrays.

    Returns:
        For each split its index tensors by name.
    """
    masks = [_masks(arrays, name, count, owner) for name in PART_NAMES]
    if len({len(mask) for mask in masks}) > 1:
        raise InputError(f"the masks in {owner} must hold the same number of splits")
    return [dict(zip(PART_NAMES, map(_members, split))) for split in zip(*masks)]


def write_masks(splits: Sequence[Split], count: int) -> bytes:
    """Splits as the bytes of an ``.npz`` file that :func:`read_splits` reads.

    Args:
        splits: at least one.
        count: number of nodes or graphs of the dataset.

    Returns:
        The file's content.
    """
    masks = {f"{name}_mask": np.zeros((len(splits), count), dtype=bool) for name in PART_NAMES}
    for number, split in enumerate(splits):
        for name, members in split.parts.items():
            masks[f"{name}_mask"][number, members.numpy()] = True
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **masks)  # type: ignore[arg-type]  # no mask has the name of an option
    return buffer.getvalue()


def _masks(arrays: Mapping[str, np.ndarray], name: str, count: int, owner: str) -> np.ndarray:
    """(S, N) masks of one part."""
    key = next((key for key in (f"{name}_mask", f"{name}_masks") if key in arrays), None)
    if key is None:
        raise InputError(f"{owner} must hold {name}_mask, got {', '.join(arrays) or 'nothing'}")
    mask = np.atleast_2d(arrays[key])
    if mask.ndim != 2 or mask.shape[1] != count or not np.isin(mask, (0, 1)).all():
        raise InputError(f"{key} of {owner} must hold {count} zeros and ones a split, got shape {mask.shape}")
    return mask


def _members(mask: np.ndarray) -> Tensor:
    return torch.from_numpy(np.flatnonzero(mask))
