import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from own_files import write_friends, write_houses, write_library, write_people
from torch_geometric.data import Data

from hkconv.data import GraphDataset, NodeDataset
from hkconv.data.options import DataOptions
from hkconv.data.own.loading import describe_own, is_own, load_again, load_own, prepared_graphs, read_like, read_own
from hkconv.data.own.schema import schema_of_dict
from hkconv.data.split_files import write_masks
from hkconv.errors import InputError


def refused(message):
    return pytest.raises(InputError, match=re.escape(message))


@pytest.fixture
def folder(tmp_path):
    """A hundred nodes of two classes and ten without a label; edges one way, with weights."""
    folder = tmp_path / "papers"
    folder.mkdir()
    rows = [f"n{number},{number % 7},{'' if number % 11 == 0 else 'ab'[number % 2]}" for number in range(110)]
    (folder / "nodes.csv").write_text("id,age,label\n" + "\n".join(rows) + "\n")
    edges = [f"n{number},n{number + 1},{number}" for number in range(109)]
    (folder / "edges.csv").write_text("source,target,weight\n" + "\n".join(edges) + "\n")
    return folder


@pytest.fixture
def graphs(tmp_path):
    made = [
        Data(x=torch.rand(3, 2), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([number % 2]))
        for number in range(40)
    ]
    torch.save(made, tmp_path / "graphs.pt")
    return tmp_path / "graphs.pt"


def test_a_name_of_the_catalog_is_no_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cora").mkdir()
    (tmp_path / "mine").mkdir()
    assert [name for name in ("cora", "Imdb_Binary", "txas", "mine", "./cora", "a/b", "x.npz") if is_own(name)] == [
        *("mine", "./cora", "a/b", "x.npz")
    ]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.npz", "nowhere.npz do not exist"),
        ("notes.txt", "must be a folder or a file that ends in .pt, .pth, .npz, .csv, .parquet"),
        ("empty", "empty holds no data: a folder should have nodes.csv and edges.csv"),
    ],
)
def test_what_is_no_data(tmp_path, name, message):
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "empty").mkdir()
    with refused(message):
        read_own(tmp_path / name)


def test_random_splits_are_stratified_and_leave_out_what_has_no_label(folder):
    dataset = load_own(folder, num_splits=3, seed=5)
    assert isinstance(dataset, NodeDataset) and (dataset.name, dataset.protocol) == ("papers", "clean")
    assert dataset.schema.classes == ("a", "b") and dataset.num_classes == 2
    unknown = set((dataset.labels == -1).nonzero().flatten().tolist())
    assert unknown == set(range(0, 110, 11))
    for split in dataset.splits:
        sizes = {name: len(members) for name, members in split.parts.items()}
        assert sizes == {"train": 60, "val": 20, "test": 20}
        assert sorted(torch.cat(list(split.parts.values())).tolist()) == sorted(set(range(110)) - unknown)
        assert [int(dataset.labels[members].sum()) for members in split.parts.values()] == [30, 10, 10]
    again = load_own(folder, num_splits=1, seed=5).splits[0]
    assert torch.equal(again.train, dataset.splits[0].train)
    assert not torch.equal(load_own(folder, num_splits=1, seed=6).splits[0].train, dataset.splits[0].train)


def test_graphs_are_prepared(folder):
    graph = load_own(folder).graph
    found = dict(zip(map(tuple, graph.edge_index.t().tolist()), graph.edge_weight.tolist()))
    assert found == {pair: float(n) for n in range(109) for pair in ((n, n + 1), (n + 1, n))}
    as_listed = load_own(folder, preparation=DataOptions(direction="in", log_features=True)).graph
    assert as_listed.edge_index.tolist() == [list(range(109)), list(range(1, 110))]
    turned = load_own(folder, preparation=DataOptions(direction="out")).graph
    assert torch.equal(turned.edge_index, as_listed.edge_index.flip(0))
    assert torch.equal(turned.edge_weight, as_listed.edge_weight)
    torch.testing.assert_close(as_listed.x[:, 0], torch.log1p(torch.arange(110.0) % 7))


def test_graph_task(graphs):
    dataset = load_own(graphs, num_splits=2)
    assert isinstance(dataset, GraphDataset) and dataset.name == "graphs"
    assert [len(members) for members in dataset.splits[1].parts.values()] == [32, 4, 4]
    assert dataset.labels.tolist() == [0, 1] * 20
    assert dataset.graphs[0].edge_index.size(1) == 4
    with refused("must be 'graph', got 'node'"):
        load_own(graphs, task="node")


def test_splits_of_the_data_come_before_random_ones_and_a_file_before_both(folder, tmp_path):
    rows = (folder / "nodes.csv").read_text().splitlines()
    words = ["split"] + ["" if n % 11 == 0 else ("train", "val", "test")[n % 3] for n in range(110)]
    (folder / "nodes.csv").write_text("\n".join(map(",".join, zip(rows, words))) + "\n")
    dataset = load_own(folder, num_splits=10)
    assert dataset.protocol == "own" and len(dataset.splits) == 1
    assert dataset.splits[0].test.tolist() == [n for n in range(110) if n % 3 == 2 and n % 11]
    (tmp_path / "split.json").write_text('{"train": [2, 1], "val": [3], "test": [4]}')
    chosen = load_own(folder, num_splits=1, split_file=tmp_path / "split.json")
    assert chosen.protocol == "own" and chosen.splits[0].train.tolist() == [1, 2]
    (tmp_path / "split.json").write_text('{"train": [1, 0], "val": [3], "test": [4]}')
    with refused("member 0 of train of a split of dataset 'papers' has no label"):
        load_own(folder, num_splits=1, split_file=tmp_path / "split.json")
    (folder / "nodes.csv").write_text((folder / "nodes.csv").read_text().replace("val", "train"))
    with refused(f"val of the split in {folder} is empty"):
        load_own(folder)


def test_labels_are_needed_to_train(folder):
    (folder / "nodes.csv").write_text("id,age\n" + "".join(f"n{n},1\n" for n in range(110)))
    with refused("papers have no labels in a column label (there are age): at least two classes are needed to train"):
        load_own(folder)
    (folder / "nodes.csv").write_text("id,age,label\n" + "".join(f"n{n},1,x\n" for n in range(110)))
    with refused("papers have one class only (x)"):
        load_own(folder)


def test_the_same_data_are_loaded_again_and_changed_ones_refused(folder, tmp_path):
    dataset = load_own(folder, num_splits=2)
    (tmp_path / "splits.npz").write_bytes(write_masks(dataset.splits, 110))
    again = load_again(folder, dataset.schema, tmp_path / "splits.npz", DataOptions())
    assert torch.equal(again.graph.x, dataset.graph.x) and torch.equal(again.labels, dataset.labels)
    assert torch.equal(again.graph.edge_weight, dataset.graph.edge_weight)
    for ours, theirs in zip(again.splits, dataset.splits):
        assert all(torch.equal(ours.parts[name], theirs.parts[name]) for name in ours.parts)
    nodes = (folder / "nodes.csv").read_text()
    for before, after, what in (
        ("n1,1,b", "n1,1,a", "labels or splits"),
        ("n1,1,b", "n1,2,b", "features, edges or ids"),
    ):
        (folder / "nodes.csv").write_text(nodes.replace(before, after))
        with refused(f"own data {folder} have changed since they were trained on: other {what}"):
            load_again(folder, dataset.schema, tmp_path / "splits.npz", DataOptions())


def test_data_of_another_kind_or_size_are_refused(folder, graphs, tmp_path):
    schema = load_own(folder).schema
    with refused(
        "graphs.pt holds arrays for the graph task, but trained on were tables of nodes and edges for the node task"
    ):
        read_like(graphs, schema)
    (folder / "edges.csv").write_text("source,target\nn0,n1\n")
    with refused("papers are without weights, but those trained on were with"):
        read_like(folder, schema)
    with refused("papers are with weights, but those trained on were without"):
        (folder / "edges.csv").write_text("source,target,weight\nn0,n1,1\n")
        read_like(folder, replace(schema, is_weighted=False))
    arrays = {"edge_index": np.array([[0], [1]]), "y": np.array([0, 1] * 5)}
    np.savez(tmp_path / "a.npz", x=np.ones((10, 3)), **arrays)
    np.savez(tmp_path / "b.npz", x=np.ones((10, 4)), **arrays)
    with refused("b.npz has 4 features, but 3 were trained on"):
        read_like(tmp_path / "b.npz", load_own(tmp_path / "a.npz").schema)


def test_preparing_leaves_what_was_read(graphs):
    own = read_own(graphs)
    digest = own.graphs_digest()
    prepared_graphs(own, DataOptions(normalize_features=True))
    assert own.graphs_digest() == digest


def test_the_home_of_somebody_who_does_not_exist():
    with pytest.raises(InputError, match="own data ~nobody-at-all/papers do not exist"):
        load_own("~nobody-at-all/papers")


def test_numbers_are_standardized_on_the_training_rows_of_each_split(tmp_path):
    data = write_people(tmp_path / "people")
    dataset = load_own(data, num_splits=3)
    for split in dataset.splits:
        seen = split.scaling(dataset.graph.x)[split.train]
        known = ~dataset.graph.x[split.train].isnan()
        for column in (0, 1):
            values = seen[known[:, column], column].double()
            torch.testing.assert_close(values.mean().item(), 0.0, atol=1e-5, rtol=0)
            torch.testing.assert_close(values.std(correction=0).item(), 1.0, atol=1e-5, rtol=0)
            assert (seen[~known[:, column], column].abs() < 1e-6).all() and (~known[:, column]).any()
    assert len({split.scaling for split in dataset.splits}) == 3
    assert [feature.name for feature in dataset.schema.features if not feature.width] == ["name"]
    assert any("salary" in note for note in dataset.schema.notes)


@pytest.mark.parametrize(("options", "expected"), [({"scale": "none"}, 7.0), ({"normalize_features": True}, 0.875)])
def test_a_scale_of_the_users_choice(tmp_path, options, expected):
    x = np.array([[7, 1], [0, 1], [3, 5], [1, 2]] * 5, dtype=float)
    np.savez(tmp_path / "a.npz", x=x, edge_index=np.array([[0], [1]]), y=np.arange(20) % 2)
    dataset = load_own(tmp_path / "a.npz", preparation=DataOptions(**options))
    assert dataset.splits[0].scaling is None and dataset.graph.x[0, 0] == expected
    scaled = load_own(tmp_path / "a.npz")
    assert scaled.splits[0].scaling is not None


def test_words_are_left_as_they_are(tmp_path):
    x = np.eye(20)[:, :6] * 3
    np.savez(tmp_path / "a.npz", x=x, edge_index=np.array([[0], [1]]), y=np.arange(20) % 2)
    assert load_own(tmp_path / "a.npz").splits[0].scaling is None
    assert load_own(tmp_path / "a.npz", preparation=DataOptions(scale="standard")).splits[0].scaling is not None


def test_numbers_to_predict_have_the_mean_and_deviation_of_the_training_rows_of_each_split(tmp_path):
    dataset = load_own(write_houses(tmp_path / "houses"), num_splits=3)
    schema = dataset.schema
    assert (dataset.metric, schema.metric, schema.classes, schema.num_logits) == ("R2", "R2", ("target",), 2)
    assert dataset.labels.shape == (90, 1) and dataset.labels.isnan().sum() == 9
    assert [feature.name for feature in schema.features] == ["size", "kind"]
    for split, target in zip(dataset.splits, schema.targets, strict=True):
        known = dataset.labels[split.train].double().numpy()
        assert not np.isnan(known).any() and len(known) == 49
        assert split.target == target == pytest.approx((known.mean(), known.std()))
    assert len({*schema.targets}) == 3


def test_questions_are_divided_among_the_nodes_with_an_answer(tmp_path):
    dataset = load_own(write_houses(tmp_path / "houses", "questions"), num_splits=2)
    assert (dataset.metric, dataset.num_questions, dataset.schema.num_logits) == ("ROC-AUC", 2, 4)
    assert dataset.schema.classes == ("is big", "has garden") and dataset.schema.targets is None
    members = torch.cat([*dataset.splits[0].parts.values()])
    assert sorted(members.tolist()) == [number for number in range(90) if number % 10 != 9]
    assert dataset.labels[members].isnan().any() and dataset.splits[0].target is None


@pytest.mark.parametrize("labels", ["target", "questions"])
def test_numbers_and_answers_are_loaded_again_and_changed_ones_refused(tmp_path, labels):
    folder = write_houses(tmp_path / "houses", labels)
    dataset = load_own(folder, num_splits=2)
    (tmp_path / "splits.npz").write_bytes(write_masks(dataset.splits, 90))
    schema = schema_of_dict(json.loads(json.dumps(dataset.schema.as_dict())), "data.json")
    assert schema == dataset.schema
    again = load_again(folder, schema, tmp_path / "splits.npz", DataOptions())
    torch.testing.assert_close(again.labels, dataset.labels, equal_nan=True, rtol=0, atol=0)
    assert [split.target for split in again.splits] == [split.target for split in dataset.splits]
    nodes = (folder / "nodes.csv").read_text()
    heading, rest = nodes.split("\n", 1)
    (folder / "nodes.csv").write_text(nodes.rsplit(",", 1)[0] + ",1\n")
    with refused("have changed since they were trained on: other labels or splits"):
        load_again(folder, schema, tmp_path / "splits.npz", DataOptions())
    if labels == "questions":
        (folder / "nodes.csv").write_text(f"{heading.replace('has garden', 'had garden')}\n{rest}")
        with refused("have changed since they were trained on: other labels or splits"):
            load_again(folder, schema, tmp_path / "splits.npz", DataOptions())


@pytest.mark.parametrize(
    ("heading", "cell", "message"),
    [
        ("target", "", "houses have no labels: nothing is known of target"),
        ("target", "7", "labels of dataset 'houses' must hold at least two different numbers"),
        ("label:big,label:old", ",", "houses have no labels: nothing is known of big, old"),
        ("label:big", "yes", "labels of dataset 'houses' have no question with both answers"),
    ],
)
def test_labels_that_nothing_follows_from(tmp_path, heading, cell, message):
    folder = tmp_path / "houses"
    folder.mkdir()
    (folder / "nodes.csv").write_text(f"id,x,{heading}\n" + "".join(f"{n},{n},{cell}\n" for n in range(30)))
    (folder / "edges.csv").write_text("source,target\n0,1\n")
    with refused(message):
        load_own(folder)


def test_what_is_to_be_predicted_is_told(tmp_path):
    info, notes = describe_own(write_houses(tmp_path / "a"))
    assert info.classes == 0 and notes == ("labels: 81 of 90 nodes have one", "a number to predict")
    info, notes = describe_own(write_houses(tmp_path / "b", "questions"))
    assert info.classes == 2 and notes[1] == "yes-or-no questions: is big, has garden"
    assert "81 numbers to predict, scored by R2" in repr(load_own(tmp_path / "a"))
    assert "2 yes-or-no questions, scored by ROC-AUC" in repr(load_own(tmp_path / "b"))


def test_attributes_of_edges_are_standardized_over_all_edges(tmp_path):
    folder = write_friends(tmp_path / "friends")
    dataset = load_own(folder, num_splits=1, preparation=DataOptions(direction="in"))
    raw = read_own(folder).graphs[0].edge_attr
    assert dataset.edge_dim == 3 and torch.equal(dataset.graph.edge_attr[:, :2], raw[:, :2])
    years, missing = dataset.graph.edge_attr[:, 2].double(), raw[:, 2].isnan()
    assert missing.any() and (years[missing].abs() < 1e-6).all()
    assert years[~missing].mean().item() == pytest.approx(0, abs=1e-5)
    assert years[~missing].std(correction=0).item() == pytest.approx(1, abs=1e-5)
    plain = load_own(folder, preparation=DataOptions(direction="in", scale="none")).graph.edge_attr
    torch.testing.assert_close(plain[~missing], raw[~missing])
    assert load_own(folder, preparation=DataOptions(edge_attributes=False)).edge_dim is None


def test_attributes_of_edges_are_loaded_again_and_changed_ones_refused(tmp_path):
    folder = write_friends(tmp_path / "friends")
    dataset = load_own(folder, num_splits=1)
    (tmp_path / "splits.npz").write_bytes(write_masks(dataset.splits, 80))
    schema = schema_of_dict(json.loads(json.dumps(dataset.schema.as_dict())), "data.json")
    assert schema == dataset.schema and schema.edge_scaling is not None and schema.num_edge_features == 3
    again = load_again(folder, schema, tmp_path / "splits.npz", DataOptions())
    assert torch.equal(again.graph.edge_attr, dataset.graph.edge_attr)
    (folder / "edges.csv").write_text((folder / "edges.csv").read_text().replace("friend", "rival", 1))
    with refused("have changed since they were trained on: other features, edges or ids"):
        load_again(folder, schema, tmp_path / "splits.npz", DataOptions())


def test_links_leave_attributes_of_edges_out(tmp_path):
    folder = write_friends(tmp_path / "friends")
    dataset = load_own(folder, task="link", num_splits=1)
    assert "links have no attributes, not used: kind, years" in dataset.schema.notes
    assert dataset.graph.edge_attr is None and read_like(folder, dataset.schema).task == "link"


def test_attributes_of_edges_in_arrays_are_taken_as_they_are(tmp_path):
    arrays = {"edge_index": np.array([[0, 1], [1, 2]]), "y": np.array([0, 1] * 5), "x": np.ones((10, 3))}
    np.savez(tmp_path / "a.npz", edge_attr=np.array([[100, 1], [200, 2]]), **arrays)
    np.savez(tmp_path / "b.npz", edge_attr=np.array([5.0, 6.0]), **arrays)
    np.savez(tmp_path / "c.npz", **arrays)
    found = {name: load_own(tmp_path / f"{name}.npz", preparation=DataOptions(direction="in")) for name in "abc"}
    assert found["a"].graph.edge_attr.tolist() == [[100, 1], [200, 2]]
    assert found["b"].graph.edge_attr.tolist() == [[5], [6]] and found["c"].edge_dim is None
    with refused("edges of") as caught:
        read_like(tmp_path / "b.npz", found["a"].schema)
    assert "b.npz have 1 attributes, but 2 were trained on" in str(caught.value)
    # A run that knew no attributes leaves them out.
    assert read_like(tmp_path / "a.npz", found["c"].schema).graphs[0].edge_attr is None


def test_types_of_nodes_have_columns_of_their_own(tmp_path):
    """Columns of a type that no training row has are scaled over all rows of that type, the others as ever."""
    folder = write_library(tmp_path / "library")
    dataset = load_own(folder, num_splits=2)
    names = ["author", "journal", "paper", "age", "pages", "FR", "JP"]
    assert [entry for feature in dataset.schema.features for entry in feature.categories or [feature.name]] == names
    authors, journals, papers = (torch.arange(*ends) for ends in ((0, 30), (30, 40), (40, 100)))
    for split in dataset.splits:
        x = split.scaling(dataset.graph.x).double()
        assert x.isfinite().all() and torch.equal(x[:, :3], dataset.graph.x[:, :3].double())
        for rows, column in ((authors, 3), (split.train, 4)):
            known = x[rows, column][~dataset.graph.x[rows, column].isnan()]
            assert len(known) >= 25 and known.mean().item() == pytest.approx(0, abs=1e-6)
            assert known.std(correction=0).item() == pytest.approx(1, abs=1e-6)
        assert x[papers, 3].abs().max() < 1e-6 and x[authors, 4].abs().max() < 1e-6
        shares = dataset.graph.x[journals, 5:].double().mean(0)
        torch.testing.assert_close(x[papers[0], 5:], shares, rtol=1e-5, atol=1e-6)


def test_what_a_type_does_not_have_is_not_missing(tmp_path):
    folder = write_library(tmp_path / "library")
    assert describe_own(folder)[1][-1] == "missing values: pages 6; they count as the mean of the training rows"
    with refused("values are missing in pages 6; fill them in"):
        load_own(folder, preparation=DataOptions(missing="error"))
    told = load_own(folder, preparation=DataOptions(missing="category"))
    assert [feature.name for feature in told.schema.features if feature.has_missing] == ["pages"]
    assert told.graph.x[:, 5].nonzero().flatten().tolist() == list(range(43, 100, 10))
    (folder / "nodes.csv").write_text((folder / "nodes.csv").read_text().replace("paper,,,", "paper,,7,"))
    assert load_own(folder, preparation=DataOptions(missing="error")).num_features == 7
