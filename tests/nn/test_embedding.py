import literal
import pytest
import torch

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.nn import HEmbedding
from hkconv.testing import assert_on_manifold


def test_is_the_exponential_of_the_linear_map(dtype, curvature):
    layer = HEmbedding(6, 3, curvature=curvature).to(dtype)
    x = torch.randn(5, 6, dtype=dtype)
    tangent = torch.nn.functional.pad(layer.linear(x).double(), (1, 0))
    o = literal.origin(3, curvature)
    expected = torch.stack([literal.exp(o, v, curvature) for v in tangent])
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(layer(x).double(), expected, rtol=tolerance, atol=tolerance)


def test_zero_and_huge_features_keep_points_and_gradients_finite(dtype):
    layer = HEmbedding(6, 3).to(dtype)
    with torch.no_grad():
        layer.linear.bias.zero_()
    for scale in (0.0, 1e-20, 1e4, 1e8, 1e30):
        x = (torch.randn(5, 6) * scale).to(dtype).requires_grad_()
        out = layer(x)
        assert_on_manifold(out)
        lorentz.log0(out).sum().backward()
        assert torch.isfinite(x.grad).all() and torch.isfinite(layer.linear.weight.grad).all()


def test_gradcheck(curvature):
    layer = HEmbedding(3, 2, curvature=curvature).double()
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, *_: layer(x), (x, *layer.parameters()))


def test_autocast_gives_float32_points_on_the_manifold():
    layer = HEmbedding(6, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(torch.randn(5, 6))
    assert out.dtype == torch.float32
    assert_on_manifold(out)


def test_reach_shortens_tangent_vectors_smoothly(dtype, curvature):
    layer = HEmbedding(6, 3, reach=2.0, curvature=curvature).to(dtype)
    x = torch.randn(5, 6, dtype=dtype) * torch.tensor([0.01, 1.0, 4.0, 10.0, 1000.0], dtype=dtype).unsqueeze(1)
    lengths = layer.linear(x).norm(dim=1)
    bound = 2.0 * (-curvature) ** -0.5
    found = layer(x)
    assert_on_manifold(found, curvature=curvature)
    distances = lorentz.dist(found, lorentz.origin(3, curvature=curvature, dtype=dtype), curvature)
    torch.testing.assert_close(distances, bound * torch.tanh(lengths / bound), rtol=1e-4, atol=1e-5)
    directions = torch.nn.functional.normalize(layer.linear(x), dim=1)
    torch.testing.assert_close(torch.nn.functional.normalize(found[:, 1:], dim=1), directions, rtol=1e-4, atol=1e-5)


def test_reach_at_nothing_and_at_everything_keeps_gradients_finite(dtype):
    layer = HEmbedding(2, 3, reach=5.0).to(dtype)
    with torch.no_grad():
        layer.linear.bias.zero_()
    for scale in (0.0, 1e-20, 1e8, 1e15):
        x = torch.full((1, 2), scale, dtype=dtype, requires_grad=True)
        (gradient,) = torch.autograd.grad(layer(x)[:, 1:].sum(), x)
        assert gradient.isfinite().all()
        if scale == 0:
            torch.testing.assert_close(gradient[0], layer.linear.weight.sum(0))


def test_repr_and_bad_input():
    assert str(HEmbedding(6, 3)) == "HEmbedding(6, 3)"
    with pytest.raises(InputError, match="x must have 6 features, got 5"):
        HEmbedding(6, 3)(torch.randn(2, 5))
    for reach in (0, -1.0, float("nan")):
        with pytest.raises(InputError, match="reach must be a number above 0 or None"):
            HEmbedding(6, 3, reach=reach)


def test_reset_parameters_draws_anew():
    layer = HEmbedding(6, 3)
    before = layer.linear.weight.clone()
    layer.reset_parameters()
    assert not torch.equal(layer.linear.weight, before)
