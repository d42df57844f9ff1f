import copy

import pytest
import torch
from baseline_cases import BATCH, PAIRS, batch_norm, called, randomized
from hyperbolic_cases import (
    EDGES,
    NODES,
)

import hkconv
from hkconv.data import load
from hkconv.engine.settings import Settings
from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.models import HKN, FlatBlock, FlatHKN
from hkconv.tasks.fitting import fit
from hkconv.testing import assert_permutation_equivariant

KERNEL_WEIGHTS = ("convs.0.weight", "convs.1.weight")


def made(task="node", num_layers=2, **changes):
    return FlatHKN(3, 8, 2, num_layers=num_layers, task=task, **changes)


def exact(generator, *shape):
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


def literal_shares(block, difference):
    """How much of a difference each kernel point takes."""
    distances = [sum((difference - point) ** 2) ** 0.5 for point in block.points]
    return [distance / sum(distances) for distance in distances]


def literal_views(block, x, edges, weight, attr=None):
    """The three views of every node, neighbour by neighbour and kernel point by kernel point."""
    moves = x.new_zeros(2, edges.size(1), x.size(1)) if attr is None else attr @ block.edge_map.mT
    nothing = x.new_zeros(block.out_dim)
    found = []
    for i in range(len(x)):
        into = [(j, w, *both) for j, target, w, *both in zip(*edges, weight, *moves) if target == i]
        total = sum(w for _, w, *_ in into)
        by_kernel, neighbors = nothing, nothing
        for j, w, move, other in into:
            difference = x[j] - x[i] + move
            for share, W, b in zip(literal_shares(block, difference), block.weight, block.bias):
                by_kernel = by_kernel + w / total * share * (W @ difference + b)
            neighbors = neighbors + w / total * (block.neighbors.weight @ (x[j] + other) + block.neighbors.bias)
        found.append(torch.stack([by_kernel, neighbors, block.node.weight @ x[i] + block.node.bias]))
    return torch.stack(found)


def literal_block(block, x, edges, weight):
    mixed = []
    for views in literal_views(block, x, edges, weight):
        is_open = torch.stack([torch.sigmoid(v @ y) for v, y in zip(block.gate_weight, views)])
        gates = torch.softmax(3 * (is_open @ (torch.eye(3, dtype=x.dtype) + block.gate_mix)), dim=0)
        mixed.append(sum(gate * view for gate, view in zip(gates, views)))
    return batch_norm(block.norm, torch.stack(mixed)).relu()


def literal_layers(model, x, edges, weight):
    layers = [x @ model.embedding.weight.T + model.embedding.bias]
    for conv in model.convs:
        layers.append(literal_block(conv, layers[-1], edges, weight))
    return layers


def literal_logits(readout, rows):
    distances = [[((row - center) ** 2).sum() ** 0.5 for center in readout.centers] for row in rows]
    return -torch.stack([torch.stack(row) for row in distances]) / readout.log_temperature.exp()


def exact_model(generator, task="node"):
    return randomized(made(task).double(), generator)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kernel_size", [1, 4])
def test_a_block_equals_its_equations(training, kernel_size, generator):
    """With a self loop, a double edge and a node without neighbours."""
    block = randomized(FlatBlock(3, 5, kernel_size).double(), generator).train(training)
    x, weight = exact(generator, NODES, 3), torch.rand(EDGES.size(1), generator=generator, dtype=torch.float64)
    # The distance of a loop to a single point, the origin, is 0.
    edges, weight = (EDGES, weight) if kernel_size > 1 else (EDGES[:, :4], weight[:4])
    torch.testing.assert_close(block(x, edges, weight), literal_block(block, x, edges, weight))
    torch.testing.assert_close(block(x, edges), literal_block(block, x, edges, torch.ones_like(weight)))


def test_attributes_move_differences_and_neighbours(dtype, generator):
    block = randomized(FlatBlock(3, 5, edge_dim=2).to(dtype), generator)
    x, attr = (torch.randn(n, d, generator=generator).to(dtype) for n, d in ((NODES, 3), (EDGES.size(1), 2)))
    weight = torch.rand(EDGES.size(1), generator=generator).to(dtype)
    expected = literal_views(block, x, EDGES, weight, attr)
    for edges in (EDGES, hkconv.neighbors(EDGES, NODES)):
        torch.testing.assert_close(block.views(x, edges, weight, attr), expected, rtol=2e-5, atol=2e-5)
    fresh, plain = made("graph", edge_dim=2).to(dtype), made("graph").to(dtype)
    fresh.load_state_dict(plain.state_dict(), strict=False)
    graphs = {"batch": BATCH, "batch_size": 2}
    torch.testing.assert_close(
        fresh(x, EDGES, edge_attr=attr, **graphs), plain(x, EDGES, **graphs), rtol=1e-4, atol=1e-4
    )
    with pytest.raises(InputError, match="edge_attr must be left out where edge_dim is None"):
        plain(x, EDGES, edge_attr=attr, **graphs)


def test_a_float32_block_is_near_its_equations(generator):
    block = randomized(FlatBlock(3, 5), generator)
    x, weight = torch.randn(NODES, 3, generator=generator), torch.rand(EDGES.size(1), generator=generator)
    expected = literal_block(copy.deepcopy(block).double(), x.double(), EDGES, weight.double())
    torch.testing.assert_close(block(x, EDGES, weight).double(), expected, rtol=2e-5, atol=2e-5)


def test_nodes_and_graphs_are_read_off_every_layer(generator):
    x, weight = exact(generator, NODES, 3), torch.rand(EDGES.size(1), generator=generator, dtype=torch.float64)
    nodes, graphs = exact_model(generator), exact_model(generator, "graph")
    layers = literal_layers(nodes, x, EDGES, weight)
    expected = sum(literal_logits(readout, layer) for readout, layer in zip(nodes.readouts, layers, strict=True))
    torch.testing.assert_close(nodes(x, EDGES, weight), expected)
    means = [
        torch.stack([layer[BATCH == 0].mean(0), layer[BATCH == 1].mean(0)])
        for layer in literal_layers(graphs, x, EDGES, weight)
    ]
    expected = sum(literal_logits(readout, mean) for readout, mean in zip(graphs.readouts, means, strict=True))
    torch.testing.assert_close(graphs(x, EDGES, weight, batch=BATCH, batch_size=2), expected)


def test_links_are_read_off_every_layer(generator):
    model, x = exact_model(generator, "link"), exact(generator, NODES, 3)
    expected = torch.zeros(PAIRS.size(1), dtype=torch.float64)
    layers = literal_layers(model, x, EDGES, torch.ones(EDGES.size(1)))
    for readout, layer in zip(model.readouts, layers, strict=True):
        square = torch.stack([((layer[u] - layer[v]) ** 2).sum() for u, v in PAIRS.T])
        expected = expected + (readout.radius - square) / readout.log_temperature.exp()
    torch.testing.assert_close(called(model, x), expected)


def test_kernel_points_are_as_far_from_the_origin_as_hkns():
    hyperbolic = hkconv.kernel_points(4, 8)
    flat = FlatBlock(8, 8).double().points
    origin = lorentz.origin(8, dtype=torch.float64)
    torch.testing.assert_close(flat.norm(dim=1), lorentz.dist(hyperbolic, origin), rtol=1e-6, atol=1e-6)
    cosine = torch.cosine_similarity(flat, hyperbolic[:, 1:])
    torch.testing.assert_close(cosine, torch.ones_like(cosine), rtol=1e-6, atol=1e-6)


def test_starts_as_hkn():
    flat, curved = FlatHKN(3, 8, 2, num_layers=2), HKN(3, 8, 2, num_layers=2, form="views")
    for readout, theirs in zip(flat.readouts, [*curved.early_readouts, curved], strict=True):
        torch.testing.assert_close(readout.log_temperature, theirs.log_temperature)
    links, theirs = FlatHKN(3, 8, None, num_layers=2, task="link").readouts[0], hkconv.nn.FermiDirac()
    assert (links.radius, links.log_temperature) == (theirs.radius, theirs.log_temperature)
    assert torch.equal(flat.convs[0].norm.module.weight, curved.convs[0].norm.norm.module.weight)
    gates = flat.convs[0].gates(torch.randn(NODES, 3, 8))
    torch.testing.assert_close(gates, torch.full_like(gates, 1 / 3))


def test_edges_without_weight_are_no_edges_unless_there_are_no_others(dtype, generator):
    block = randomized(FlatBlock(3, 4).to(dtype), generator)
    x = torch.randn(NODES, 3, generator=generator).to(dtype)
    weight = torch.tensor([1, 1, 1, 0, 1, 0, 2], dtype=dtype)
    torch.testing.assert_close(block(x, EDGES, weight), block(x, EDGES[:, weight > 0], weight[weight > 0]))
    torch.testing.assert_close(block(x, EDGES, torch.zeros_like(weight)), block(x, EDGES))


def test_a_node_without_neighbours_has_its_own_view_alone(dtype, generator):
    block = randomized(FlatBlock(3, 4).to(dtype), generator)
    x = torch.randn(NODES, 3, generator=generator).to(dtype)
    alone = block.views(x, EDGES)[4]
    assert not alone[:2].any()
    torch.testing.assert_close(alone[2], block.node(x[4]))
    views = block.views(x, EDGES[:, :0])
    assert not views[:, :2].any() and torch.equal(views[:, 2], block.node(x))


def test_other_forms_of_edges_give_the_same(dtype, generator):
    model = randomized(made().to(dtype), generator)
    x, weight = torch.randn(NODES, 3, generator=generator).to(dtype), torch.rand(7, generator=generator).to(dtype)
    expected = model(x, EDGES, weight)
    torch.testing.assert_close(model(x, hkconv.neighbors(EDGES, NODES), weight), expected)
    matrix = torch.sparse_coo_tensor(EDGES.flip(0), weight, (NODES, NODES))
    torch.testing.assert_close(model(x, matrix), expected)


def test_numbers_of_nodes_do_not_matter(dtype, generator):
    x = torch.randn(NODES, 3, generator=generator).to(dtype)
    assert_permutation_equivariant(FlatBlock(3, 4).to(dtype), x, EDGES)
    assert_permutation_equivariant(made().to(dtype).eval(), x, EDGES)


def test_gradients_are_those_of_the_block(generator):
    block = randomized(FlatBlock(3, 4).double(), generator)
    x = exact(generator, NODES, 3).requires_grad_()
    weight = torch.rand(EDGES.size(1), generator=generator, dtype=torch.float64, requires_grad=True)
    # Without the ReLU, which has none at 0.
    probe = exact(generator, NODES, 3, 4)
    assert torch.autograd.gradcheck(lambda x, w: (probe * block.views(x, EDGES, w)).sum(), (x, weight))
    readout = exact_model(generator).readouts[0]
    assert torch.autograd.gradcheck(lambda z: readout(z, None, None, None), exact(generator, 4, 8).requires_grad_())


@pytest.mark.parametrize("kernel_size", [1, 4, 6])
@pytest.mark.parametrize("spread", [0, 1e-25, 1e-12, 1e-3, 1e6])
def test_gradient_is_finite_where_neighbours_coincide(kernel_size, spread, dtype, generator):
    """At each other's place, and at that of a kernel point."""
    block = FlatBlock(3, 4, kernel_size).to(dtype)
    x = spread * torch.randn(NODES, 3, generator=generator).to(dtype)
    x[1] = x[0] + block.points[-1]
    x.requires_grad_()
    out = block(x, EDGES)
    (out * torch.randn(out.shape, generator=generator)).sum().backward()
    assert out.isfinite().all() and x.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in block.parameters())


def test_gradient_is_finite_at_a_centre(dtype):
    readout = made().to(dtype).readouts[0]
    x = readout.centers.detach().clone().requires_grad_()
    logits = readout(x, None, None, None)
    assert not logits.diagonal().any()
    logits.diagonal().sum().backward()
    assert not x.grad.any() and readout.centers.grad.isfinite().all()


def of_tree(dataset):
    classes = None if dataset.task == "link" else dataset.num_classes
    sizes = {"in_features": dataset.num_features, "hidden_dim": 8, "num_classes": classes, "num_layers": 2}
    return hkconv.models.create("hkn-flat", dropout=0.2, task=dataset.task, **sizes)


@pytest.mark.parametrize("task", ["node", "link"])
def test_a_training_takes_its_steps(task):
    dataset = load("tree", task=task, num_splits=1)
    result = fit(of_tree(dataset), dataset, dataset.splits[0], Settings(epochs=2))
    assert result.guard is None and result.epochs == 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("task", ["node", "link"])
def test_a_captured_training_takes_its_steps(task):
    dataset = load("tree", task=task, num_splits=1)
    result = fit(of_tree(dataset).cuda(), dataset, dataset.splits[0], Settings(epochs=20, capture=True))
    assert result.guard is None
    assert result.history[-1].loss < result.history[0].loss


@pytest.mark.parametrize("task", ["node", "graph", "link"])
def test_resets_to_a_fresh_start(task, generator):
    model, fresh = randomized(made(task), generator), made(task)
    model.reset_parameters()
    drawn = ("embedding.weight", "embedding.bias", "neighbors.weight", "node.weight", "centers", *KERNEL_WEIGHTS)
    for (name, value), expected in zip(model.state_dict().items(), fresh.state_dict().values(), strict=True):
        assert torch.equal(value, expected) != name.endswith(drawn), name


def test_works_in_half_precision(generator):
    model, x = made(), torch.randn(NODES, 3, generator=generator)
    with torch.autocast("cpu", torch.bfloat16):
        halved = model(x, EDGES, torch.ones(EDGES.size(1), dtype=torch.bfloat16))
    assert halved.dtype == torch.float32
    torch.testing.assert_close(halved, model(x, EDGES), rtol=0.1, atol=0.5)


def test_repr():
    assert str(FlatHKN(3, 4, 2, num_layers=1)) == (
        "FlatHKN(node, Linear(in_features=3, out_features=4, bias=True), FlatBlock(4, 4, kernel_size=4))"
    )
