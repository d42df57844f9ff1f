"""Molecules from a table of SMILES strings, a graph a row, with the features of the Open Graph Benchmark."""

import warnings
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data

from hkconv.data.molecules import ROWS_NAMED
from hkconv.data.own.graphs import OwnGraphs
from hkconv.data.own.labels import is_label, read_labels, split_of_column
from hkconv.data.own.tables import read_table
from hkconv.data.smiles import atom_categories, bond_categories, one_hot_columns, read_smiles
from hkconv.errors import InputError

KIND = "molecules"
COLUMNS = ("smiles", "label", "target", "id", "split")


def read_smiles_table(path: Path) -> OwnGraphs:
    """Read a table of molecules.

    Args:
        path: CSV or Parquet with a column ``smiles`` and, where known, labels, see
            :func:`~hkconv.data.own.labels.read_labels`, ``id`` and ``split``.

    Returns:
        The molecules, called by their ids or else by the numbers of their rows, from 0. Those that RDKit refuses for a
        valence that it does not know are kept, and a warning names them.
    """
    table = read_table(path)
    if "smiles" not in table.columns:
        raise InputError(
            f"{table.heading}, column smiles is missing: a single table is one of molecules; "
            "for a graph name the folder that nodes.csv and edges.csv are in"
        )
    table.refuse_others(*COLUMNS, *filter(is_label, table.columns))
    graphs, refused = [], []
    for index, smiles in enumerate(table.filled_texts("smiles")):
        graph, is_sane = molecule_graph(smiles, table.place(index, "smiles"))
        graphs.append(graph)
        if not is_sane:
            refused.append(table.rows[index])
    if refused:
        named = ", ".join(map(str, refused[:ROWS_NAMED])) + (" ..." if len(refused) > ROWS_NAMED else "")
        warnings.warn(
            f"{path}: {len(refused)} molecules, which RDKit refuses, are kept without its valence check: "
            f"{table.unit} {named}",
            stacklevel=2,
        )
    labels = read_labels(table)
    ids = table.unique_texts("id") if "id" in table.columns else list(map(str, range(len(table))))
    splits = split_of_column(table, labels)
    columns: dict[str, Any] = {"num_columns": sum(atom_categories()), "num_edge_columns": sum(bond_categories())}
    answers: dict[str, Any] = {"metric": labels.metric, "questions": labels.names}
    return OwnGraphs(str(path), KIND, "graph", graphs, ids, labels.words, splits, **columns, **answers)


def molecule_graph(smiles: str, place: str) -> tuple[Data, bool]:
    """The graph of a molecule, the features of its atoms and bonds as numbers of columns.

    Args:
        smiles: the string.
        place: how an error calls it.

    Returns:
        The graph, and whether RDKit accepts its chemistry.
    """
    molecule = read_smiles(smiles)
    if molecule is None:
        raise InputError(f"{place} is no SMILES of a molecule: {smiles!r}")
    x = torch.from_numpy(one_hot_columns(molecule.atoms, atom_categories()))
    edge_attr = torch.from_numpy(one_hot_columns(molecule.bonds, bond_categories()))
    edges = torch.from_numpy(molecule.edges).long().contiguous()
    return Data(x=x, edge_index=edges, edge_attr=edge_attr), molecule.is_sane
