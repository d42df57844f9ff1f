from collections import Counter
from itertools import combinations, pairwise
from math import comb

import pytest
import torch
import torch_geometric.typing as pyg
from scipy import stats
from torch_geometric.data import Data
from torch_geometric.loader import LinkLoader, LinkNeighborLoader, NeighborLoader, NodeLoader
from torch_geometric.sampler import NegativeSampling, NodeSamplerInput
from torch_geometric.utils import k_hop_subgraph

from hkconv.data.neighbor_sampling import (
    ALL,
    InNeighbors,
    NumbaNeighborSampler,
    link_neighbor_loader,
    neighbor_loader,
    sampler_name,
)
from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.nn import HKBlock

# Sources of the edges into each node. Nodes are reached twice, there is a loop, and two edges are the same.
SOURCES = {0: [1, 2, 3], 1: [4, 5, 0], 2: [1, 4], 3: [5, 3, 5], 4: [], 5: [2]}


@pytest.fixture
def edge_index():
    pairs = [(source, target) for target, sources in SOURCES.items() for source in sources]
    return torch.tensor(pairs)[torch.randperm(len(pairs), generator=torch.Generator().manual_seed(0))].T.contiguous()


@pytest.fixture
def large():
    """A graph with many edges into a few nodes."""
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(500, (6000,), generator=generator)
    target = (500 * torch.rand(6000, generator=generator) ** 3).long()
    return torch.stack([source, target])


def edges_into(edge_index, node):
    return (edge_index[1] == node).nonzero().flatten().tolist()


def exact_distribution(edge_index, start, limits):
    """The probability of each set of drawn edges: a node draws when it is first reached, and never again."""

    def later(frontier, seen, limits):
        """What is drawn from here on: pairs of a set of edges and its probability."""
        if not limits:
            yield frozenset(), 1.0
            return
        for drawn, probability in choices(frontier, limits[0]):
            reached = {int(edge_index[0, edge]) for edge in drawn}
            for rest, factor in later(sorted(reached - seen), seen | reached, limits[1:]):
                yield drawn | rest, probability * factor

    def choices(nodes, limit):
        if not nodes:
            yield frozenset(), 1.0
            return
        edges = edges_into(edge_index, nodes[0])
        size = min(limit, len(edges))
        for chosen in combinations(edges, size):
            for rest, factor in choices(nodes[1:], limit):
                yield frozenset(chosen) | rest, factor / comb(len(edges), size)

    total = Counter()
    for drawn, probability in later(sorted(start), set(start), limits):
        total[drawn] += probability
    return total


def chi_square_probability(counts, exact):
    assert set(counts) <= set(exact), "something was drawn that cannot be"
    draws = sum(counts.values())
    observed = [counts[outcome] for outcome in exact]
    return stats.chisquare(observed, [draws * probability for probability in exact.values()]).pvalue


@pytest.mark.parametrize(("start", "limits"), [([0], (2, 1)), ([0, 3], (1, 2)), ([1, 2], (2, 2, 1))])
def test_what_is_drawn_has_the_exact_probability(edge_index, start, limits):
    exact = exact_distribution(edge_index, start, limits)
    assert sum(exact.values()) == pytest.approx(1) and len(exact) > 8
    neighbors = InNeighbors(edge_index, 6)
    nodes = torch.tensor(start)
    counts = Counter(frozenset(neighbors.walk(nodes, limits, seed).edge.tolist()) for seed in range(4000))
    assert chi_square_probability(counts, exact) > 0.01


@pytest.mark.skipif(sampler_name() == "numba", reason="neither pyg-lib nor torch-sparse is installed")
def test_the_samplers_of_pyg_have_the_same_probabilities(edge_index):
    loader = neighbor_loader(Data(edge_index=edge_index, num_nodes=6), (2, 1), torch.tensor([0]))
    assert isinstance(loader, NeighborLoader)
    counts = Counter(frozenset(loader([0]).e_id.tolist()) for _ in range(4000))
    assert chi_square_probability(counts, exact_distribution(edge_index, [0], (2, 1))) > 0.01


@pytest.mark.parametrize(("degree", "limit"), [(5, 2), (6, 4), (40, 1), (40, 39)])
def test_every_subset_is_equally_probable(degree, limit):
    neighbors = InNeighbors(torch.stack([torch.arange(1, degree + 1), torch.zeros(degree, dtype=torch.int64)]), 41)
    outcomes = dict.fromkeys(map(frozenset, combinations(range(degree), limit)), 1 / comb(degree, limit))
    start = torch.tensor([0])
    counts = Counter(frozenset(neighbors.walk(start, (limit,), seed).edge.tolist()) for seed in range(4000))
    assert chi_square_probability(counts, outcomes) > 0.01


def test_seeds_that_follow_each_other_and_nodes_that_do_are_independent():
    """Nodes 0 to 3 draw one of three edges each: all 81 outcomes are equally frequent, in one batch after another."""
    edge_index = torch.stack([torch.arange(12) + 4, torch.arange(12) // 3])
    neighbors = InNeighbors(edge_index, 16)
    drawn = [tuple(neighbors.walk(torch.arange(4), (1,), seed).edge.tolist()) for seed in range(8000)]
    exact = {tuple(3 * node + pick for node, pick in enumerate(_digits(number))): 1 / 81 for number in range(81)}
    assert chi_square_probability(Counter(drawn), exact) > 0.01
    pairs = Counter((one[0], other[0]) for one, other in zip(drawn[::2], drawn[1::2]))
    assert chi_square_probability(pairs, {(one, other): 1 / 9 for one in range(3) for other in range(3)}) > 0.01


def _digits(number):
    return [number // 3**place % 3 for place in range(4)]


def test_a_walk_is_a_part_of_the_graph(large):
    nodes = torch.tensor([3, 250, 0, 499])
    limits = (7, 4, 2)
    found = InNeighbors(large, 500).walk(nodes, limits, seed=5)
    assert torch.equal(found.node[:4], nodes)
    assert len(found.node.unique()) == len(found.node) == sum(found.num_sampled_nodes)
    assert torch.equal(torch.stack([found.node[found.row], found.node[found.col]]), large[:, found.edge])
    assert len(found.edge.unique()) == len(found.edge) == sum(found.num_sampled_edges)
    degree = large[1].bincount(minlength=500)
    first_node = first_edge = 0
    for step, limit in enumerate(limits):
        members = range(first_node, first_node + found.num_sampled_nodes[step])
        last_edge = first_edge + found.num_sampled_edges[step]
        expected = [number for number in members for _ in range(min(limit, int(degree[found.node[number]])))]
        assert found.col[first_edge:last_edge].tolist() == expected
        # Whoever is new in this step was reached by it.
        until = members.stop + found.num_sampled_nodes[step + 1]
        assert set(range(members.stop, until)) <= set(found.row[first_edge:last_edge].tolist())
        assert int(found.row[:last_edge].max()) < until
        first_node, first_edge = members.stop, last_edge


def test_all_neighbours_are_the_neighbourhood_of_so_many_steps(large):
    nodes = torch.tensor([17, 400])
    found = InNeighbors(large, 500).walk(nodes, (ALL, ALL))
    subset, _, _, edge_mask = k_hop_subgraph(nodes, 2, large, num_nodes=500)
    assert torch.equal(found.node.sort().values, subset)
    # PyG's function adds the edges of the nodes that are two steps away, if they lead to nodes that are there.
    inner = k_hop_subgraph(nodes, 1, large, num_nodes=500)[0]
    expected = torch.isin(large[1], inner) & edge_mask
    assert torch.equal(found.edge.sort().values, expected.nonzero().flatten())


def test_the_seed_and_the_node_alone_decide(large):
    neighbors = InNeighbors(large, 500)
    first, second, other = (neighbors.walk(torch.arange(20), (5, 5), seed) for seed in (1, 1, 2))
    assert torch.equal(first.edge, second.edge) and torch.equal(first.node, second.node)
    assert set(first.edge.tolist()) != set(other.edge.tolist())
    alone = neighbors.walk(torch.tensor([7]), (5, 5), 1)
    assert set(alone.edge.tolist()) < set(first.edge.tolist())


def test_a_repeated_node_draws_for_each_of_its_places(large):
    found = InNeighbors(large, 500).walk(torch.tensor([3, 9, 3]), (4,), 0)
    assert found.node[:3].tolist() == [3, 9, 3]
    assert found.col.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert torch.equal(found.edge[:4], found.edge[8:])


def test_a_graph_without_edges():
    found = InNeighbors(torch.empty(2, 0, dtype=torch.int64), 3).walk(torch.tensor([2, 0]), (4, ALL))
    assert found.node.tolist() == [2, 0]
    assert (found.num_sampled_nodes, found.num_sampled_edges) == ([2, 0, 0], [0, 0])


def test_pieces_are_small_and_hubs_go_alone(large):
    neighbors = InNeighbors(large, 500)
    nodes = torch.arange(500)
    degree = large[1].bincount(minlength=500)
    assert torch.equal(neighbors.degree().long(), degree) and int(degree.max()) > 300
    pieces = list(neighbors.pieces(nodes, 50, 300))
    assert torch.equal(torch.cat(pieces), nodes)
    assert all(len(piece) == 1 or (len(piece) <= 50 and degree[piece].sum() <= 300) for piece in pieces)
    # None could have taken the first node of the next.
    assert all(len(one) == 50 or degree[one].sum() + degree[other[0]] > 300 for one, other in pairwise(pieces))


def make_graph(edge_index, num_nodes):
    weight = torch.arange(edge_index.size(1)).float()
    return Data(x=torch.arange(num_nodes).float()[:, None], edge_index=edge_index, edge_weight=weight)


def test_a_loader_brings_every_node_once_with_its_features_and_weights(large):
    nodes = torch.arange(100, 400)
    graph = make_graph(large, 500)

    def epochs(seed):
        generator = torch.Generator().manual_seed(seed)
        loader = neighbor_loader(graph, (3, 2), nodes, generator=generator, batch_size=64, shuffle=True)
        assert isinstance(loader, NodeLoader)
        return [list(loader) for _ in range(2)]

    first, second = epochs(0)
    assert [batch.batch_size for batch in first] == [64, 64, 64, 64, 44]
    members = torch.cat([batch.n_id[: batch.batch_size] for batch in first])
    assert torch.equal(members.sort().values, nodes)
    for batch in first:
        assert torch.equal(batch.x.flatten().long(), batch.n_id)
        assert torch.equal(batch.n_id[batch.edge_index], large[:, batch.edge_weight.long()])
    assert not torch.equal(first[0].n_id, second[0].n_id)
    again = epochs(0)
    assert all(torch.equal(one.n_id, other.n_id) for one, other in zip(second, again[1]))


@pytest.mark.skipif(sampler_name() != "numba", reason="PyG's own samplers are installed")
def test_workers_draw_differently(large):
    """Both workers get the same batch, again and again."""
    graph = make_graph(large, 500)
    loader = neighbor_loader(graph, (3,), torch.zeros(40, dtype=torch.int64), batch_size=10, num_workers=2)
    drawn = [frozenset(batch.e_id.tolist()) for batch in loader]
    assert len(drawn) == len(set(drawn)) == 4


@pytest.mark.parametrize("flags", [(True, True), (True, False), (False, True), (False, False)])
def test_samplers_of_pyg_are_used_where_they_are_installed(edge_index, monkeypatch, flags):
    monkeypatch.setattr(pyg, "WITH_PYG_LIB", flags[0])
    monkeypatch.setattr(pyg, "WITH_TORCH_SPARSE", flags[1])
    expected = "pyg-lib" if flags[0] else "torch-sparse" if flags[1] else "numba"
    assert sampler_name() == expected
    loader = neighbor_loader(make_graph(edge_index, 6), (2, 1), torch.tensor([0]))
    assert isinstance(loader, NeighborLoader) == (expected != "numba")
    assert isinstance(loader.node_sampler, NumbaNeighborSampler) == (expected == "numba")


def test_input_that_cannot_be(edge_index):
    neighbors = InNeighbors(edge_index, 6)
    for wrong in ((), (0,), (3, -2)):
        with pytest.raises(InputError, match="neighbors must be whole numbers of at least 1, or -1 for all, got"):
            NumbaNeighborSampler(neighbors, wrong)
    for wrong in (-1, 6):
        with pytest.raises(InputError, match=rf"nodes must lie in \[0, 6\), got {wrong} to {wrong}"):
            neighbors.walk(torch.tensor([wrong]), (2,))
    assert len(NumbaNeighborSampler(neighbors, (2,)).sample_from_nodes(NodeSamplerInput(None, torch.tensor([0]))).row)


def without_compiled_packages(monkeypatch):
    for name in ("WITH_PYG_LIB", "WITH_TORCH_SPARSE"):
        monkeypatch.setattr(pyg, name, False)


def test_links_of_a_batch_have_what_two_layers_see(large, monkeypatch):
    """With all neighbours the ends of every link are where the whole graph puts them."""
    without_compiled_packages(monkeypatch)
    graph = Data(x=torch.randn(500, 4), edge_index=large)
    layers = [HKBlock(4, 4, 3).eval() for _ in range(2)]

    def ends(x, edge_index, pairs):
        x = lorentz.lift(x)
        for layer in layers:
            x = layer(x, edge_index)
        return x[pairs]

    links = large[:, torch.randperm(6000)[:90]]
    loader = link_neighbor_loader(graph, (ALL, ALL), links, edge_label=torch.arange(90), batch_size=40)
    assert type(loader) is LinkLoader
    seen = []
    for batch in loader:
        assert torch.equal(batch.n_id[batch.edge_label_index], links[:, batch.edge_label])
        expected = ends(graph.x, large, links[:, batch.edge_label])
        torch.testing.assert_close(
            ends(batch.x, batch.edge_index, batch.edge_label_index), expected, rtol=1e-4, atol=1e-5
        )
        seen.append(batch.edge_label)
    assert torch.cat(seen).tolist() == list(range(90))


def test_pairs_that_are_drawn_beside_links_are_labeled(large, monkeypatch):
    without_compiled_packages(monkeypatch)
    graph = Data(x=torch.randn(500, 4), edge_index=large)
    loader = link_neighbor_loader(
        graph, (5, 3), large[:, :100], batch_size=50, neg_sampling=NegativeSampling("binary", 2.0), shuffle=True
    )
    for batch in loader:
        assert batch.edge_label.tolist() == [1] * 50 + [0] * 100
        nodes = batch.n_id[batch.edge_label_index]
        known = set(map(tuple, large[:, :100].T.tolist()))
        assert all(tuple(pair) in known for pair in nodes[:, :50].T.tolist())
        assert sum(tuple(pair) in known for pair in nodes[:, 50:].T.tolist()) < 10
        sampled = batch.n_id[batch.edge_index]
        assert torch.equal(sampled, large[:, batch.e_id])


def test_the_generator_decides_what_is_drawn_for_links(large, monkeypatch):
    without_compiled_packages(monkeypatch)
    graph = Data(edge_index=large, num_nodes=500)

    def drawn(seed):
        generator = torch.Generator().manual_seed(seed)
        loader = link_neighbor_loader(graph, (5, 3), large[:, :100], batch_size=50, generator=generator)
        return [batch.e_id.tolist() for batch in loader]

    assert drawn(0) == drawn(0) != drawn(1)


def test_pygs_own_link_loader_is_taken_where_it_can_sample(large, monkeypatch):
    monkeypatch.setattr(pyg, "WITH_PYG_LIB", True)
    made = {}
    monkeypatch.setattr(
        LinkNeighborLoader, "__init__", lambda self, *given, **options: made.update(given=given, **options)
    )
    links = large[:, :10]
    assert type(link_neighbor_loader(Data(edge_index=large), (5, 3), links, batch_size=5)) is LinkNeighborLoader
    assert made["given"][1] == [5, 3] and made["given"][2] is links and made["batch_size"] == 5
    with pytest.raises(InputError, match="neighbors must be whole numbers"):
        link_neighbor_loader(Data(edge_index=large), (0,), links)
