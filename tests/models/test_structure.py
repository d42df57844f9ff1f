import pytest
import torch

import hkconv
from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.models.structure import StructureEmbedding

# Node 4 has no edge; a double edge and a self loop.
EDGES = torch.tensor([[0, 1, 2, 0, 3, 1, 1], [1, 2, 0, 2, 3, 0, 0]])


def make(dtype=torch.float64, curvature=-1.0, **options):
    return StructureEmbedding(3, 4, 5, curvature=curvature, **options).to(dtype)


def adjacency(weight, edges=EDGES):
    """A row for each node, divided by the root of its number of edges."""
    rows = torch.zeros(5, 5, dtype=weight.dtype).index_put((edges[1], edges[0]), weight, accumulate=True)
    return rows / edges[1].bincount(minlength=5).clamp(min=1).sqrt().to(weight.dtype).unsqueeze(1)


def placed(layer, rows, features, curvature=-1.0):
    """What the embedding makes of the sums of rows and the mapped features."""
    mixed = torch.cat([rows, features], 1) @ layer.mix.weight.T + layer.mix.bias + rows + features
    tangent = mixed.clamp(min=0) @ layer.out.weight.T + layer.out.bias
    return lorentz.exp0(torch.nn.functional.pad(tangent, (1, 0)), curvature)


@pytest.mark.parametrize("weighted", [False, True])
def test_mixes_features_and_rows_of_the_neighbours(weighted, dtype, curvature):
    layer, x = make(dtype, curvature), torch.randn(5, 3, dtype=dtype)
    weight = torch.rand(7, dtype=dtype) if weighted else torch.ones(7, dtype=dtype)
    features = x @ layer.linear.weight.T + layer.linear.bias
    expected = placed(layer, adjacency(weight) @ layer.node_weight, features, curvature)
    for edges in (EDGES, hkconv.neighbors(EDGES, 5)):
        torch.testing.assert_close(layer(x, edges, weight if weighted else None), expected)


def test_gradcheck():
    layer, x = make(), torch.randn(5, 3, dtype=torch.float64)
    weight = torch.rand(7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda w, *_: layer(x, EDGES, w), (weight, *layer.parameters()))


def test_renumbered_nodes_with_renumbered_rows_give_the_same():
    layer, x = make(), torch.randn(5, 3, dtype=torch.float64)
    before = layer(x, EDGES)
    order = torch.tensor([3, 1, 4, 0, 2])
    with torch.no_grad():
        layer.node_weight.copy_(layer.node_weight[order])
    torch.testing.assert_close(layer(x[order], order.argsort()[EDGES]), before[order])


def test_reach_keeps_a_hub_of_ten_thousand_neighbours_near():
    layer = StructureEmbedding(1, 2, 10_001, reach=5)
    with torch.no_grad():
        layer.node_weight.normal_().mul_(100)
    edges = torch.stack([torch.arange(1, 10_001), torch.zeros(10_000, dtype=torch.int64)])
    assert lorentz.dist(layer(torch.zeros(10_001, 1), edges)[0], lorentz.origin(2)) <= 5.001


def test_belongs_to_one_graph():
    with pytest.raises(InputError, match="x must have a row for each of the 5 nodes, got 4 rows"):
        make()(torch.randn(4, 3, dtype=torch.float64), EDGES[:, :3])
    with pytest.raises(InputError, match="num_nodes must be at least 1, got 0"):
        StructureEmbedding(3, 4, 0)


def test_reset_draws_rows_anew_and_repr():
    layer = make()
    before = {name: value.detach().clone() for name, value in layer.named_parameters()}
    layer.reset_parameters()
    assert not any(torch.equal(value, before[name]) for name, value in layer.named_parameters())
    assert layer.node_weight.abs().max() <= 5**-0.5
    assert str(layer) == "StructureEmbedding(3, 4, num_nodes=5)"
