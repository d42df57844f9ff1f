import literal
import torch

from hkconv.geometry import lorentz
from hkconv.nn import FermiDirac


def test_sigmoid_of_the_logit_is_the_fermi_dirac_probability(dtype, curvature):
    layer = FermiDirac(curvature=curvature).to(dtype)
    with torch.no_grad():
        layer.radius.fill_(1.5)
        layer.log_temperature.fill_(0.4)
    u, v = (lorentz.lift(torch.randn(6, 3, dtype=dtype), curvature) for _ in range(2))
    d = torch.stack([literal.dist(a, b, curvature) for a, b in zip(u.double(), v.double())])
    expected = 1 / (torch.exp((d**2 - 1.5) / torch.tensor(0.4, dtype=torch.float64).exp()) + 1)
    tolerance = 1e-4 if dtype == torch.float32 else 1e-7
    torch.testing.assert_close(layer(u, v).sigmoid().double(), expected, rtol=tolerance, atol=1e-6)


def test_gradcheck_and_finite_gradient_for_equal_points(curvature):
    layer = FermiDirac(curvature=curvature).double()
    u, v = (torch.randn(4, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    inputs = (u, v, *layer.parameters())
    lifted = lambda u, v, *_: layer(lorentz.lift(u, curvature), lorentz.lift(v, curvature))  # noqa: E731
    assert torch.autograd.gradcheck(lifted, inputs)
    lifted(u, u).sum().backward()
    assert torch.equal(u.grad, torch.zeros_like(u))


def test_starts_at_radius_two_and_its_temperature():
    for layer, temperature in ((FermiDirac(), 1.0), (FermiDirac(temperature=3.0), 3.0)):
        torch.testing.assert_close(layer.log_temperature.exp().item(), temperature)
        assert layer.radius.item() == 2.0
        o = lorentz.origin(2)
        torch.testing.assert_close(layer(o, o).item(), 2 / temperature)
