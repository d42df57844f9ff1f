import pytest
import torch
from torch_geometric.data import Data

from hkconv.data import load
from hkconv.data.neighbor_sampling import ALL, InNeighbors, neighbor_loader
from hkconv.engine.settings import Settings
from hkconv.errors import InputError
from hkconv.models import HKN, create
from hkconv.nn import HNorm
from hkconv.tasks.layerwise import all_neighbor_logits, check_sampled, sampled_logits

# All levers of HKN that a sample of the graph will do for.
LEVERS = [
    {},
    {"mass": True, "reach": 2.0, "dropout": 0.0},
    {"norm": "layer", "points": "random", "readout": "last"},
    {"norm": "none", "hidden_act": "none", "learn_curvature": True, "curvature": -0.6},
    {"form": "paper"},
    {"form": "paper", "dropout": 0.5},
    {"form": "paper", "mass": True, "reach": 2.0},
    {"form": "paper", "relative": False, "hidden_act": "relu"},
    {"form": "paper", "relative": False, "points": "random", "norm": "layer"},
    {"form": "paper", "norm": "batch", "readout": "all", "learn_curvature": True, "curvature": -0.6},
]
both_forms = pytest.mark.parametrize("options", [{}, {"form": "paper"}], ids=["views", "paper"])


def hyperbolic(name="hkn", layers=2, **options):
    # Compiling the kernels takes longer than all these tests; docs/howto/mini-batches.md has them.
    options = {"backend": "reference", "kernel_size": 3, **options} if name == "hkn" else options
    return create(name, in_features=4, hidden_dim=5, num_classes=3, num_layers=layers, task="node", **options)


@pytest.fixture(params=[False, True], ids=["plain", "weighted"])
def graph(request) -> Data:
    """A node with hundreds of edges into it, others with a few, some with none."""
    generator = torch.Generator().manual_seed(3)
    source = torch.randint(200, (1500,), generator=generator)
    target = (180 * torch.rand(1500, generator=generator) ** 4).long()
    graph = Data(x=torch.randn(200, 4, generator=generator), edge_index=torch.stack([source, target]))
    graph.y = torch.randint(3, (200,), generator=generator)
    if request.param:
        graph.edge_weight = torch.rand(1500, generator=generator)
    return graph


def in_type(graph, dtype):
    found = graph.clone()
    found.x = graph.x.to(dtype)
    if graph.edge_weight is not None:
        found.edge_weight = graph.edge_weight.to(dtype)
    return found


def whole_logits(model, graph):
    with torch.no_grad():
        return model.eval()(graph.x, graph.edge_index, graph.edge_weight)


def trained_a_little(model, graph):
    """Norms have seen the data and nothing has the values that it starts with."""
    model.train()
    for _ in range(3):
        model(graph.x, graph.edge_index, graph.edge_weight)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "centers" not in name and "points" not in name:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


NETWORKS = [
    *(pytest.param("hkn", options, id="-".join(["hkn", *options])) for options in LEVERS),
    *(pytest.param(name, {}, id=name) for name in ("hgcn", "hybonet", "h2h-gcn")),
]


@pytest.mark.parametrize(("name", "options"), NETWORKS)
def test_layer_by_layer_gives_what_the_whole_graph_gives(graph, dtype, name, options):
    graph = in_type(graph, dtype)
    model = trained_a_little(hyperbolic(name, layers=3, **options).to(dtype), graph)
    neighbors = InNeighbors(graph.edge_index, 200)
    expected = whole_logits(model, graph)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    for edges_at_once in (100, 10_000):
        found = all_neighbor_logits(model.train(), graph, neighbors, edges_at_once=edges_at_once)
        torch.testing.assert_close(found, expected, **tolerance)
    # A hub, a node without neighbours, one twice.
    some = torch.tensor([0, 199, 77, 0])
    torch.testing.assert_close(all_neighbor_logits(model, graph, neighbors, some), expected[some], **tolerance)
    assert not found.requires_grad and not model.training


@both_forms
def test_on_real_data(real_data, options):
    graph = load("chameleon", root=real_data, num_splits=1).graph
    model = HKN(graph.x.size(1), 8, 5, kernel_size=3, backend="reference", **options)
    found = all_neighbor_logits(model, graph, InNeighbors(graph.edge_index, graph.num_nodes), edges_at_once=5000)
    torch.testing.assert_close(found, whole_logits(model, graph), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(("gcn", {}), ("gcnii", {}), ("mlp", {}), ("hkn-flat", {}), ("hkn", {"structure": True})),
        ("hkn", {"form": "paper", "structure": True}),
    ],
)
def test_what_cannot_go_layer_by_layer_takes_the_whole_graph(graph, name, options):
    options = {**options, "num_nodes": 200} if "structure" in options else options
    model = hyperbolic(name, dropout=0.5, **options)
    some = torch.tensor([5, 0])
    found = all_neighbor_logits(model, graph, InNeighbors(graph.edge_index, 200), some)
    torch.testing.assert_close(found, whole_logits(model, graph)[some])


@both_forms
def test_a_layer_sees_a_few_edges_at_a_time_and_only_what_is_asked_for(graph, monkeypatch, options):
    model = hyperbolic(**options)
    degree = graph.edge_index[1].bincount(minlength=200)
    seen = []

    def layer(number, points, edge_index, weight, targets):
        seen.append((number, edge_index.size(1), targets))
        return plain(number, points, edge_index, weight, targets)

    plain = model.layer
    monkeypatch.setattr(model, "layer", layer)
    neighbors = InNeighbors(graph.edge_index, 200)
    all_neighbor_logits(model, graph, neighbors, edges_at_once=60)
    assert len(seen) > 20
    assert all(edges <= 60 or targets == 1 for _, edges, targets in seen)
    for number in range(2):
        assert sum(edges for layer, edges, _ in seen if layer == number) == 1500
        assert sum(targets for layer, _, targets in seen if layer == number) == 200
    seen.clear()
    node = torch.tensor([170])
    all_neighbor_logits(model, graph, neighbors, node)
    first = torch.cat([graph.edge_index[0][graph.edge_index[1] == 170], node]).unique()
    assert seen == [(0, int(degree[first].sum()), len(first)), (1, int(degree[170]), 1)]


def one_batch(graph, num_neighbors, nodes, seed=0):
    generator = torch.Generator().manual_seed(seed)
    neighbors = InNeighbors(graph.edge_index, graph.num_nodes)
    graph.in_degree = neighbors.degree()
    loader = neighbor_loader(graph, num_neighbors, nodes, neighbors=neighbors, generator=generator)
    return loader(range(len(nodes)))


@pytest.mark.parametrize(("name", "options"), [*NETWORKS, *(pytest.param(n, {}, id=n) for n in ("gat", "graphsage"))])
def test_a_sample_of_all_neighbours_gives_what_the_whole_graph_gives(graph, dtype, name, options):
    graph = in_type(graph, dtype)
    if name in ("gat", "graphsage"):
        graph.edge_weight = None
        options = {"heads": 1} if name == "gat" else {}
    model = trained_a_little(hyperbolic(name, **options).to(dtype), graph).eval()
    nodes = torch.tensor([0, 199, 77, 30])
    batch = one_batch(graph, (ALL, ALL), nodes)
    tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(sampled_logits(model, batch), whole_logits(model, graph)[nodes], **tolerance)


@pytest.mark.parametrize(("name", "options"), NETWORKS)
def test_leaving_out_what_goes_nowhere_changes_no_answer(graph, name, options):
    model = trained_a_little(hyperbolic(name, **options), graph).eval()
    batch = one_batch(graph, (3, 2), torch.arange(0, 200, 9))
    assert batch.num_nodes > sum(batch.num_sampled_nodes[:2]) > batch.batch_size
    found = sampled_logits(model, batch)
    # As torch-sparse leaves it.
    del batch.num_sampled_nodes, batch.num_sampled_edges
    torch.testing.assert_close(found, sampled_logits(model, batch), rtol=1e-5, atol=1e-5)


@both_forms
def test_a_norm_over_the_batch_sees_targets_alone(graph, options):
    model = hyperbolic(layers=2, norm="batch", **options).train()
    seen = []
    norms = [module for module in model.modules() if isinstance(module, HNorm)]
    assert len(norms) == 2
    for norm in norms:
        norm.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))
    batch = one_batch(graph, (3, 2), torch.arange(0, 200, 9))
    sampled_logits(model, batch)
    assert seen == [sum(batch.num_sampled_nodes[:2]), batch.batch_size]


def test_dropout_is_one_for_both_ends_of_an_edge(graph):
    """With dropout the layers see the same points as sources and as targets, so a loop is still x - x."""
    loops = Data(x=graph.x[:50], edge_index=torch.arange(50).expand(2, -1).contiguous())
    model = hyperbolic(layers=1, dropout=0.5, form="paper").train()
    batch = one_batch(loops, (1,), torch.arange(50))
    found = sampled_logits(model, batch)
    torch.testing.assert_close(found, found[:1].expand_as(found))
    model = hyperbolic(layers=1, dropout=0.5).train()
    differences = []
    model.convs[0].conv.register_forward_hook(lambda *given: differences.append(given[-1]))
    sampled_logits(model, batch)
    torch.testing.assert_close(differences[0], differences[0][:1].expand_as(differences[0]))


@pytest.mark.parametrize("form", ["views", "paper"])
def test_a_few_of_many_neighbours_weigh_as_much_as_all(form):
    """Twelve neighbours that are all the same: three of them tell everything, but for how many there are."""
    graph = Data(x=torch.cat([torch.tensor([[1.0, 0, 2, 0]]), torch.ones(12, 4)]))
    graph.edge_index = torch.stack([torch.arange(1, 13), torch.zeros(12, dtype=torch.int64)])
    for weight in (None, torch.full((12,), 0.5)):
        graph.edge_weight = weight
        model = trained_a_little(
            hyperbolic(layers=1, form=form, mass=True, norm="none", hidden_act="none"), graph
        ).eval()
        batch = one_batch(graph, (3,), torch.tensor([0]))
        assert batch.edge_index.size(1) == 3
        expected = whole_logits(model, graph)[:1]
        torch.testing.assert_close(sampled_logits(model, batch), expected)
        fewer = whole_logits(model, Data(x=batch.x, edge_index=batch.edge_index, edge_weight=batch.edge_weight))[:1]
        assert not torch.allclose(fewer, expected, atol=1e-3)


@pytest.mark.parametrize("options", [{}, {"mass": True}, {"form": "paper"}, {"form": "paper", "mass": True}])
def test_halves_of_a_batch_give_what_the_batch_gives(graph, options):
    """With the same seed and as many neighbours in each layer: processes may share a batch between them."""
    model = trained_a_little(hyperbolic(**options), graph).eval()
    nodes = torch.arange(0, 180, 5)
    together = sampled_logits(model, one_batch(graph, (4, 4), nodes, seed=2))
    halves = [sampled_logits(model, one_batch(graph, (4, 4), half, seed=2)) for half in nodes.tensor_split(2)]
    torch.testing.assert_close(torch.cat(halves), together, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "options", "reason"),
    [
        ("hkn", {"structure": True, "num_nodes": 9}, "HKN, which needs the whole graph for structure, rows"),
        ("linkx", {"num_nodes": 9}, "LINKX, which needs the whole graph for rows of the adjacency matrix"),
        ("glognn++", {"num_nodes": 9}, "GloGNNPlusPlus, which"),
        ("geom-gcn", {}, "GeomGCN, which"),
        ("wrgat", {}, "WRGAT, which"),
        ("dir-gnn", {}, "DirGNN, which needs the whole graph for the edges out of a node"),
    ],
)
def test_what_needs_the_whole_graph_is_refused(name, options, reason):
    model = hyperbolic(name, **options)
    with pytest.raises(InputError, match=f"neighbors must be none for {reason}"):
        check_sampled(model, "node", Settings(neighbors=(5, 5)))
    check_sampled(model, "node", Settings())


def test_settings_that_samples_cannot_have():
    model = hyperbolic(layers=3)
    check_sampled(model, "node", Settings(neighbors=(5, 5, ALL)))
    for task, changes, message in (
        ("node", {"neighbors": (5, 5)}, "neighbors must have a number for each of the 3 layers, got 2"),
        ("graph", {}, "neighbors must be none for the graph task"),
        ("link", {}, "neighbors must be none for the link task"),
        ("node", {"capture": True}, "neighbors must be none for a captured training"),
    ):
        with pytest.raises(InputError, match=message):
            check_sampled(model, task, Settings(**{"neighbors": (5, 5, 5), **changes}))


@both_forms
def test_a_repeated_node_gets_its_answer_each_time(graph, options):
    """As splits of the paper's code have them; see OverlappingSplit."""
    found = sampled_logits(hyperbolic(**options).eval(), one_batch(graph, (4, 4), torch.tensor([1, 1, 30, 1])))
    torch.testing.assert_close(found[[1, 3]], found[[0, 0]])
    assert not torch.allclose(found[2], found[0])
