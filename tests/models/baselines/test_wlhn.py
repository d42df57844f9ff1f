import copy
import math
from itertools import pairwise

import pytest
import torch
from hyperbolic_cases import (
    EDGES,
    NODES,
    close,
    learn,
    neighbours,
    randomized,
)
from torch.nn import functional as F
from torch_geometric.utils import erdos_renyi_graph, to_undirected

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.models.baselines.wlhn import WLHN, place_child
from hkconv.testing import assert_on_manifold, assert_permutation_equivariant


def invert(x, z):
    """The inversion of the Poincaré ball that swaps the point z and the origin."""
    centre = z / (z @ z)
    return centre + (centre @ centre - 1) / ((x - centre) @ (x - centre)) * (x - centre)


def swap(v, p, q):
    """The reflection that swaps two unit vectors."""
    normal = (q - p) / torch.linalg.norm(q - p)
    return v - 2 * (normal @ v) * normal


def literal_features(model, x, weight):
    """What plays the colours, one tensor for each round, node by node."""
    h = [F.relu(model.linear.weight @ row + model.linear.bias) for row in x]
    rounds = [torch.stack(h)]
    for update in model.updates:
        norm = update.norms[0].module
        new = []
        for node in range(NODES):
            hidden = update.lins[0](sum(w * h[j] for j, w in neighbours(node, weight))).relu()
            hidden = (hidden - norm.running_mean) / torch.sqrt(norm.running_var + norm.eps) * norm.weight + norm.bias
            new.append(F.relu(update.lins[1](hidden)))
        h = new
        rounds.append(torch.stack(h))
    return rounds


def literal_tree(rounds, tau):
    """Sarkar's construction in the Poincaré ball, node by node."""
    q = torch.full_like(rounds[0][0], -1 / math.sqrt(rounds[0].size(1)))
    leaves = []
    for history in zip(*rounds):
        child = [math.tanh(tau / 2) * h / torch.linalg.norm(h) for h in history]
        parent, z = torch.zeros_like(child[0]), child[0]
        for c in child[1:]:
            p = invert(parent, z)
            parent, z = z, invert(swap(c, p / torch.linalg.norm(p), q), z)
        leaves.append(z)
    return torch.stack(leaves)


def trained_model(generator, dtype=torch.float64, tau=0.8, **options):
    """A model with statistics of its own in its normalisation, and features that never vanish all at once."""
    model = WLHN(4, 12, 3, tau=tau, **{"num_layers": 3, **options})
    randomized(model, generator)
    with torch.no_grad():
        for linear in (model.linear, *(update.lins[-1] for update in model.updates)):
            linear.bias.add_(1.0)
    model.train()(torch.randn(60, 4, generator=generator), EDGES, batch=torch.zeros(60).long(), pairs=EDGES)
    return model.to(dtype).eval()


def test_equals_its_equations(dtype, generator):
    model = trained_model(generator, dtype)
    exact = copy.deepcopy(model).double()
    x = torch.randn(NODES, 4, generator=generator).to(dtype)
    for weight in (None, torch.rand(EDGES.size(1), generator=generator).to(dtype)):
        given = torch.ones(EDGES.size(1)) if weight is None else weight
        leaves = literal_tree(literal_features(exact, x.double(), given.double()), 0.8)
        found = model.encode(x, EDGES, weight)
        assert_on_manifold(found)
        torch.testing.assert_close(lorentz.to_poincare(found).double(), leaves, **close(dtype))
        length = torch.linalg.norm(leaves, dim=1, keepdim=True)
        logits = exact.classifier(2 * torch.atanh(length) * leaves / length)
        tolerance = 20 * close(dtype)["atol"]
        torch.testing.assert_close(model(x, EDGES, weight).double(), logits, rtol=tolerance, atol=tolerance)


def test_graph_logits_are_those_of_the_sum(dtype, generator):
    model = trained_model(generator, dtype, task="graph")
    x = torch.randn(NODES, 4, generator=generator).to(dtype)
    tangent = lorentz.log0(model.encode(x, EDGES))[:, 1:]
    sums = torch.stack([tangent[:2].sum(0), torch.zeros_like(tangent[0]), tangent[2:].sum(0)])
    found = model(x, EDGES, batch=torch.tensor([0, 0, 2, 2, 2]), batch_size=3)
    torch.testing.assert_close(found, model.classifier(sums))


def rounds_of(model, x, edge_index):
    """The points of all nodes after 0, 1, ... rounds."""
    found = []
    for number in range(len(model.updates) + 1):
        shorter = copy.copy(model)
        shorter._modules = {**model._modules, "updates": model.updates[:number]}
        found.append(shorter.encode(x, edge_index))
    return found


def colours(labels, edge_index, rounds):
    """Weisfeiler and Leman, with nested tuples for colours."""
    found = [labels]
    for _ in range(rounds):
        around = [sorted(labels[j] for j, i in edge_index.T.tolist() if i == node) for node in range(len(labels))]
        labels = [(own, tuple(others)) for own, others in zip(labels, around)]
        found.append(labels)
    return found


def test_points_are_the_tree_of_colours(generator):
    model = trained_model(generator)
    torch.manual_seed(3)
    edge_index = erdos_renyi_graph(24, 0.08)
    label = torch.randint(2, (24,), generator=generator)
    x = F.one_hot(label, 4).double()
    points = rounds_of(model, x, edge_index)
    for now, names in zip(points, colours(label.tolist(), edge_index, 3)):
        apart = lorentz.dist(now.unsqueeze(1), now) > 1e-6
        assert torch.equal(apart, torch.tensor([[a != b for b in names] for a in names]))
    assert len(set(names)) > 8
    tau = torch.full((24,), 0.8, dtype=torch.float64)
    torch.testing.assert_close(lorentz.dist(points[0], lorentz.origin(12, dtype=torch.float64)), tau)
    for parent, child in pairwise(points):
        torch.testing.assert_close(lorentz.dist(parent, child), tau)
    for grandparent, grandchild in zip(points, points[2:]):
        # At a right angle the hyperbolic theorem of Pythagoras would hold.
        assert (lorentz.dist(grandparent, grandchild).cosh() > tau.cosh() ** 2).all()


def test_a_graph_does_not_depend_on_its_batch_mates(generator):
    model = trained_model(generator, task="graph")
    x = torch.randn(2 * NODES, 4, generator=generator, dtype=torch.float64)
    both = model(x, torch.cat([EDGES, EDGES + NODES], 1), batch=torch.arange(2 * NODES) // NODES, batch_size=2)
    torch.testing.assert_close(both[1:], model(x[NODES:], EDGES))


def test_gradients_flow_through_the_construction(generator):
    def place(h, first):
        point = lorentz.exp0(F.pad(F.normalize(first), (1, 0)))
        direction = F.normalize(h)
        child = place_child(direction, point, lorentz.origin(3, dtype=torch.float64).expand_as(point), 0.8)
        return place_child(direction, child, point, 0.8)

    h, first = torch.rand(2, 4, 3, generator=generator, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(place, (h, first))


def test_parent_already_in_its_place_needs_no_turn(dtype):
    """On the axis of the orthant the construction goes along a line; in one dimension it can do nothing else."""
    for dim in (1, 4):
        direction = torch.full((1, dim), dim**-0.5, dtype=dtype)
        parent = lorentz.origin(dim, dtype=dtype).expand(1, -1)
        point = lorentz.exp0(F.pad(direction, (1, 0)))
        for level in range(2, 5):
            parent, point = point, place_child(direction, point, parent, 1.0)
            expected = lorentz.exp0(F.pad(level * direction, (1, 0)))
            assert lorentz.dist(point, expected).max() < (1e-4 if dtype == torch.float32 else 1e-10)


def test_colour_without_direction_goes_straight_on(dtype):
    model = WLHN(3, 4, 2, num_layers=2).to(dtype)
    with torch.no_grad():
        for linear in (model.linear, *(update.lins[-1] for update in model.updates)):
            linear.weight.zero_()
            linear.bias.fill_(-1.0)
    x = torch.ones(NODES, 3, dtype=dtype, requires_grad=True)
    points = model.encode(x, EDGES)
    expected = lorentz.exp0(torch.tensor([0, 1.5, 1.5, 1.5, 1.5], dtype=dtype)).expand_as(points)
    torch.testing.assert_close(points, expected, rtol=1e-5, atol=1e-5)
    points.sum().backward()
    assert x.grad.isfinite().all()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_float32_is_right_for_deep_trees(generator):
    model = trained_model(generator, torch.float32, tau=2.0, num_layers=6)
    x = torch.randn(40, 4, generator=generator)
    edge_index = torch.randint(40, (2, 100), generator=generator)
    found = lorentz.log0(model.encode(x, edge_index))
    exact = lorentz.log0(model.double().encode(x.double(), edge_index))
    assert exact.norm(dim=1).max() > 8
    torch.testing.assert_close(found.double(), exact, rtol=2e-4, atol=2e-4)


def test_is_permutation_equivariant(dtype, generator):
    model = trained_model(generator, dtype)
    assert_permutation_equivariant(model, torch.randn(NODES, 4, generator=generator).to(dtype), EDGES, 1e-4)


def test_learns_what_structure_says(generator):
    """All nodes have the same feature; the class is whether a node is the neighbour of a leaf, but no leaf itself."""
    parent = torch.tensor([int(torch.randint(max(node, 1), (1,), generator=generator)) for node in range(1, 80)])
    edge_index = to_undirected(torch.stack([parent, torch.arange(1, 80)]))
    degree = edge_index[0].bincount(minlength=80)
    leafy = torch.zeros(80).index_add(0, edge_index[1], (degree == 1)[edge_index[0]].float()) > 0
    y = (leafy & (degree > 1)).long()
    model = WLHN(1, 8, 2, num_layers=2)
    x = torch.ones(80, 1)
    learn(model, lambda m: F.cross_entropy(m(x, edge_index), y), steps=80)
    right = (model.eval()(x, edge_index).argmax(1) == y).float().mean()
    assert right > 0.95 > y.bincount().max() / 80 + 0.2


def test_tells_graphs_of_equal_degrees_apart():
    """A path of five with a leaf at its second or at its third node: after one round their colours are the same."""
    path = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    graphs = [to_undirected(torch.cat([path, torch.tensor([[place], [5]])], 1)) for place in (1, 2)]
    edge_index = torch.cat([graphs[0], graphs[1] + 6], 1)
    x, batch, y = torch.ones(12, 1), torch.arange(12) // 6, torch.tensor([0, 1])
    model = WLHN(1, 8, 2, num_layers=2, task="graph")
    _, last = learn(model, lambda m: F.cross_entropy(m(x, edge_index, batch=batch, batch_size=2), y))
    assert last < 0.1


def test_dropout_leaves_the_colours_alone(generator):
    model = trained_model(generator, dropout=0.5).train()
    for update in model.updates:
        update.eval()
    x = torch.randn(NODES, 4, generator=generator, dtype=torch.float64)
    assert torch.equal(model.encode(x, EDGES), model.encode(x, EDGES))
    assert not torch.equal(model(x, EDGES), model(x, EDGES))


def test_a_reset_forgets_the_running_statistics(generator):
    model = trained_model(generator)
    model.reset_parameters()
    assert not model.updates[0].norms[0].module.running_mean.any()


def test_repr_and_bad_options():
    assert str(WLHN(3, 4, 2, num_layers=5)) == "WLHN(node, 3, 4, num_layers=5)"
    for tau in (0.0, 14.0):
        with pytest.raises(InputError, match=rf"tau must be positive and at most 13.3 for 3 levels, got {tau:g}"):
            WLHN(3, 4, 2, num_layers=2, tau=tau)
