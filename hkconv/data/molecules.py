"""Molecules of a CSV file, a SMILES string and some yes-or-no measurements each, as a dataset of graphs.

Reading a hundred thousand of them takes minutes, so the graphs are kept in the user's cache.
"""

import csv
import gzip
import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from hkconv.data.checks import check_num_splits
from hkconv.data.dataset import GraphDataset, Split
from hkconv.data.smiles import (
    Molecule,
    atom_categories,
    bond_categories,
    chemistry_versions,
    one_hot_columns,
    read_smiles,
)
from hkconv.data.sources import Molecules, read_source
from hkconv.data.splits import stratified_splits
from hkconv.data.staging import fingerprint, made_once
from hkconv.errors import InputError

# As MoleculeNet (Wu et al. 2018) divides.
RANDOM_FRACTIONS = (0.8, 0.1, 0.1)
ANSWERS = {"": math.nan, "0": 0.0, "1": 1.0, "0.0": 0.0, "1.0": 1.0}
ROWS_NAMED = 20


@dataclass(frozen=True, eq=False)
class PackedMolecules:
    """All molecules of a file, one after the other.

    Args:
        columns: (N, 9) uint8, where each atom's one-hot features are one.
        num_columns: how many columns there are.
        num_atoms: (G,) int64, how many of them each molecule has.
        edges: (2, E) int32, numbered from 0 in each molecule.
        num_edges: (G,) int64, how many of them each molecule has.
        bonds: (E, 3) uint8, where each edge's one-hot attributes are one.
        num_bond_columns: how many columns these have.
        answers: (G, T) float32, 0, 1 or NaN where not measured.
        refused: (R,) int64 rows that RDKit refuses and that were read without its valence check.
    """

    columns: np.ndarray
    num_columns: np.ndarray
    num_atoms: np.ndarray
    edges: np.ndarray
    num_edges: np.ndarray
    bonds: np.ndarray
    num_bond_columns: np.ndarray
    answers: np.ndarray
    refused: np.ndarray

    def graphs(self) -> list[Data]:
        """One graph a molecule, in the order of the file."""
        x = torch.from_numpy(self.columns).split(self.num_atoms.tolist())
        edge_index = torch.from_numpy(self.edges).long().split(self.num_edges.tolist(), dim=1)
        edge_attr = torch.from_numpy(self.bonds).split(self.num_edges.tolist())
        y = torch.from_numpy(self.answers).split(1)
        return [Data(*parts) for parts in zip(x, edge_index, edge_attr, y)]


Content = tuple[PackedMolecules, Split | None]


def read_molecules(folder: Path, file: str, label_prefixes: tuple[str, ...], split_files: tuple[str, ...]) -> Content:
    """The molecules of a file and, where there is one, its published split.

    Args:
        folder: of the files.
        file, label_prefixes: as for :func:`hkconv.data.sources.molecules`.
        split_files: three files of row numbers, or none.
    """
    packed = _read_once(folder / file, label_prefixes)
    return packed, _read_split(folder, split_files, len(packed.num_atoms)) if split_files else None


def load_molecules(origin: Molecules, root: Path, name: str, num_splits: int, seed: int) -> GraphDataset:
    """The dataset of a file of molecules.

    The published split is one, however many are asked for. Without it there are random ones, 80/10/10, in which
    the molecules active in each measurement are divided so too.

    Args:
        origin: the file.
        root: the data root.
        name: the dataset's name.
        num_splits: how many random splits.
        seed: seed of random splits.

    Returns:
        The dataset. What RDKit refuses is in it, and its ``source`` and a warning say so.
    """
    check_num_splits(num_splits, f"dataset {name!r}")
    packed, published = read_source(origin.raw, root, name)
    if published is None:
        splits = stratified_splits(_first_yes(packed.answers), RANDOM_FRACTIONS, num_splits, seed)
    else:
        splits = [published]
    source = f"{origin.raw.folder}/{origin.raw.files[0]} ({chemistry_versions()}{_refusals(packed)})"
    if len(packed.refused):
        warnings.warn(f"dataset {name!r} from {source}", stacklevel=2)
    return GraphDataset(
        name,
        packed.graphs(),
        splits,
        2,
        source,
        metric=origin.metric,
        num_columns=int(packed.num_columns),
        num_edge_columns=int(packed.num_bond_columns),
    )


def _read_once(path: Path, label_prefixes: tuple[str, ...]) -> PackedMolecules:
    def make(folder: Path) -> None:
        packed = _pack(*_read_table(path, label_prefixes), path)
        np.savez(folder / "packed.npz", **vars(packed))

    parts = [part.name for part in fields(PackedMolecules)]
    folder = made_once((fingerprint(path.resolve()), label_prefixes, chemistry_versions(), parts), make)
    with np.load(folder / "packed.npz", allow_pickle=False) as arrays:
        return PackedMolecules(**arrays)


def _read_table(path: Path, label_prefixes: tuple[str, ...]) -> tuple[list[str], np.ndarray]:
    """The SMILES strings and the (G, T) answers."""
    with gzip.open(path, "rt", encoding="utf-8", newline="") as lines:
        table = csv.reader(lines)
        header = next(table, [])
        places = [place for place, name in enumerate(header) if name.startswith(label_prefixes)]
        if not places or "smiles" not in header:
            wanted = " or ".join(label_prefixes)
            raise InputError(f"{path} must have a column smiles and columns that begin with {wanted}")
        rows = list(table)
    for number, row in enumerate(rows):
        for place in places:
            if row[place] not in ANSWERS:
                where = f"row {number}, column {header[place]} of {path}"
                raise InputError(f"{where} must be 0, 1 or empty, got {row[place]!r}")
    answers = [[ANSWERS[row[place]] for place in places] for row in rows]
    return [row[header.index("smiles")] for row in rows], np.array(answers, dtype=np.float32)


def _pack(smiles: Iterable[str], answers: np.ndarray, path: Path) -> PackedMolecules:
    found: list[Molecule] = []
    for row, text in enumerate(smiles):
        molecule = read_smiles(text)
        if molecule is None:
            raise InputError(f"row {row} of {path} is no SMILES of a molecule: {text!r}")
        found.append(molecule)
    return PackedMolecules(
        columns=one_hot_columns(np.concatenate([molecule.atoms for molecule in found]), atom_categories()),
        num_columns=np.array(sum(atom_categories())),
        num_atoms=np.array([len(molecule.atoms) for molecule in found]),
        edges=np.concatenate([molecule.edges for molecule in found], axis=1),
        num_edges=np.array([molecule.edges.shape[1] for molecule in found]),
        bonds=one_hot_columns(np.concatenate([molecule.bonds for molecule in found]), bond_categories()),
        num_bond_columns=np.array(sum(bond_categories())),
        answers=answers,
        refused=np.array([row for row, molecule in enumerate(found) if not molecule.is_sane], dtype=np.int64),
    )


def _read_split(folder: Path, files: tuple[str, ...], count: int) -> Split:
    """The split whose row numbers the files list, which must cover all ``count`` rows."""
    split = Split(*(torch.from_numpy(np.loadtxt(folder / file, dtype=np.int64, ndmin=1)) for file in files))
    covered = sum(map(len, split.parts.values()))
    if covered != count:
        raise InputError(f"the split in {folder / files[0]} is for {covered} molecules, but there are {count}")
    return split


def _first_yes(answers: np.ndarray) -> Tensor:
    """(G,) the number, from 1, of the first measurement that a molecule is active in, 0 where there is none."""
    is_active = torch.from_numpy(answers == 1)
    return torch.where(is_active.any(dim=1), 1 + is_active.int().argmax(dim=1), 0)


def _refusals(packed: PackedMolecules) -> str:
    refused = packed.refused.tolist()
    if not refused:
        return ""
    named = ", ".join(map(str, refused[:ROWS_NAMED])) + (" ..." if len(refused) > ROWS_NAMED else "")
    return (
        f"; {len(refused)} of {len(packed.num_atoms)} molecules, which RDKit refuses, are kept without its "
        f"valence check: rows {named}"
    )
