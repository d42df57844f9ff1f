import copy
import pickle

import pytest
import torch

import hkconv
from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.models import HKN, create
from hkconv.testing import assert_on_manifold

VARIANTS = {
    "paper": {},
    "direct": {"relative": False},
    "random": {"points": "random"},
    "train": {"points": "trainable"},
    "root": {"root": True},
    "mass": {"mass": True},
    "attention": {"attention": "distance"},
    "relu": {"act": "relu", "dropout": 0.2},
}


def graph(n=20, edges=60, features=5):
    return torch.randn(n, features), torch.randint(n, (2, edges))


def test_node_logits_are_negated_distances_over_the_temperature(curvature):
    x, edge_index = graph()
    model = HKN(5, 4, 3, curvature=curvature)
    with torch.no_grad():
        model.log_temperature.fill_(0.5)
    points = model.encode(x, edge_index)
    assert_on_manifold(points, curvature)
    d = lorentz.dist(points.unsqueeze(1), model.distance.centers, curvature)
    torch.testing.assert_close(model(x, edge_index), -d / torch.tensor(0.5).exp())


def test_graph_logits_do_not_depend_on_batch_mates():
    x, edge_index = graph()
    other, other_edges = graph(7, 12)
    model = HKN(5, 4, 3, task="graph", mass=True)
    alone = model(x, edge_index)
    both = model(
        torch.cat([x, other]),
        torch.cat([edge_index, other_edges + 20], dim=1),
        batch=torch.tensor([0] * 20 + [1] * 7),
        batch_size=2,
    )
    torch.testing.assert_close(both[:1], alone)


def test_link_logits_fall_with_distance():
    x, edge_index = graph()
    model = HKN(5, 4, task="link", root=True)
    pairs = torch.stack([torch.zeros(20, dtype=torch.long), torch.arange(20)])
    points = model.encode(x, edge_index)
    d = lorentz.dist(points[:1], points)
    assert torch.equal(
        model(x, edge_index, pairs=pairs).argsort(descending=True, stable=True)[:5], d.argsort(stable=True)[:5]
    )


@pytest.mark.parametrize("task", ["node", "graph", "link"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_takes_a_finite_step_for_every_task(task, variant):
    x, edge_index = graph()
    model = HKN(5, 4, 3, task=task, kernel_size=3, **VARIANTS[variant])
    optimizer = hkconv.RiemannianAdam(model.parameters(), lr=0.01)
    extra = {
        "node": {},
        "graph": {"batch": torch.arange(20) // 5, "batch_size": 4},
        "link": {"pairs": torch.randint(20, (2, 9))},
    }[task]
    first = model(x, edge_index, **extra)
    first.square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)
    before = copy.deepcopy(model.state_dict())
    optimizer.step()
    assert any(not torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.isfinite(model(x, edge_index, **extra)).all()


def test_learns_what_only_the_neighbourhood_knows():
    """A node's class is whether its neighbours' features differ from its own: relative positions alone."""
    torch.manual_seed(0)
    x = torch.randn(200, 4)
    edge_index = torch.stack([torch.randint(200, (800,)), torch.arange(200).repeat(4)])
    spread = torch.zeros(200).index_add(0, edge_index[1], (x[edge_index[0]] - x[edge_index[1]]).norm(dim=1))
    y = (spread > spread.median()).long()
    model = HKN(4, 8, 2, num_layers=1, kernel_size=4)
    optimizer = hkconv.RiemannianAdam(model.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x, edge_index), y).backward()
        optimizer.step()
    assert (model(x, edge_index).argmax(1) == y).float().mean() > 0.85


def test_copies_pickles_and_repeats_from_a_seed():
    x, edge_index = graph()
    torch.manual_seed(1)
    model = HKN(5, 4, 3, points="random")
    torch.manual_seed(1)
    again = HKN(5, 4, 3, points="random")
    expected = model(x, edge_index)
    for other in (again, copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(x, edge_index), expected)
    model.reset_parameters()
    assert not torch.equal(model(x, edge_index), expected)


def test_compiles_without_a_graph_break():
    x, edge_index = graph()
    model = HKN(5, 4, 3, root=True)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, edge_index), model(x, edge_index))


def test_repr_and_bad_options():
    assert str(HKN(5, 4, 3, num_layers=1)) == "HKN(node, HEmbedding(5, 4), HKConv(4, 4, kernel_size=4))"
    with pytest.raises(InputError, match="task must be one of node, graph, link, got 'edge'"):
        HKN(5, 4, 3, task="edge")
    with pytest.raises(InputError, match="num_classes must be at least 2 for the node task, got 1"):
        HKN(5, 4, 1)
    with pytest.raises(InputError, match="num_layers must be at least 1, got 0"):
        HKN(5, 4, 3, num_layers=0)
    with pytest.raises(InputError, match=r"pairs of shape \(2, P\) are needed"):
        HKN(5, 4, task="link")(*graph())
    with pytest.raises(InputError, match="unknown model 'hgn'; accepted: hkn, mlp, gcn"):
        create("hgn")
