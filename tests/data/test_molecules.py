import gzip
import warnings

import numpy as np
import pytest
import torch

from hkconv.data import GraphDataset, load, molecules
from hkconv.data.catalog import CATALOG
from hkconv.data.molecules import _read_split, _read_table
from hkconv.data.preparation import write_out
from hkconv.data.smiles import atom_categories, bond_categories, read_smiles
from hkconv.errors import InputError

pytest.importorskip("rdkit")

REFUSED = "CC(=O)O[AlH3](O)O"
ROWS = [("CCO", 0), ("c1ccccc1", 1), (REFUSED, 0), ("[NH4+].[Cl-]", 1), ("CC(C)=O", 0), ("C1CC1", 1)]
SPLIT = {"train": [1, 3, 2], "valid": [4, 0], "test": [5]}


def write_lines(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt") as file:
        file.write("".join(f"{line}\n" for line in lines))


def write_hiv(root, rows=tuple(ROWS), split=None):
    write_lines(root / "molecules/hiv.csv.gz", ["smiles,activity,HIV_active", *(f"{text},CI,{y}" for text, y in rows)])
    for part, members in {**SPLIT, **(split or {})}.items():
        write_lines(root / f"molecules/ogbg_molhiv_split/{part}.csv.gz", members)


@pytest.fixture
def hiv_root(tmp_path):
    write_hiv(tmp_path)
    return tmp_path


def load_quietly(name, root, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load(name, root=root, **options)


def test_graphs_come_in_the_order_of_the_file_with_the_features_of_ogb(hiv_root):
    dataset = load_quietly("ogbg-molhiv", hiv_root)
    assert isinstance(dataset, GraphDataset)
    assert (dataset.metric, dataset.num_features, dataset.num_questions) == ("ROC-AUC", 174, 1)
    assert torch.equal(dataset.labels, torch.tensor([[0.0], [1], [0], [1], [0], [1]]))
    for graph, (text, _) in zip(dataset.graphs, ROWS):
        expected = read_smiles(text)
        one_hot = [np.eye(count)[expected.atoms[:, column]] for column, count in enumerate(atom_categories())]
        assert np.array_equal(write_out(graph.x, 174, torch.float32), np.concatenate(one_hot, axis=1))
        assert np.array_equal(graph.edge_index, expected.edges) and graph.edge_index.dtype == torch.int64


def test_the_published_split_is_the_one_there_is(hiv_root):
    dataset = load_quietly("ogbg-molhiv", hiv_root, num_splits=3)
    (split,) = dataset.splits
    assert [part.tolist() for part in split.parts.values()] == list(SPLIT.values())


def test_what_rdkit_refuses_is_kept_and_reported(hiv_root):
    with pytest.warns(UserWarning, match="1 of 6 molecules, which RDKit refuses, are kept .* rows 2") as caught:
        dataset = load("ogbg-molhiv", root=hiv_root)
    assert len(caught) == 1
    assert dataset.graphs[2].num_nodes == 7
    assert "1 of 6 molecules, which RDKit refuses" in dataset.source and "RDKit 20" in dataset.source


def test_nothing_is_reported_where_nothing_is_refused(tmp_path):
    write_hiv(tmp_path, [row for row in ROWS if row[0] != REFUSED], {"train": [1, 3]} | {"valid": [4, 0], "test": [2]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "refuses" not in load("ogbg-molhiv", root=tmp_path).source


def test_the_smiles_are_read_once_and_again_when_the_file_changes(hiv_root, monkeypatch):
    first = load_quietly("ogbg-molhiv", hiv_root)
    with monkeypatch.context() as patch:
        patch.setattr(molecules, "read_smiles", lambda text: pytest.fail("read twice"))
        second = load_quietly("ogbg-molhiv", hiv_root)
    assert all(torch.equal(before.x, after.x) for before, after in zip(first.graphs, second.graphs))
    write_hiv(hiv_root, [("CCCO", 0), *ROWS[1:]])
    assert load_quietly("ogbg-molhiv", hiv_root).graphs[0].num_nodes == 4


@pytest.mark.parametrize(
    ("rows", "split", "message"),
    [
        ([*ROWS[:5], ("C(C", 1)], {}, r"row 5 of .*hiv.csv.gz is no SMILES of a molecule: 'C\(C'"),
        ([*ROWS[:5], ("C", 2)], {}, r"row 5, column HIV_active of .*hiv.csv.gz must be 0, 1 or empty, got '2'"),
        (ROWS, {"test": [5, 1]}, "train and test of a split share 1 members"),
        (ROWS, {"test": [6]}, "a split of dataset 'ogbg-molhiv' mentions index 6, but indices end at 5"),
        (ROWS, {"train": [1, 3]}, r"the split in .*ogbg_molhiv_split.* is for 5 molecules, but there are 6"),
        (ROWS, {"train": ["one"]}, r"'ogbg-molhiv': the files in .* could not be read \(ValueError"),
    ],
)
def test_faulty_files_are_refused_in_one_line(tmp_path, rows, split, message):
    write_hiv(tmp_path, rows, split)
    with pytest.raises(InputError, match=message) as caught:
        load_quietly("ogbg-molhiv", tmp_path)
    assert "\n" not in str(caught.value)


def test_a_file_without_the_right_columns_is_refused(tmp_path):
    write_hiv(tmp_path)
    write_lines(tmp_path / "molecules/hiv.csv.gz", ["smiles,active", "CCO,1"])
    with pytest.raises(InputError, match="must have a column smiles and columns that begin with HIV_active"):
        load("ogbg-molhiv", root=tmp_path)


def test_molpcba_says_what_it_looked_for(tmp_path):
    with pytest.raises(
        InputError, match=r"'ogbg-molpcba' not found and it has no download.*molecules' for pcba.csv.gz"
    ):
        load("ogbg-molpcba", root=tmp_path)


def test_categories_cannot_be_normalised(hiv_root):
    for option in ("normalize_features", "log_features"):
        with pytest.raises(InputError, match=f"{option} must be off for dataset 'ogbg-molhiv'"):
            load_quietly("ogbg-molhiv", hiv_root, **{option: True})


@pytest.fixture
def muv_root(tmp_path):
    """Chains of carbon; every tenth is active in the first measurement, every tenth in the second, most are unknown."""
    answers = {0: "1,", 1: ",1", 2: "0,0", 3: "1,1"}
    lines = [f"{answers.get(length % 10, ',0')},CID{length},{'C' * length}" for length in range(1, 101)]
    write_lines(tmp_path / "molecules/muv.csv.gz", ["MUV-466,MUV-548,mol_id,smiles", *lines])
    return tmp_path


def test_unknown_answers_are_nan(muv_root):
    labels = load("muv", root=muv_root).labels
    assert labels.shape == (100, 2)
    assert torch.isnan(labels).sum(0).tolist() == [70, 10]
    assert (labels == 1).sum(0).tolist() == [20, 20]


def test_random_splits_divide_the_active_ones_of_every_measurement(muv_root):
    dataset = load("muv", root=muv_root, num_splits=3)
    assert len(dataset.splits) == 3 and dataset.metric == "AP"
    for split in dataset.splits:
        assert sorted(torch.cat(list(split.parts.values())).tolist()) == list(range(100))
        actives = [(dataset.labels[part] == 1).sum(0).tolist() for part in split.parts.values()]
        assert np.allclose(actives, [[16, 16], [2, 2], [2, 2]], atol=2)
        assert np.min(actives) >= 1
    again = load("muv", root=muv_root, num_splits=1)
    assert torch.equal(again.splits[0].test, dataset.splits[0].test)
    assert not torch.equal(dataset.splits[1].test, dataset.splits[0].test)


# Known and active answers of the whole file, from its README.
REAL_FILES = {
    "ogbg-molhiv": ("hiv.csv.gz", ("HIV_active",), 41127, 1443),
    "muv": ("muv.csv.gz", ("MUV-",), 249946, 489),
    "tox21": ("tox21.csv.gz", ("NR-", "SR-"), 77946, 5862),
}


@pytest.mark.parametrize("name", REAL_FILES)
def test_real_files_hold_the_published_answers(real_data, name):
    file, prefixes, known, active = REAL_FILES[name]
    smiles, answers = _read_table(real_data / "molecules" / file, prefixes)
    assert len(smiles) == len(answers) == CATALOG[name].facts.graphs
    assert ((~np.isnan(answers)).sum(), (answers == 1).sum()) == (known, active)


def test_the_split_of_molhiv_is_that_of_ogb(real_data):
    files = tuple(f"ogbg_molhiv_split/{part}.csv.gz" for part in SPLIT)
    split = _read_split(real_data / "molecules", files, 41127)
    _, answers = _read_table(real_data / "molecules/hiv.csv.gz", ("HIV_active",))
    parts = split.parts.values()
    assert [(len(part), int(answers[part].sum())) for part in parts] == [(32901, 1232), (4113, 81), (4113, 130)]
    assert torch.equal(torch.cat(list(parts)).sort().values, torch.arange(41127))


def test_of_a_slice_of_molhiv_the_known_rows_are_refused(real_data, tmp_path):
    smiles, answers = _read_table(real_data / "molecules/hiv.csv.gz", ("HIV_active",))
    rows = [*range(0, 41127, 200), 137, 987, 12882, 18293, 30784, 30785, 35728]
    count = len(rows)
    split = {"train": range(count - 2), "valid": [count - 2], "test": [count - 1]}
    write_hiv(tmp_path, [(smiles[row], int(answers[row, 0])) for row in rows], split)
    dataset = load_quietly("ogbg-molhiv", tmp_path)
    assert f"7 of {count} molecules" in dataset.source
    assert dataset.source.endswith(f"rows {', '.join(map(str, range(count - 7, count)))})")
    assert all(graph.is_undirected() for graph in dataset.graphs)


def test_edges_have_the_bond_features_of_ogb(hiv_root):
    dataset = load_quietly("ogbg-molhiv", hiv_root)
    assert (dataset.edge_dim, sum(bond_categories())) == (13, 13)
    for graph, (text, _) in zip(dataset.graphs, ROWS):
        expected = read_smiles(text).bonds
        one_hot = [np.eye(count)[expected[:, column]] for column, count in enumerate(bond_categories())]
        assert graph.edge_attr.dtype == torch.uint8
        assert np.array_equal(write_out(graph.edge_attr, 13, torch.float32), np.concatenate(one_hot, axis=1))


def test_attributes_of_edges_can_be_left_out(hiv_root):
    dataset = load_quietly("ogbg-molhiv", hiv_root, edge_attributes=False)
    assert dataset.edge_dim is None and all(graph.edge_attr is None for graph in dataset.graphs)
