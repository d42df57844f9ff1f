"""What the tests of the hyperbolic baselines share: a small graph, points, and tasks that can be learned in seconds."""

import torch
from torch.nn import functional as F

import hkconv
from hkconv.data import load
from hkconv.geometry import lorentz
from hkconv.testing import assert_on_manifold

# A self loop, a double edge, and node 4 without neighbours.
EDGES = torch.tensor([[0, 1, 2, 0, 3, 1, 1], [1, 2, 0, 2, 3, 0, 0]])
NODES = 5


def points(generator, dtype, dim=3, nodes=NODES, radius=None, curvature=-1.0):
    """Random points not far from the origin, or all at the distance ``radius`` from it."""
    tangent = 0.5 * torch.randn(nodes, dim, generator=generator, dtype=torch.float64)
    if radius is not None:
        tangent = radius * F.normalize(tangent, dim=-1)
    return lorentz.lift(lorentz.exp0(F.pad(tangent, (1, 0)), curvature)[:, 1:].to(dtype), curvature)


def randomized(layer, generator):
    """The layer with every parameter, biases too, away from its start."""
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.5 * torch.randn(parameter.shape, generator=generator).to(parameter))
    return layer.eval()


def close(dtype):
    """How near float64 a layer must come."""
    tolerance = 2e-5 if dtype == torch.float32 else 1e-10
    return {"rtol": tolerance, "atol": tolerance}


def assert_equals_literal(layer, literal_layer, curvature, dtype, generator):
    """A layer from three dimensions gives what its equations do in float64, with weights of edges and without."""
    x = points(generator, dtype, curvature=curvature)
    weight = torch.rand(EDGES.size(1), generator=generator).to(dtype)
    for given, same in ((weight, weight), (None, torch.ones_like(weight))):
        expected = literal_layer(layer, x, same, curvature)
        torch.testing.assert_close(layer(x, EDGES, given).double(), expected, **close(dtype))


def assert_finite_with_gradients(layer, x, edge_index):
    """A step from points to a loss and back meets no NaN, and the result is on the manifold."""
    x = x.clone().requires_grad_()
    out = layer(lorentz.lift(x[:, 1:]), edge_index)
    assert_on_manifold(out)
    lorentz.dist(out, out.roll(1, 0)).sum().backward()
    assert torch.isfinite(x.grad).all()
    assert all(torch.isfinite(parameter.grad).all() for parameter in layer.parameters())


def neighbours(node, weight):
    """Sources and weights of the edges into a node, and the node itself with weight 1."""
    found = [(int(j), w) for j, i, w in zip(*EDGES, weight) if i == node]
    return [*found, (node, torch.ones((), dtype=torch.float64))]


def learn(model, loss, steps=60, lr=0.02):
    """Train for a few steps; returns the first and the last loss."""
    optimizer = hkconv.RiemannianAdam(model.parameters(), lr=lr)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        losses.append(loss(model))
        losses[-1].backward()
        optimizer.step()
    return losses[0].item(), losses[-1].item()


def tree_accuracy(model_class):
    """Test accuracy on the tree of a fresh model, and of the majority class."""
    tree = load("tree", num_splits=1)
    graph, split = tree.graph, tree.splits[0]
    model = model_class(tree.num_features, 8, tree.num_classes, num_layers=2)
    learn(model, lambda m: F.cross_entropy(m(graph.x, graph.edge_index)[split.train], graph.y[split.train]))
    with torch.no_grad():
        right = model.eval()(graph.x, graph.edge_index).argmax(1) == graph.y
    majority = graph.y[split.train].bincount().argmax()
    return right[split.test].float().mean(), (graph.y[split.test] == majority).float().mean()


def graph_losses(model_class, generator):
    """First and last loss of telling 20 graphs with large features from 20 with small ones."""
    y = torch.arange(40) % 2
    batch = torch.arange(40).repeat_interleave(NODES)
    x = (1 + y[batch].float()).unsqueeze(-1) * torch.randn(40 * NODES, 4, generator=generator).abs()
    edge_index = (EDGES.unsqueeze(1) + NODES * torch.arange(40).view(1, -1, 1)).flatten(1)
    model = model_class(4, 8, 2, num_layers=2, task="graph")
    return learn(model, lambda m: F.cross_entropy(m(x, edge_index, batch=batch, batch_size=40), y))


def link_losses(model_class, generator):
    """First and last loss of telling pairs within one of two clusters from pairs across them."""
    x = torch.cat([torch.randn(20, 4, generator=generator), 2 + torch.randn(20, 4, generator=generator)])
    pairs = torch.randint(40, (2, 200), generator=generator)
    linked = ((pairs[0] < 20) == (pairs[1] < 20)).float()
    edge_index = pairs[:, linked.bool()][:, :50]
    model = model_class(4, 8, None, num_layers=2, task="link")
    return learn(model, lambda m: F.binary_cross_entropy_with_logits(m(x, edge_index, pairs=pairs), linked))


def assert_every_task_trains(model_class, generator):
    """Each task gives logits of its shape, of many nodes and of a single one, and a gradient to all parameters."""
    for task, shape in (("node", (NODES, 3)), ("graph", (2, 3)), ("link", (EDGES.size(1),))):
        model = model_class(4, 6, 3, num_layers=2, task=task)
        x = torch.randn(NODES, 4, generator=generator)
        out = model(x, EDGES, batch=torch.tensor([0, 0, 0, 1, 1]), batch_size=2, pairs=EDGES)
        assert out.shape == shape
        (out * torch.randn(shape, generator=generator)).sum().backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad.isfinite().all() and parameter.grad.any(), (task, name)
        model.zero_grad()
        alone = model(x[:1], EDGES[:, :0], batch=torch.zeros(1, dtype=torch.long), batch_size=1, pairs=EDGES[:, :1] * 0)
        alone.sum().backward()
        assert alone.isfinite().all()
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
