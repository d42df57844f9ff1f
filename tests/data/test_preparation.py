import pytest
import torch
from torch_geometric.data import Data

from hkconv.data.preparation import direct_edges, write_out


def edges_of(graph):
    weights = graph.edge_weight.tolist() if graph.edge_weight is not None else [None] * graph.edge_index.size(1)
    return dict(zip(map(tuple, graph.edge_index.t().tolist()), weights))


def test_without_weights_every_edge_goes_both_ways_once():
    edges = torch.tensor([[0, 0, 1, 2, 3], [1, 1, 0, 0, 3]])
    graph = direct_edges(Data(x=torch.ones(4, 1), edge_index=edges), "both")
    assert sorted(edges_of(graph)) == [(0, 1), (0, 2), (1, 0), (2, 0), (3, 3)]
    assert graph.edge_index.size(1) == 5


def test_weights_of_repeats_are_added_and_those_of_both_directions_averaged():
    """One way 2; both ways 1 and 3; twice 1 and 4 one way; both ways 1 + 2 and 5; a loop of 7."""
    edges = torch.tensor([[0, 1, 2, 0, 0, 1, 1, 3, 3], [1, 2, 1, 2, 2, 3, 3, 1, 3]])
    weights = torch.tensor([2.0, 1, 3, 1, 4, 1, 2, 5, 7])
    found = edges_of(direct_edges(Data(x=torch.ones(4, 1), edge_index=edges, edge_weight=weights), "both"))
    expected = {(0, 1): 2.0, (1, 2): 2.0, (0, 2): 5.0, (1, 3): 4.0}
    assert found == {**expected, **{(v, u): weight for (u, v), weight in expected.items()}, (3, 3): 7.0}


@pytest.mark.parametrize(
    "direction, expected",
    [("in", {(0, 1): 2.0, (2, 1): 3.0, (3, 3): 7.0}), ("out", {(1, 0): 2.0, (1, 2): 3.0, (3, 3): 7.0})],
)
def test_one_direction_keeps_every_edge_with_its_weight(direction, expected):
    edges, weights = torch.tensor([[0, 2, 3], [1, 1, 3]]), torch.tensor([2.0, 3, 7])
    graph = Data(x=torch.ones(4, 1), edge_index=edges, edge_weight=weights)
    assert edges_of(direct_edges(graph, direction)) == expected


def test_rows_are_one_in_the_listed_columns(dtype):
    written = write_out(torch.tensor([[0, 3], [2, 4]], dtype=torch.uint8), 5, dtype)
    assert written.dtype == dtype
    assert written.tolist() == [[1, 0, 0, 1, 0], [0, 0, 1, 0, 1]]


def test_a_linear_map_is_the_sum_of_the_columns_embeddings(generator):
    """OGB's atom encoder adds one learned vector for each feature's category."""
    columns = torch.stack([torch.randint(0, 4, (9,), generator=generator), torch.randint(4, 7, (9,))], dim=1)
    embeddings = torch.randn(7, 3, generator=generator)
    torch.testing.assert_close(write_out(columns, 7, torch.float32) @ embeddings, embeddings[columns].sum(dim=1))


def test_attributes_stay_with_their_bonds():
    columns = torch.tensor([[7, 2], [7, 2], [9, 3], [9, 3]], dtype=torch.uint8)
    graph = Data(x=torch.ones(3, 1), edge_index=torch.tensor([[2, 1, 1, 0], [1, 2, 0, 1]]), edge_attr=columns)
    direct_edges(graph, "both")
    found = dict(zip(map(tuple, graph.edge_index.T.tolist()), graph.edge_attr.tolist()))
    assert found == {(0, 1): [9, 3], (1, 0): [9, 3], (1, 2): [7, 2], (2, 1): [7, 2]}
    assert graph.edge_attr.dtype == torch.uint8


@pytest.mark.parametrize("weighted", [False, True])
def test_both_directions_of_an_edge_have_the_mean_of_the_attributes_of_its_lines(weighted):
    """Of two lines from 0 to 1, one from 1 to 0, one from 1 to 2 and a loop."""
    edges = torch.tensor([[0, 0, 1, 1, 2], [1, 1, 0, 2, 2]])
    attributes = torch.tensor([[1.0, 0.0], [3.0, 0.0], [5.0, 3.0], [7.0, 1.0], [9.0, 2.0]])
    graph = Data(x=torch.ones(3, 1), edge_index=edges, edge_attr=attributes)
    if weighted:
        graph.edge_weight = torch.tensor([1.0, 2.0, 5.0, 4.0, 3.0])
    direct_edges(graph, "both")
    found = dict(zip(map(tuple, graph.edge_index.t().tolist()), graph.edge_attr.tolist()))
    expected = {(0, 1): [3, 1], (1, 0): [3, 1], (1, 2): [7, 1], (2, 1): [7, 1], (2, 2): [9, 2]}
    assert found == expected
    if weighted:
        weights = dict(zip(map(tuple, graph.edge_index.t().tolist()), graph.edge_weight.tolist()))
        assert weights == {(0, 1): 4, (1, 0): 4, (1, 2): 4, (2, 1): 4, (2, 2): 3}


def test_attributes_go_with_their_edges_in_one_direction():
    edges, attributes = torch.tensor([[0, 1, 0], [1, 2, 1]]), torch.tensor([[1.0], [2.0], [3.0]])
    for direction, expected in (("in", edges), ("out", edges.flip(0))):
        graph = direct_edges(Data(x=torch.ones(3, 1), edge_index=edges, edge_attr=attributes), direction)
        assert torch.equal(graph.edge_index, expected) and torch.equal(graph.edge_attr, attributes)
