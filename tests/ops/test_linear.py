import pytest
import torch

from hkconv.geometry.lorentz import lift
from hkconv.nn import HLinear
from hkconv.ops.linear import fused_linear, hyperbolic_linear
from hkconv.testing import assert_on_manifold

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


def make_maps(kernels, dtype):
    """The parameters of maps from 3 to 5 dimensions, none of them zero."""
    layer = HLinear(3, 5, kernels).to(dtype)
    return {name: torch.rand_like(value) - 0.5 for name, value in layer.named_tensors().items()}


@pytest.mark.parametrize("act", [None, torch.relu], ids=["linear", "relu"])
@pytest.mark.parametrize("kernels", [None, 1, 4])
@pytest.mark.parametrize("leading", [(6,), (1,), (2, 3), ()], ids=str)
def test_the_way_by_kernels_gives_the_same_points(leading, kernels, act, curvature, dtype):
    maps, x = make_maps(kernels, dtype), lift(torch.randn(*leading, 3, dtype=dtype), curvature)
    found = fused_linear(x, **maps, act=act, curvature=curvature)
    expected = hyperbolic_linear(x, **maps, act=act, curvature=curvature)
    torch.testing.assert_close(found, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("kernels", [None, 4])
def test_where_the_activation_is_zero_the_bias_alone_gives_the_direction(kernels, dtype):
    maps, x = make_maps(kernels, dtype), lift(torch.randn(6, 3, dtype=dtype))
    out = hyperbolic_linear(x, **maps, act=torch.zeros_like)
    assert_on_manifold(out)
    direction = torch.nn.functional.normalize(out[..., 1:], dim=-1)
    expected = torch.nn.functional.normalize(maps["bias"], dim=-1).expand_as(direction)
    torch.testing.assert_close(direction, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
