import pytest
import torch

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.nn import HNorm
from hkconv.testing import assert_on_manifold


def cloud(dtype=torch.float64, curvature=-1.0, nodes=9):
    return lorentz.lift(2 + 3 * torch.randn(nodes, 4, dtype=dtype), curvature)


def make(norm, act=None, dtype=torch.float64, curvature=-1.0):
    layer = HNorm(4, norm, act, curvature=curvature).to(dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(torch.rand_like(parameter))
    return layer


def scale_and_shift(layer):
    weight, bias = layer.norm.parameters()
    return weight.detach().double(), bias.detach().double()


@pytest.mark.parametrize("act", [None, "relu"])
@pytest.mark.parametrize(("norm", "over"), [("layer", 1), ("batch", 0)])
def test_standardizes_space_by_the_equation_and_lifts(norm, over, act, dtype, curvature):
    layer, x = make(norm, act, dtype, curvature), cloud(dtype, curvature)
    space = x[:, 1:].double()
    mean = space.mean(over, keepdim=True)
    variance = (space - mean).square().mean(over, keepdim=True)
    weight, bias = scale_and_shift(layer)
    expected = weight * (space - mean) / (variance + 1e-5).sqrt() + bias
    expected = expected if act is None else expected.clamp(min=0)
    out = layer(x)
    torch.testing.assert_close(out[:, 1:].double(), expected, rtol=1e-5, atol=1e-5 if dtype == torch.float32 else 1e-9)
    assert_on_manifold(out, curvature)


def test_activation_alone():
    x = cloud()
    assert torch.equal(HNorm(4, None, "relu")(x)[:, 1:], x[:, 1:].clamp(min=0))


def test_batches_are_normalized_by_running_estimates_in_evaluation():
    layer, x = make("batch"), cloud()
    for _ in range(200):
        layer(x)
    space, (weight, bias) = x[:, 1:], scale_and_shift(layer)
    expected = weight * (space - space.mean(0)) / (space.var(0) + 1e-5).sqrt() + bias
    torch.testing.assert_close(layer.eval()(x)[:, 1:], expected)
    torch.testing.assert_close(layer(x[:2]), layer(x)[:2])  # batch mates do not count


def test_starts_with_points_about_one_unit_of_space_from_the_origin():
    for norm in ("layer", "batch"):
        length = HNorm(64, norm)(lorentz.lift(5 * torch.randn(500, 64)))[:, 1:].norm(dim=1)
        assert (length - 1).abs().mean() < 0.15


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_is_finite_where_nothing_varies(norm, dtype):
    for x in (lorentz.origin(4, dtype=dtype).repeat(3, 1), cloud(dtype, nodes=1)):
        layer, space = make(norm, "relu", dtype), x[:, 1:].clone().requires_grad_()
        out = layer(lorentz.lift(space))
        out.sum().backward()
        assert out.isfinite().all() and space.grad.isfinite().all()


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_gradcheck(norm, curvature):
    layer = make(norm, curvature=curvature)
    space = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    inputs = (space, *layer.parameters())
    assert torch.autograd.gradcheck(lambda s, *_: layer(lorentz.lift(s, curvature)), inputs)


def test_reset_repr_and_bad_options():
    layer = make("batch", "relu")
    layer.reset_parameters()
    assert torch.equal(layer.norm.module.weight.detach(), torch.full((4,), 0.5, dtype=torch.float64))
    assert str(layer) == "HNorm(4, BatchNorm, ReLU)"
    with pytest.raises(InputError, match="norm must be None, 'layer' or 'batch', got 'group'"):
        HNorm(4, "group")
    with pytest.raises(InputError, match="x must have 5 coordinates"):
        layer(torch.randn(3, 4))


@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_rows_may_have_any_leading_dimensions(norm):
    layer, x = make(norm), cloud(nodes=12)
    torch.testing.assert_close(layer(x.view(3, 4, 5)).flatten(0, 1), layer(x))
