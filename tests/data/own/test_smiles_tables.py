import re
import warnings

import pytest
import torch
from fuzzing import fuzzed, input_errors_alone
from hypothesis import strategies as st

from hkconv.data.own.smiles_tables import read_smiles_table
from hkconv.data.smiles import atom_categories, read_smiles
from hkconv.errors import InputError

pytest.importorskip("rdkit")
pytest.importorskip("ogb")


def table(folder, content):
    path = folder / "molecules.csv"
    path.write_text(content)
    return path


def test_molecules(tmp_path):
    own = read_smiles_table(table(tmp_path, "id,smiles,label,split\na,CCO,yes,train\nb,c1ccccc1,no,val\nc,[Na+],,\n"))
    assert (own.task, own.ids, own.labels) == ("graph", ["a", "b", "c"], ["yes", "no", ""])
    assert own.splits[0]["train"].tolist() == [0] and own.splits[0]["val"].tolist() == [1]
    assert own.num_features == 174
    ethanol = read_smiles("CCO")
    starts = [sum(atom_categories()[:place]) for place in range(9)]
    expected = [[start + code for start, code in zip(starts, atom)] for atom in ethanol.atoms.tolist()]
    assert own.graphs[0].x.tolist() == expected
    assert own.graphs[0].edge_index.tolist() == ethanol.edges.tolist()
    assert own.graphs[2].edge_index.shape == (2, 0) and own.graphs[2].x.dtype == torch.uint8


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("smiles,label\nCCO,1\nthis is none,0\n", "molecules.csv, line 3, column smiles is no SMILES of a molecule"),
        ("smiles,label\n,1\n", "molecules.csv, line 2, column smiles is empty"),
        ("id,age\na,1\n", "molecules.csv, line 1, column smiles is missing: a single table is one of molecules"),
        ("smiles,weight\nC,1\n", "molecules.csv, line 1, column weight is unknown"),
        ("smiles,label,split\nC,1,dev\n", "molecules.csv, line 2, column split must be train, val, test or empty"),
    ],
)
def test_faults(tmp_path, content, message):
    with pytest.raises(InputError, match=re.escape(message)):
        read_smiles_table(table(tmp_path, content))


def test_molecules_that_rdkit_refuses_are_kept_and_named(tmp_path):
    with pytest.warns(
        UserWarning, match="1 molecules, which RDKit refuses, are kept without its valence check: line 3"
    ):
        own = read_smiles_table(table(tmp_path, "smiles\nCCO\nC(C)(C)(C)(C)C\n"))
    assert own.graphs[1].x.size(0) == 6


SMILES = st.text("CNOcnos()[]=#123@+-/\\\\.%HFe*", max_size=12) | st.sampled_from(
    ["C" * 300, "[999Xx]", "C1CC", "[H][H]", "*"]
)
CELLS = st.sampled_from(["yes", "no", "", "train", "a", "1"])


@fuzzed(rows=st.lists(st.tuples(SMILES, CELLS, CELLS, CELLS), max_size=4))
def test_whatever_the_cells_hold_only_input_errors_come_out(tmp_path, rows):
    lines = ["smiles,label,split,id", *(",".join(row) for row in rows)]
    with input_errors_alone(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        own = read_smiles_table(table(tmp_path, "\n".join(lines) + "\n"))
        assert all(int(graph.x.max()) < own.num_columns for graph in own.graphs)
