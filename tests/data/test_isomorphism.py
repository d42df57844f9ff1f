import itertools

import networkx
import torch
from torch_geometric.data import Data

from hkconv.data.isomorphism import same_graphs


def graph(num_nodes, *edges, x=None, both=True):
    edge_index = torch.tensor(edges).t().reshape(2, -1).long()
    edge_index = torch.cat([edge_index, edge_index.flip(0)], dim=1) if both else edge_index
    return Data(x=torch.ones(num_nodes, 1) if x is None else x, edge_index=edge_index)


def shuffled(original, generator):
    """A copy with its nodes in another order."""
    order = torch.randperm(original.num_nodes, generator=generator)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    return Data(x=original.x[order], edge_index=place[original.edge_index])


def test_all_graphs_of_five_nodes_against_networkx():
    pairs = list(itertools.combinations(range(5), 2))
    chosen = [[pair for bit, pair in enumerate(pairs) if code >> bit & 1] for code in range(2 ** len(pairs))]
    number = same_graphs([graph(5, *edges) for edges in chosen])
    atlas = [networkx.Graph(edges) for edges in chosen]
    for network in atlas:
        network.add_nodes_from(range(5))
    representatives = {int(group): atlas[index] for index, group in enumerate(number.tolist())}
    assert len(representatives) == 34
    assert not any(networkx.is_isomorphic(*two) for two in itertools.combinations(representatives.values(), 2))
    for index, group in enumerate(number.tolist()):
        assert networkx.is_isomorphic(atlas[index], representatives[group])


def test_order_does_not_matter_and_features_do(generator):
    edges = torch.randint(15, (20, 2), generator=generator).tolist()
    original = graph(15, *edges, x=torch.randint(2, (15, 2), generator=generator).float(), both=False)
    other = Data(x=original.x.clone(), edge_index=original.edge_index)
    other.x[3, 0] += 1
    number = same_graphs([original, *(shuffled(original, generator) for _ in range(5)), other]).tolist()
    assert len(set(number[:6])) == 1 and number[6] != number[0]


def test_graphs_of_the_same_colours_are_told_apart(generator):
    ring = graph(6, *((node, (node + 1) % 6) for node in range(6)))
    triangles = graph(6, (0, 1), (1, 2), (2, 0), (3, 4), (4, 5), (5, 3))
    graphs = [ring, triangles, *(shuffled(one, generator) for one in (triangles, ring, triangles))]
    ring_number, triangle_number = (int(number) for number in same_graphs(graphs)[:2])
    assert same_graphs(graphs).tolist() == [ring_number, triangle_number, triangle_number, ring_number, triangle_number]
    assert ring_number != triangle_number


def test_direction_and_constant_features():
    out, into = graph(3, (0, 1), (0, 2), both=False), graph(3, (1, 0), (2, 0), both=False)
    assert len(same_graphs([out, into]).unique()) == 2
    assert len(same_graphs([graph(3, (0, 1)), graph(3, (0, 1), (1, 2)), graph(3, (2, 1))]).unique()) == 2


def test_an_edge_listed_twice_is_one_edge():
    assert len(same_graphs([graph(3, (0, 1)), graph(3, (1, 2), (1, 2))]).unique()) == 1
