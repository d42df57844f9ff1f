import torch
from heterophily_cases import (
    assert_equivariant,
    fitted_accuracy,
    random_graph,
)
from hyperbolic_cases import close, randomized

from hkconv.data import load
from hkconv.models import GCN
from hkconv.models.baselines.geom_gcn import VIRTUAL_NODES, GeomGCN, structural_neighborhood
from hkconv.models.baselines.isomap import isomap
from hkconv.models.baselines.simple_graph import simple_graph


def literal_neighbourhood(edge_index, places):
    """For each virtual node and node, the nodes that are summed: in the graph, in the plane, and itself."""
    nodes = len(places)
    linked = {(int(j), int(i)) for j, i in edge_index.T if j != i}
    squares = sorted((places[j] - places[i]).square().sum().item() for j in range(nodes) for i in range(j))
    radius = squares[(len(linked) + 1) // 2 - 1]
    pairs = [(j, i) for j in range(nodes) for i in range(nodes) if j != i]
    near = {(j, i) for j, i in pairs if (places[j] - places[i]).square().sum() <= radius}
    members = [[[] for _ in range(nodes)] for _ in range(VIRTUAL_NODES)]
    for first, pairs in ((0, linked), (4, near)):
        for j, i in pairs:
            left, below = places[j] < places[i]
            members[first + 2 * int(left) + int(below)][i].append(j)
    for i in range(nodes):
        members[8][i].append(i)
    return members


def literal_network(model, x, members):
    """The equations of the paper, virtual node by virtual node, in float64."""
    nodes = x.size(0)
    degree = [sum(len(members[r][i]) for r in range(VIRTUAL_NODES)) for i in range(nodes)]
    h = x.double()
    for number, weight in enumerate(model.network.weights):
        out = []
        for v in range(nodes):
            virtual = [
                sum(((degree[v] * degree[u]) ** -0.5 * h[u] for u in members[r][v]), torch.zeros_like(h[v]))
                for r in range(VIRTUAL_NODES)
            ]
            out.append(torch.cat(virtual) @ weight.detach().double().flatten(0, 1))
        h = torch.stack(out)
        h = h.relu() if number < len(model.network.weights) - 1 else h
    return h


def test_equals_its_equations(dtype, generator):
    edge_index = random_graph(generator, 20, 30)[:, 3:]
    x = torch.randn(20, 3, generator=generator).to(dtype)
    places = torch.from_numpy(isomap(simple_graph(*edge_index, 20)))
    model = randomized(GeomGCN(3, 4, 2, num_layers=2, dropout=0.5).to(dtype), generator)
    expected = literal_network(model, x, literal_neighbourhood(edge_index, places))
    torch.testing.assert_close(model(x, edge_index).double(), expected, **close(dtype))


def test_loops_and_repeats_do_not_count(dtype, generator):
    edge_index = random_graph(generator)
    more = torch.cat([edge_index, edge_index[:, :5], torch.tensor([[0, 3], [0, 3]])], dim=1)
    model = GeomGCN(3, 4, 2, num_layers=2).to(dtype).eval()
    x = torch.randn(30, 3, generator=generator).to(dtype)
    torch.testing.assert_close(model(x, more), model(x, edge_index))


def test_learns_which_side_a_neighbour_is_on(generator):
    """On a path, the class is the feature of one of the two neighbours: GCN, which sums them, is right for 3 in 4."""
    nodes = 200
    chain = torch.stack([torch.arange(nodes - 1), torch.arange(1, nodes)])
    edge_index = torch.cat([chain, chain.flip(0)], dim=1)
    x = torch.randint(2, (nodes, 1), generator=generator) * 2.0 - 1
    y = (x.roll(1, 0).squeeze(-1) > 0).long()
    train = torch.rand(nodes, generator=generator) < 0.5
    assert fitted_accuracy(GeomGCN(1, 8, 2, num_layers=2), x, edge_index, y, train) > 0.95
    assert fitted_accuracy(GCN(1, 8, 2, num_layers=2), x, edge_index, y, train) < 0.85


def test_hears_nodes_that_no_edge_joins(generator):
    """Two nodes in one place of the plane hear each other."""
    edge_index = random_graph(generator, 20, 40)
    twins = torch.tensor([[20, 21, 0, 0], [0, 0, 20, 21]])
    edge_index = torch.cat([edge_index, twins], dim=1)
    edges = structural_neighborhood(edge_index, 22).edges
    pairs = {(j % 22, i % 22) for j, i in zip(edges.source.tolist(), edges.target.tolist()) if 4 <= j // 22 < 8}
    assert {(20, 21), (21, 20)} <= pairs


def test_is_permutation_equivariant(dtype, generator):
    assert_equivariant(GeomGCN(3, 8, 2, num_layers=2), generator, dtype)


def test_real_graph_has_as_many_neighbours_in_the_plane_as_in_the_graph(real_data):
    graph = load("chameleon", root=real_data, num_splits=1).graph
    found = structural_neighborhood(graph.edge_index, graph.num_nodes)
    virtual = (found.edges.source // graph.num_nodes).bincount(minlength=VIRTUAL_NODES)
    linked, near, own = virtual[:4].sum(), virtual[4:8].sum(), virtual[8]
    assert own == graph.num_nodes and linked <= graph.edge_index.size(1)
    assert linked <= near < 1.01 * linked
    assert (virtual > 0.05 * linked / 4).all()
