import pytest
import torch
from baseline_cases import adjacency, built, held_out_accuracy, randomized
from hyperbolic_cases import EDGES, NODES

from hkconv.errors import InputError
from hkconv.models import GCN, DirGNN


def literal_spread(weight):
    """D_out^-1/2 A D_in^-1/2 with rows of sources, of nodes that have a degree."""
    by_source = adjacency(weight).T
    degrees = by_source.sum(1), by_source.sum(0)
    scales = [degree.where(degree > 0, torch.ones_like(degree)).rsqrt() for degree in degrees]
    return scales[0][:, None] * by_source * scales[1]


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("residual", [True, False])
def test_equals_its_equations(weighted, residual, dtype, generator):
    model = randomized(built(DirGNN, num_layers=3, alpha=0.3, residual=residual, dropout=0.5).to(dtype), generator)
    x = h = torch.randn(NODES, 3, generator=generator).to(dtype)
    # The third edge, the only one out of node 2, weighs nothing.
    weight = torch.rand(EDGES.size(1), generator=generator).to(dtype).index_fill(0, torch.tensor([2]), 0)
    spread = literal_spread(weight if weighted else torch.ones_like(weight))
    layers = []
    for number, conv in enumerate(model.convs):
        out = 0.3 * spread @ h @ conv.out_edges.weight.T + 0.7 * spread.T @ h @ conv.in_edges.weight.T + conv.bias
        if residual:
            out = out + h @ model.residuals[number].weight.T + model.residuals[number].bias
        h = out.relu()
        layers.append(h)
    last = model.network["last"]
    expected = torch.stack(layers).max(0).values @ last.weight.T + last.bias
    torch.testing.assert_close(model(x, EDGES, weight if weighted else None), expected)


def test_alpha_says_which_edges_are_read(generator):
    """With 1 those out of a node alone, with 0 those into it."""
    x = torch.randn(NODES, 3, generator=generator)
    outward, inward = (randomized(built(DirGNN, num_layers=1, alpha=alpha), generator) for alpha in (1.0, 0.0))
    swapped = {
        name.replace("out_edges", "in_edges") if "out_edges" in name else name.replace("in_edges", "out_edges"): value
        for name, value in outward.state_dict().items()
    }
    inward.load_state_dict(swapped)
    torch.testing.assert_close(outward(x, EDGES), inward(x, EDGES.flip(0)))
    assert not torch.allclose(outward(x, EDGES), outward(x, EDGES.flip(0)))


def test_an_isolated_node_sees_nothing_but_its_residual(generator):
    x = torch.randn(NODES, 3, generator=generator)
    other = x.clone()
    other[4] += 1
    model = built(DirGNN).eval()
    assert torch.equal(model(x, EDGES), model(other, EDGES))
    assert model(x, EDGES).isfinite().all()
    model = built(DirGNN, residual=True).eval()
    assert not torch.equal(model(x, EDGES)[4], model(other, EDGES)[4])


def test_learns_from_the_edges_out_of_a_node(generator):
    """The label is the sign of those that a node points to; those that point to it say nothing."""
    sign = 1 - 2.0 * torch.randint(2, (400,), generator=generator)
    group = [torch.nonzero(sign == s).squeeze() for s in (-1, 1)]
    y = torch.randint(2, (400,), generator=generator)
    ends = torch.stack([group[s][torch.randint(len(group[s]), (3,), generator=generator)] for s in y.tolist()])
    edge_index = torch.stack([torch.arange(400).repeat_interleave(3), ends.flatten()])
    x = sign.unsqueeze(1) + 0.3 * torch.randn(400, 2, generator=generator)
    test = torch.arange(400) % 2 == 0
    accuracy = {
        model: held_out_accuracy(model(2, 16, 2, num_layers=1), lambda m: m(x, edge_index), y, test, steps=60)
        for model in (DirGNN, GCN)
    }
    assert accuracy[GCN] < 0.65 < 0.95 < accuracy[DirGNN]


def test_alpha_is_a_share():
    with pytest.raises(InputError, match=r"alpha must lie in \[0, 1\], got 1.5"):
        built(DirGNN, alpha=1.5)
