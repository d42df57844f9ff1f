import literal
import pytest
import torch

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.nn import HLinear
from hkconv.testing import assert_on_manifold


def filled(layer):
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-1, 1)
    return layer


@pytest.mark.parametrize("act", [None, "relu"])
def test_equals_the_equation_single_and_stacked(dtype, curvature, act):
    x = lorentz.lift(torch.randn(6, 3, dtype=dtype), curvature)
    tau = (lambda t: t) if act is None else torch.relu
    stacked = filled(HLinear(3, 5, 4, act=act, curvature=curvature)).to(dtype)
    out = stacked(x)
    for k in range(4):
        single = HLinear(3, 5, act=act, curvature=curvature).to(dtype)
        with torch.no_grad():
            for mine, theirs in zip(single.parameters(), stacked.parameters()):
                mine.copy_(theirs[k])
        parts = {name: value.detach().double() for name, value in single.named_tensors().items()}
        expected = torch.stack([literal.hlinear(p, **parts, k=curvature, act=tau) for p in x.double()])
        tolerance = 1e-5 if dtype == torch.float32 else 1e-12
        torch.testing.assert_close(single(x).double(), expected, rtol=tolerance, atol=tolerance)
        torch.testing.assert_close(out[:, k], single(x), rtol=tolerance, atol=tolerance)


def test_without_bias_equals_zero_bias():
    x = lorentz.lift(torch.randn(6, 3))
    plain, biased = HLinear(3, 5, 2, bias=False), HLinear(3, 5, 2)
    assert plain.bias is None and plain.gate_bias is None
    biased.load_state_dict(plain.state_dict(), strict=False)
    torch.testing.assert_close(plain(x), biased(x))


def test_zero_direction_gives_the_origin_with_finite_gradient(dtype):
    layer = HLinear(3, 5).to(dtype)
    with torch.no_grad():
        layer.weight.zero_()
    out = layer(lorentz.lift(torch.randn(2, 3, dtype=dtype)))
    assert torch.equal(out, lorentz.origin(5, dtype=dtype).expand(2, -1))
    out.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in layer.parameters())


def test_output_length_never_exceeds_lambda_whatever_the_input(dtype):
    layer = HLinear(3, 5).to(dtype)
    space = torch.randn(100, 3, dtype=dtype) * torch.logspace(-6, 16, 100, dtype=dtype).unsqueeze(1)
    space.requires_grad_()
    out = layer(lorentz.lift(space))
    assert_on_manifold(out)
    assert (torch.linalg.vector_norm(out[:, 1:], dim=-1) <= layer.log_scale.exp() * (1 + 1e-6)).all()
    out.sum().backward()
    assert torch.isfinite(space.grad).all()


def test_gradcheck(curvature):
    layer = filled(HLinear(3, 2, 2, act="tanh", curvature=curvature)).double()
    space = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    inputs = (space, *layer.parameters())
    assert torch.autograd.gradcheck(lambda s, *_: layer(lorentz.lift(s, curvature)), inputs)


def test_parameter_names_and_shapes_of_the_contract():
    stacked = {name: tuple(p.shape) for name, p in HLinear(3, 5, 4).named_parameters()}
    wanted = {"weight": (4, 5, 4), "bias": (4, 5), "gate_weight": (4, 4), "gate_bias": (4,), "log_scale": (4,)}
    assert stacked == wanted
    single = {name: tuple(p.shape) for name, p in HLinear(3, 5).named_parameters()}
    assert single == {name: shape[1:] for name, shape in wanted.items()}


def test_repr_and_bad_input():
    assert str(HLinear(3, 5)) == "HLinear(3, 5)"
    assert str(HLinear(3, 5, 4)) == "HLinear(3, 5, num_kernels=4)"
    with pytest.raises(InputError, match="out_dim must be at least 1, got 0"):
        HLinear(3, 0)
    with pytest.raises(InputError, match="num_kernels must be at least 1, got 0"):
        HLinear(3, 5, 0)
    with pytest.raises(InputError, match="x must have 4 coordinates for points of dimension 3"):
        HLinear(3, 5)(torch.randn(2, 3))


def test_a_fresh_layer_puts_every_point_at_the_same_radius(curvature):
    """λσ(0) = 1, in any direction: no draw of the weights starts with gates shut or wide open."""
    out = HLinear(3, 5, 4, curvature=curvature)(lorentz.lift(3 * torch.randn(6, 3), curvature))
    torch.testing.assert_close(torch.linalg.vector_norm(out[..., 1:], dim=-1), torch.ones(6, 4))


@pytest.mark.parametrize("bias", [True, False])
def test_one_of_the_stacked_maps_alone(bias, dtype, curvature):
    x = lorentz.lift(torch.randn(2, 6, 3, dtype=dtype), curvature)
    layer = filled(HLinear(3, 5, 4, act="tanh", bias=bias, curvature=curvature)).to(dtype)
    out = layer(x)
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    for k in range(4):
        one = layer(x, k)
        assert one.shape == (2, 6, 6)
        torch.testing.assert_close(one, out[:, :, k], rtol=tolerance, atol=tolerance)
    assert not torch.allclose(layer(x, 0), layer(x, 1))


def test_one_of_the_stacked_maps_gives_gradients_to_itself_alone():
    layer, x = filled(HLinear(3, 5, 4)).double(), lorentz.lift(torch.randn(6, 3, dtype=torch.float64))
    pull = torch.randn(6, 6, dtype=torch.float64)
    whole = torch.autograd.grad((layer(x)[:, 2] * pull).sum(), list(layer.parameters()))
    for one, expected in zip(torch.autograd.grad((layer(x, 2) * pull).sum(), list(layer.parameters())), whole):
        torch.testing.assert_close(one, expected)
        assert one[2].abs().max() > 1e-6 and not one[[0, 1, 3]].any()
