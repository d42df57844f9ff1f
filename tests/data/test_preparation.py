import torch
from torch_geometric.data import Data

from hkconv.data.preparation import both_directions


def edges_of(graph):
    weights = graph.edge_weight.tolist() if graph.edge_weight is not None else [None] * graph.edge_index.size(1)
    return dict(zip(map(tuple, graph.edge_index.t().tolist()), weights))


def test_without_weights_every_edge_goes_both_ways_once():
    graph = both_directions(Data(x=torch.ones(4, 1), edge_index=torch.tensor([[0, 0, 1, 2, 3], [1, 1, 0, 0, 3]])))
    assert sorted(edges_of(graph)) == [(0, 1), (0, 2), (1, 0), (2, 0), (3, 3)]
    assert graph.edge_index.size(1) == 5


def test_weights_of_repeats_are_added_and_those_of_both_directions_averaged():
    """One way 2; both ways 1 and 3; twice 1 and 4 one way; both ways 1 + 2 and 5; a loop of 7."""
    edges = torch.tensor([[0, 1, 2, 0, 0, 1, 1, 3, 3], [1, 2, 1, 2, 2, 3, 3, 1, 3]])
    weights = torch.tensor([2.0, 1, 3, 1, 4, 1, 2, 5, 7])
    found = edges_of(both_directions(Data(x=torch.ones(4, 1), edge_index=edges, edge_weight=weights)))
    expected = {(0, 1): 2.0, (1, 2): 2.0, (0, 2): 5.0, (1, 3): 4.0}
    assert found == {**expected, **{(v, u): weight for (u, v), weight in expected.items()}, (3, 3): 7.0}
