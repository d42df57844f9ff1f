import re

import pytest
import torch
from torch_geometric.data import Data

from hkconv.data import GraphDataset, LinkDataset, LinkSplit, NodeDataset, OverlappingSplit, Split, hide_test, load
from hkconv.data.dataset import link_keys, pair_keys, pairs_of_keys
from hkconv.errors import InputError


def indices(*values):
    return torch.tensor(values, dtype=torch.int64)


def graph(**changes):
    parts = {
        "x": torch.randn(5, 3),
        "edge_index": torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]),
        "y": torch.tensor([0, 1, 0, 1, 0]),
    }
    return Data(**{**parts, **changes})


def node_dataset(splits=None, num_classes=2, **changes):
    splits = [Split(indices(0, 1), indices(2), indices(3, 4))] if splits is None else splits
    return NodeDataset("foo", graph(**changes), splits, num_classes, "test")


def refused(message):
    return pytest.raises(InputError, match=re.escape(message))


def test_split_names_the_overlap_and_its_size():
    with refused("train and test of a split share 2 members: they must be disjoint"):
        Split(indices(0, 1, 2), indices(3), indices(1, 2, 4))


def test_split_refuses_repeats():
    with refused("val of a split lists 1 of its members more than once"):
        Split(indices(0), indices(1, 1), indices(2))


@pytest.mark.parametrize("empty", ["train", "val", "test"])
def test_split_refuses_an_empty_part(empty):
    parts = {"train": indices(0), "val": indices(1), "test": indices(2), empty: indices()}
    with refused(f"{empty} of a split is empty"):
        Split(**parts)


def test_split_refuses_masks_in_place_of_indices():
    with refused("train of a split must be a 1-D int64 tensor, got torch.bool of shape (3,)"):
        Split(torch.ones(3, dtype=torch.bool), indices(1), indices(2))


def test_splits_know_their_overlap():
    assert Split(indices(0), indices(1), indices(2)).overlap == {
        "val in train": 0,
        "test in train": 0,
        "test in val": 0,
    }
    overlapping = OverlappingSplit(indices(0, 1, 1), indices(2, 2), indices(1, 2, 3, 3))
    assert overlapping.overlap == {"val in train": 0, "test in train": 1 / 3, "test in val": 1 / 3}


def test_an_overlapping_split_is_for_the_published_protocol_alone():
    splits = [Split(indices(0), indices(1), indices(2)), OverlappingSplit(indices(0, 1), indices(1), indices(1))]
    arguments = "foo", graph(), splits, 2, "test"
    assert NodeDataset(*arguments, protocol="published").protocol == "published"
    for protocol in ("clean", "own"):
        with refused(f"dataset 'foo' has splits that may overlap: they are for protocol 'published', not '{protocol}'"):
            NodeDataset(*arguments, protocol=protocol)
    with refused("protocol of dataset 'foo' must be 'clean' or 'published' or 'own', got 'fair'"):
        NodeDataset(*arguments, protocol="fair")


def test_an_overlapping_split_is_not_empty():
    with refused("val of a split is empty"):
        OverlappingSplit(indices(0), indices(), indices(0))


def test_a_sound_node_dataset_is_accepted():
    dataset = node_dataset()
    assert (dataset.task, dataset.protocol, dataset.num_features) == ("node", "clean", 3)


def test_int32_edges_are_accepted():
    node_dataset(edge_index=torch.tensor([[0], [1]], dtype=torch.int32))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_the_first_row_that_is_not_finite_is_named(value):
    x = torch.zeros(5, 3)
    x[2, 1] = x[4, 0] = value
    with refused("features of dataset 'foo' contain NaN or Inf, first in row 2"):
        node_dataset(x=x)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.zeros(5)}, "features of dataset 'foo' must be a 2-D float tensor"),
        ({"x": torch.zeros(5, 3, dtype=torch.int64)}, "must be a 2-D float tensor (nodes, features), got torch.int64"),
        ({"x": None}, "features of dataset 'foo' must be a 2-D float tensor (nodes, features), got NoneType"),
        ({"x": torch.zeros(0, 3)}, "dataset 'foo' is an empty graph"),
        ({"x": torch.zeros(5, 0)}, "features of dataset 'foo' have no columns"),
        ({"edge_index": torch.zeros(3, 2).long()}, "must have shape (2, edges), got torch.int64 of shape (3, 2)"),
        ({"edge_index": torch.zeros(2, 3)}, "edge_index of dataset 'foo' must hold integers"),
        ({"edge_index": torch.tensor([[0, 1], [1, 5]])}, "stay within [0, 5), but column 1 is (1, 5)"),
        ({"edge_index": torch.tensor([[-1], [1]])}, "stay within [0, 5), but column 0 is (-1, 1)"),
        ({"y": torch.tensor([0.0, 1, 0, 1, 0])}, "labels of dataset 'foo' must be 5 integers"),
        ({"y": torch.tensor([0, 1, 0])}, "must be 5 integers in a 1-D tensor, got torch.int64 of shape (3,)"),
        ({"y": torch.tensor([0, 1, 2, 0, 1])}, "must lie in [0, 2), got 0 to 2"),
        ({"y": torch.tensor([0, 1, -2, 0, 1])}, "must lie in [0, 2), got -2 to 1"),
        ({"y": torch.tensor([0, 1, -1, 0, 1])}, "member 2 of val of a split of dataset 'foo' has no label"),
        ({"y": torch.full((5,), -1)}, "labels of dataset 'foo' have no known class: at least two are needed"),
        ({"y": torch.ones(5).long()}, "labels of dataset 'foo' have one class only (1)"),
        ({"edge_weight": torch.ones(3)}, "must be 4 floats in a 1-D tensor, got torch.float32 of shape (3,)"),
        ({"edge_weight": torch.tensor([1.0, 0, -2, 1])}, "must be finite and at least 0, got -2.0 for edge 2"),
        ({"edge_weight": torch.tensor([1.0, float("nan"), 0, 1])}, "at least 0, got nan for edge 1"),
        ({"splits": []}, "dataset 'foo' has no splits"),
        ({"splits": [Split(indices(0), indices(1), indices(5))]}, "mentions index 5, but indices end at 4"),
    ],
)
def test_a_faulty_node_dataset_is_refused_in_one_line(changes, message):
    with refused(message) as caught:
        node_dataset(**changes)
    assert "\n" not in str(caught.value)


def test_a_node_in_no_split_needs_no_label():
    split = Split(indices(0), indices(1), indices(3))
    assert node_dataset([split], y=torch.tensor([0, 1, -1, 0, -1])).labels.tolist() == [0, 1, -1, 0, -1]


def graph_dataset(graphs, **options):
    return GraphDataset("foo", graphs, [Split(indices(0), indices(1), indices(2))], 2, "test", **options)


def test_either_all_graphs_have_weights_of_edges_or_none():
    graphs = labelled_graphs(0, 1, 0)
    graphs[1].edge_weight = torch.ones(4)
    with refused("graph 1 of dataset 'foo' and graph 0 must both have an edge_weight, or neither"):
        graph_dataset(graphs)


def test_a_graph_without_a_label_is_in_no_split():
    assert graph_dataset(labelled_graphs(0, 1, 0, -1)).labels.tolist() == [0, 1, 0, -1]
    with refused("member 2 of test of a split of dataset 'foo' has no label"):
        graph_dataset(labelled_graphs(0, 1, -1))


def labelled_graphs(*labels):
    return [graph(y=torch.tensor([label])) for label in labels]


def test_a_sound_graph_dataset_knows_its_labels():
    dataset = graph_dataset(labelled_graphs(0, 1, 1))
    assert dataset.labels.tolist() == [0, 1, 1]
    assert (dataset.task, dataset.num_features) == ("graph", 3)


def test_the_faulty_graph_is_named():
    graphs = labelled_graphs(0, 1, 0)
    graphs[2].x[3, 0] = float("nan")
    with refused("features of graph 2 of dataset 'foo' contain NaN or Inf, first in row 3"):
        graph_dataset(graphs)


def test_graphs_must_agree_in_features():
    graphs = labelled_graphs(0, 1, 0)
    graphs[1].x = torch.zeros(5, 4)
    with refused("graph 1 of dataset 'foo' has 4 features, but graph 0 has 3"):
        graph_dataset(graphs)


def test_a_graph_has_one_label():
    with refused("graph 0 of dataset 'foo' must have one label"):
        graph_dataset([graph(), *labelled_graphs(0, 1)])


def test_graphs_of_one_class_and_no_graphs_are_refused():
    with refused("labels of dataset 'foo' have one class only"):
        graph_dataset(labelled_graphs(1, 1, 1))
    with refused("dataset 'foo' has no graphs"):
        graph_dataset([])


def questions(*answers, metric="AP", **changes):
    graphs = [graph(y=torch.tensor([row]), **changes) for row in answers]
    return GraphDataset("foo", graphs, [Split(indices(0), indices(1), indices(2))], 2, "test", metric=metric)


def test_a_graph_may_answer_several_questions():
    dataset = questions([0.0, 1.0], [1.0, float("nan")], [float("nan"), 1.0])
    assert dataset.num_questions == 2 and dataset.labels.shape == (3, 2)
    assert graph_dataset(labelled_graphs(0, 1, 1)).num_questions == 1


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        (
            ([0.0], [1.0, 0.0], [1.0]),
            "graph 1 of dataset 'foo' must answer every question of graph 0, y of shape (1, 1)",
        ),
        (([0.0], [0.5], [1.0]), "labels of dataset 'foo' must be 0, 1 or NaN, got 0.5"),
        (([0], [1], [1]), "labels of dataset 'foo' must be a 2-D float tensor (3, questions), got torch.int64"),
        (([0.0, 1.0], [0.0, 1.0], [float("nan"), 1.0]), "labels of dataset 'foo' have no question with both answers"),
    ],
)
def test_faulty_answers_are_refused(answers, message):
    with refused(message):
        questions(*answers)


def test_an_unknown_metric_is_refused():
    with refused("metric of dataset 'foo' must be one of accuracy, ROC-AUC, AP, R2, got 'F1'"):
        questions([0.0], [1.0], [1.0], metric="F1")


def column_dataset(x):
    graphs = [graph(x=x, y=torch.tensor([label])) for label in (0, 1, 1)]
    return GraphDataset("foo", graphs, [Split(indices(0), indices(1), indices(2))], 2, "test", num_columns=7)


def test_features_may_be_listed_by_their_columns():
    assert column_dataset(torch.full((5, 2), 6, dtype=torch.uint8)).num_features == 7


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(5, 2), "features of graph 0 of dataset 'foo' must be a 2-D integer tensor"),
        (torch.zeros(0, 2, dtype=torch.uint8), "graph 0 of dataset 'foo' is an empty graph"),
        (torch.full((5, 2), 7), "features of graph 0 of dataset 'foo' must name columns in [0, 7), got 7 to 7"),
        (torch.full((5, 2), -1), "must name columns in [0, 7), got -1 to -1"),
    ],
)
def test_faulty_columns_are_refused(x, message):
    with refused(message):
        column_dataset(x)


def pairs(*values):
    return torch.tensor(values, dtype=torch.int64).t()


def link_split(**changes):
    parts = {
        "train": pairs((0, 1), (1, 2)),
        "val": pairs((2, 3)),
        "test": pairs((3, 4)),
        "val_negatives": pairs((0, 4)),
        "test_negatives": pairs((0, 3)),
    }
    return LinkSplit(**{**parts, **changes})


def test_message_edges_are_the_training_links_both_ways():
    columns = set(map(tuple, link_split().message_edges.t().tolist()))
    assert columns == {(0, 1), (1, 0), (1, 2), (2, 1)}


def test_a_link_hidden_by_its_direction_is_found():
    with refused("train and test of a link split share 1 members"):
        link_split(test=pairs((2, 1)))


def test_a_negative_that_is_a_positive_is_found():
    with refused("val and test_negatives of a link split share 1 members"):
        link_split(test_negatives=pairs((3, 2)))


def test_pairs_must_be_pairs():
    with refused("val of a link split must be a (2, pairs) int64 tensor, got torch.int64 of shape (3,)"):
        link_split(val=indices(1, 2, 3))


def test_a_negative_that_is_a_link_of_the_graph_is_found():
    linked = graph(edge_index=torch.tensor([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]]))
    with refused("1 negatives in a split of dataset 'foo' are links of its graph"):
        LinkDataset("foo", linked, [link_split()], "test")
    assert LinkDataset("foo", graph(), [link_split()], "test").task == "link"


def test_a_hidden_test_part_is_gone_from_every_kind_of_split():
    overlapping = OverlappingSplit(indices(0, 1), indices(1), indices(0, 4))
    published = NodeDataset("foo", graph(), [overlapping], 2, "test", protocol="published")
    linked = LinkDataset("foo", graph(), [link_split()], "test")
    for dataset, names in ((node_dataset(), ["train", "val"]), (linked, ["train", "val", "val_negatives"])):
        (split,) = hide_test(dataset).splits
        assert list(split.parts) == names
        assert all(split.parts[name] is dataset.splits[0].parts[name] for name in names)
        assert dataset.splits[0].test is not None
    (hidden,) = hide_test(published).splits
    assert isinstance(hidden, OverlappingSplit)
    assert hidden.overlap == {"val in train": 1.0}


def test_direction_does_not_matter_and_different_pairs_differ():
    pairs = torch.combinations(torch.arange(7)).t()
    keys = pair_keys(pairs, 7)
    assert torch.equal(keys, pair_keys(pairs.flip(0), 7))
    assert len(keys.unique()) == 21


def test_pairs_come_back_from_their_keys():
    pairs = torch.combinations(torch.arange(9)).t()
    assert torch.equal(pairs_of_keys(pair_keys(pairs.flip(0), 9), 9), pairs)


def test_links_are_counted_once_and_loops_not_at_all():
    edges = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 1, 1, 1, 1]])
    assert torch.equal(pairs_of_keys(link_keys(edges, 3), 3), torch.tensor([[0, 1], [1, 2]]))


def test_int32_indices_do_not_overflow():
    pairs = torch.tensor([[99_999], [99_998]], dtype=torch.int32)
    assert pair_keys(pairs, 100_000).item() == 99_998 * 100_000 + 99_999


def test_no_pairs_have_no_keys():
    assert pair_keys(torch.empty(2, 0, dtype=torch.int64), 5).numel() == 0


@pytest.mark.parametrize(
    ("attributes", "columns", "message"),
    [
        (
            torch.ones(3, 2),
            None,
            "edge_attr of graph 1 of dataset 'foo' must be 4 rows of floats, got torch.float32 of",
        ),
        (torch.ones(4), None, "must be 4 rows of floats"),
        (torch.ones(4, 2).long(), None, "must be 4 rows of floats, got torch.int64"),
        (torch.full((4, 2), torch.nan), None, "edge_attr of graph 1 of dataset 'foo' contains NaN or Inf"),
        (torch.ones(4, 3), None, "must have as many columns of edge_attr, or both none"),
        (None, None, "must have as many columns of edge_attr, or both none"),
        (torch.ones(4, 2), 5, "must be 4 rows of integers"),
        (torch.full((4, 2), 5), 5, r"must name columns in [0, 5), got 5"),
    ],
)
def test_attributes_of_edges_are_checked(attributes, columns, message):
    graphs = labelled_graphs(0, 1, 0)
    for one in graphs:
        one.edge_attr = torch.ones(4, 2) if columns is None else torch.ones(4, 2).to(torch.uint8)
    assert graph_dataset(graphs, num_edge_columns=columns).edge_dim == (columns or 2)
    graphs[1].edge_attr = attributes
    with refused(message):
        graph_dataset(graphs, num_edge_columns=columns)


def test_a_dataset_is_printed_in_five_lines():
    assert str(node_dataset()).splitlines() == [
        "NodeDataset foo: node task, protocol clean",
        "  5 nodes, 4 directed edges, 3 features",
        "  2 classes: 0 3, 1 2",
        "  1 split, the first of 2 train, 1 val, 2 test",
        "  from test",
    ]


def test_many_graphs_and_links_are_printed_in_five_lines_too():
    graphs = [graph(y=indices(number % 2)) for number in range(4)]
    lines = repr(GraphDataset("foo", graphs, [Split(indices(0, 1), indices(2), indices(3))], 2, "test")).splitlines()
    assert lines[1:3] == ["  4 graphs, 20 nodes, 16 directed edges, 3 features", "  2 classes: 0 2, 1 2"]
    shown = str(load("tree", task="link", num_splits=2))
    assert len(shown.splitlines()) == 5 and "  970 links\n  2 splits, the first of 825 train, " in shown
