import pytest
import torch
from own_files import write_houses
from torch_geometric.data import Data

from hkconv.data import GraphDataset, NodeDataset, Split, audit_dataset
from hkconv.data.audit import audit_splits
from hkconv.data.own.loading import load_own
from hkconv.errors import InputError


def indices(*values):
    return torch.tensor(values, dtype=torch.int64)


def parts(train, val, test):
    return {"train": indices(*train), "val": indices(*val), "test": indices(*test)}


def small_nodes(num_nodes, edges, y, x=None):
    """A node dataset whose features are all different, unless they are given."""
    x = torch.arange(float(num_nodes))[:, None] if x is None else x
    graph = Data(x=x, edge_index=torch.tensor(edges).t().long(), y=torch.tensor(y))
    split = Split(indices(0), indices(1), indices(2))
    return NodeDataset("small", graph, [split], int(max(y)) + 1, "test")


@pytest.fixture
def planted():
    """Nodes 4 to 19 on a directed ring; nodes 0 to 3 point to three of them each, nodes 20 to 23 to the same three."""
    ring = [(node, 4 + (node - 3) % 16) for node in range(4, 20)]
    pointers = [(node + copy, 4 + 3 * node + step) for copy in (0, 20) for node in range(4) for step in range(3)]
    return small_nodes(24, ring + pointers, [node % 20 % 3 for node in range(24)])


def test_planted_twins_are_a_leak_where_they_are_split(planted):
    apart = parts(range(12), range(12, 16), range(16, 24))
    found = audit_splits(planted, [apart], "own")
    assert found.splits[0].twins == {"neighbours": 4, "2+ neighbours": 4, "neighbours and features": 0}
    assert [twins.agreement for twins in found.twins] == [1, 1, None]
    (leak,) = found.leaks
    copies = "have a node with the same 2+ neighbours and label in train"
    assert leak == f"50 % of the unique test nodes {copies} (split 0: 4 of 8, 50 %)"
    together = parts([*range(12), *range(20, 24)], range(12, 16), range(16, 20))
    assert audit_splits(planted, [together], "own").leaks == []


def test_copies_with_their_features_are_found_whatever_their_neighbours():
    x = torch.arange(20.0)[:, None] % 10
    leaves = [(node, 10 + node % 10) for node in range(10)] + [(10 + node, node) for node in range(10)]
    dataset = small_nodes(20, leaves, [node % 2 for node in range(20)], x)
    assert audit_splits(dataset, [parts(range(10), [10], range(11, 20))], "own").leaks == []
    isolated = small_nodes(20, [(0, 1)], [node % 2 for node in range(20)], x)
    (leak,) = audit_splits(isolated, [parts(range(10), [10, 11], range(12, 20))], "own").leaks
    assert leak.startswith("100 % of the unique test nodes have a node with the same neighbours and features and label")


def test_leaves_of_one_hub_are_no_leak():
    star = small_nodes(12, [(node, 0) for node in range(1, 12)], [0, *([1] * 11)])
    found = audit_splits(star, [parts(range(6), range(6, 8), range(8, 12))], "own")
    assert found.splits[0].twins["neighbours"] == 4
    assert found.leaks == []


def test_alike_nodes_of_other_labels_give_nothing_away(planted):
    planted.graph.y[20:] = (planted.graph.y[20:] + 1) % 3
    found = audit_splits(planted, [parts(range(12), range(12, 16), range(16, 24))], "own")
    assert found.splits[0].twins["neighbours"] == 0 and found.twins[0].agreement == 0
    assert found.leaks == []


def test_one_split_with_twins_apart_is_enough_for_a_leak(planted):
    apart = parts(range(12), range(12, 16), range(16, 24))
    together = parts([*range(12), *range(20, 24)], range(12, 16), range(16, 20))
    for splits in ([apart, together], [together, apart]):
        (leak,) = audit_splits(planted, splits, "own").leaks
        assert leak.startswith("0-50 % of the unique test nodes have a node with the same 2+ neighbours and label")


def test_overlap_repeats_and_classes_by_hand():
    dataset = small_nodes(6, [(0, 1)], [0, 0, 1, 1, 2, 2])
    sound, faulty = parts([0, 2], [1], [3, 4]), parts([0, 0, 2, 3], [2, 1], [3, 3, 4, 1])
    found = audit_splits(dataset, [sound, faulty], "own")
    assert found.class_counts == [2, 2, 2]
    assert found.splits[0].repeats == 0 and found.splits[1].repeats == 2
    assert found.splits[1].sizes == {"train": 3, "val": 2, "test": 3}
    assert found.splits[1].class_counts == {"train": [1, 2, 0], "val": [1, 1, 0], "test": [1, 1, 1]}
    assert [entry.shared for entry in found.splits[0].overlaps] == [0, 0, 0]
    assert [(entry.shared, entry.members) for entry in found.splits[1].overlaps] == [(1, 2), (1, 3), (1, 3)]
    assert found.leaks == [
        "0-50 % of the unique val nodes are train nodes (split 0: 0 of 1, 0 %)",
        "0-33 % of the unique test nodes are train nodes (split 0: 0 of 2, 0 %)",
        "0-33 % of the unique test nodes are val nodes (split 0: 0 of 2, 0 %)",
    ]


def test_one_node_of_a_thousand_is_a_leak_and_no_zero():
    dataset = small_nodes(2000, [(0, 1)], [0, 1] * 1000)
    (leak,) = audit_splits(dataset, [parts(range(500), range(500, 999), range(499, 1500))], "own").leaks[:1]
    assert leak == "0.1 % of the unique test nodes are train nodes (split 0: 1 of 1001, 0.1 %)"


def test_graph_facts_by_hand():
    x = torch.tensor([[1.0, 0, 2], [1, 0, 3], [1, 0, 2], [1, 5, 2], [1, 0, 2]])
    edges = [(0, 1), (1, 0), (1, 2), (1, 2), (3, 3), (0, 2)]
    found = audit_splits(small_nodes(5, edges, [0, 0, 1, 1, 1], x), [parts([0], [1], [2])], "own").graph
    assert (found.nodes, found.links, found.one_way_links, found.self_loops) == (5, 3, 2, 1)
    assert found.without_neighbors == {"in": 2, "out": 3, "both": 2}
    assert (found.features, found.constant_features) == (3, 1)
    assert found.homophily == pytest.approx(1 / 3)


def test_no_links_no_homophily():
    dataset = small_nodes(3, [(0, 0)], [0, 1, 1])
    found = audit_splits(dataset, [parts([0], [1], [2])], "own").graph
    assert (found.links, found.self_loops, found.homophily) == (0, 1, None)
    assert found.without_neighbors == {"in": 3, "out": 3, "both": 3}


def rings(num_copies, labels_agree):
    """Graphs of 3 to 12 nodes, each ``num_copies`` times."""
    graphs = []
    for copy in range(num_copies):
        for size in range(3, 13):
            edge_index = torch.stack([torch.arange(size), (torch.arange(size) + 1) % size])
            label = size % 2 if labels_agree else (size + copy) % 2
            graphs.append(Data(x=torch.ones(size, 1), edge_index=edge_index, y=torch.tensor([label])))
    return GraphDataset("rings", graphs, [Split(indices(0), indices(1), indices(2))], 2, "test")


@pytest.mark.parametrize("labels_agree", [True, False])
def test_copies_of_graphs_are_a_leak_if_they_share_their_label(labels_agree):
    split = parts(range(20), range(20, 25), range(25, 30))
    found = audit_splits(rings(3, labels_agree), [split], "own")
    assert found.splits[0].twins == {"edges and features": 5}
    assert found.twins[0].agreement == (1 if labels_agree else pytest.approx(1 / 3))
    assert bool(found.leaks) == labels_agree
    assert (found.graph.nodes, found.graph.links, found.graph.homophily) == (225, 225, None)
    assert found.graph.constant_features == 1


# Nodes with the same in- and out-neighbours and label, and test nodes of the first split with such a twin in training.
@pytest.mark.parametrize(("name", "in_training", "num_test"), [("chameleon", 213, 456), ("squirrel", 416, 1041)])
def test_raw_wikipedia_graphs_leak_through_twins(real_data, name, in_training, num_test):
    found = audit_dataset(name, root=real_data)
    first = found.splits[0]
    assert (first.twins["neighbours"], first.sizes["test"]) == (in_training, num_test)
    assert not any(entry.shared for split in found.splits for entry in split.overlaps)
    (leak,) = found.leaks
    assert "have a node with the same 2+ neighbours and label in train" in leak


CLEAN_NODES = ["tree", "disease", "chameleon-filtered", "squirrel-filtered", "texas", "cornell", "wisconsin", "actor"]
CLEAN_NODES += ["cora", "airport", "disease-lp"]
CLEAN_GRAPHS = ["ptc", "imdb-binary", "imdb-multi"]


@pytest.mark.parametrize("name", [*CLEAN_NODES, *CLEAN_GRAPHS])
def test_clean_is_clean(real_data, name):
    found = audit_dataset(name, root=real_data)
    assert found.protocol == "clean" and len(found.splits) == 10
    assert found.leaks == []


def test_published_texas(real_data):
    found = audit_dataset("texas", root=real_data, protocol="published")
    assert "61-81 % of the unique test nodes are train nodes (split 0: 26 of 42, 62 %)" in found.leaks
    assert found.graph.one_way_links > 0 and found.graph.without_neighbors["out"] == 78


def test_published_graphs_are_not_tested_at_all(real_data):
    (leak,) = audit_dataset("ptc", root=real_data, protocol="published").leaks
    assert leak == "100 % of the unique test graphs are val graphs (split 0: 30 of 30, 100 %)"


def test_published_cora_is_sound(real_data):
    assert audit_dataset("cora", root=real_data, protocol="published").leaks == []


def test_homophily_is_that_of_the_two_cornells(real_data):
    found = [audit_dataset(name, root=real_data).graph.homophily for name in ("cornell", "cornell-legacy")]
    assert found == pytest.approx([0.12, 0.30], abs=0.005)


def test_a_split_file_takes_the_place_of_the_splits(tmp_path):
    (tmp_path / "mine.json").write_text('{"train": [1, 2, 3], "val": [4], "test": [3, 5]}')
    found = audit_dataset("tree", split_file=tmp_path / "mine.json")
    assert found.protocol == "own" and len(found.splits) == 1
    assert found.leaks == ["50 % of the unique test nodes are train nodes (split 0: 1 of 2, 50 %)"]


def test_a_split_file_has_no_protocol(real_data, tmp_path):
    with pytest.raises(InputError, match="give one of the two"):
        audit_dataset("texas", root=real_data, protocol="published", split_file=tmp_path / "mine.json")


def test_answers_to_questions_are_counted_and_compared_together():
    """Alike graphs leak only if all their answers agree, and what was not measured is an answer of its own."""
    nan = float("nan")
    answers = [[0, 1], [0, 1], [1, nan], [1, nan], [1, 0], [0, 0]]
    chain = torch.tensor([[0, 1], [1, 0]])
    columns = [0, 0, 1, 1, 2, 2]
    graphs = [
        Data(x=torch.full((2, 1), float(column)), edge_index=chain, y=torch.tensor([row]))
        for column, row in zip(columns, answers)
    ]
    split = parts([0, 2, 4], [1], [3, 5])
    dataset = GraphDataset("asked", graphs, [Split(**split)], 2, "test", metric="ROC-AUC")
    found = audit_splits(dataset, [split], "own")
    assert found.classes == ["0 no", "0 yes", "1 no", "1 yes"]
    assert found.class_counts == [3, 3, 2, 2]
    assert found.splits[0].sizes == {"train": 3, "val": 1, "test": 2}
    assert found.splits[0].class_counts == {"train": [1, 2, 1, 1], "val": [1, 0, 0, 1], "test": [1, 1, 1, 0]}
    assert found.splits[0].twins == {"edges and features": 1}
    assert found.twins[0].agreement == pytest.approx(2 / 3)


def test_one_question_has_two_classes_by_name():
    chain = torch.tensor([[0, 1], [1, 0]])
    graphs = [
        Data(x=torch.full((2, 1), float(i)), edge_index=chain, y=torch.tensor([[float(i % 3 == 0)]])) for i in range(6)
    ]
    split = parts([0, 1], [2, 3], [4, 5])
    dataset = GraphDataset("asked", graphs, [Split(**split)], 2, "test", metric="ROC-AUC")
    found = audit_splits(dataset, [split], "own")
    assert dict(zip(found.classes, found.class_counts)) == {"no": 4, "yes": 2}


def test_listed_columns_are_features():
    """Column 0 is one everywhere, columns 3 and 4 nowhere."""
    chain = torch.tensor([[0, 1], [1, 0]])
    graphs = [
        Data(x=torch.tensor([[0, 1], [0, 2]], dtype=torch.uint8), edge_index=chain, y=indices(i % 2)) for i in range(3)
    ]
    dataset = GraphDataset("listed", graphs, [Split(indices(0), indices(1), indices(2))], 2, "test", num_columns=5)
    found = audit_splits(dataset, [parts([0], [1], [2])], "own").graph
    assert (found.features, found.constant_features) == (5, 3)


def test_own_questions_have_their_names_and_own_numbers_are_counted(tmp_path):
    found = audit_dataset(str(write_houses(tmp_path / "a", "questions")))
    assert found.classes == ["is big no", "is big yes", "has garden no", "has garden yes"]
    houses = load_own(tmp_path / "a")
    assert found.class_counts == [int((houses.labels[:, place] == say).sum()) for place in (0, 1) for say in (0, 1)]
    found = audit_dataset(str(write_houses(tmp_path / "b")))
    assert (found.classes, found.class_counts) == (["with a number"], [81])
    assert sum(counts[0] for counts in found.splits[0].class_counts.values()) == 81


def test_alike_nodes_of_other_numbers_give_nothing_away():
    """Nodes 0 and 3, 1 and 4, 2 and 5 are alike in all but the number of the last pair."""
    pairs = [(node, 6 + node % 3) for node in range(6)] + [(node, 9 + node % 3) for node in range(6)]
    edges = torch.tensor([[end for start, end in pairs], [start for start, end in pairs]])
    x = torch.arange(12.0)[:, None] % 3
    y = torch.tensor([1.5, 2.5, 3.5, 1.5, 2.5, 7, 0, 0, 0, 0, 0, 0])[:, None]
    split = parts([0, 1, 2], [6, 9], [3, 4, 5])
    dataset = NodeDataset("alike", Data(x=x, edge_index=edges, y=y), [Split(**split)], 2, "test", metric="R2")
    found = audit_splits(dataset, [split], "own")
    assert found.splits[0].twins["neighbours and features"] == 2
