import copy
import pickle

import mpmath
import pytest
import torch

import hkconv
from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.nn import HMLR
from hkconv.ops import reference


def make(dtype, curvature=-1.0, offset=0.7):
    layer = HMLR(3, 4, curvature=curvature).to(dtype)
    with torch.no_grad():
        layer.offset.uniform_(-offset, offset)
    return layer


def exact_logits(layer, x, curvature):
    """|z| R arsinh(<w, x> / R) with the unit normal w = (sinh(a/R), cosh(a/R) z/|z|), to 60 digits."""
    with mpmath.workdps(60):
        R, rows = 1 / mpmath.sqrt(-mpmath.mpf(curvature)), []
        for point in x.double().tolist():
            space = [mpmath.mpf(value) for value in point[1:]]
            time = mpmath.sqrt(R * R + sum(value * value for value in space))
            rows.append([])
            for normal, a in zip(layer.normal.double().tolist(), layer.offset.double().tolist()):
                length = mpmath.sqrt(sum(mpmath.mpf(value) ** 2 for value in normal))
                along = sum(mpmath.mpf(n) * s for n, s in zip(normal, space)) / length
                product = mpmath.cosh(mpmath.mpf(a) / R) * along - mpmath.sinh(mpmath.mpf(a) / R) * time
                rows[-1].append(float(length * R * mpmath.asinh(product / R)))
        return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize(("spread", "offset"), [(1.0, 0.7), (1e-3, 1e-3), (20.0, 3.0)])
def test_equals_the_literal_form_to_sixty_digits(dtype, curvature, spread, offset):
    layer = make(dtype, curvature, offset)
    x = lorentz.lift(spread * torch.randn(20, 3, dtype=dtype), curvature)
    expected = exact_logits(layer, x, curvature)
    tolerance = 3e-5 if dtype == torch.float32 else 1e-12
    scale = max(spread, offset) if spread < 1 else 1
    torch.testing.assert_close(layer(x).detach().double(), expected, rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("radius", [4.0, 8.0])
def test_points_near_a_hyperplane_far_out_keep_their_side_and_distance(radius):
    """In float32 the two products of the literal form are near 3000 at radius 8, and their difference near 1."""
    layer = HMLR(3, 1)
    with torch.no_grad():
        layer.normal.copy_(torch.tensor([[1.0, 2.0, -2.0]]) / 3)
        layer.offset.fill_(radius)
    along = radius + torch.linspace(-0.5, 0.5, 11, dtype=torch.float64)
    x = lorentz.exp0(torch.nn.functional.pad(along[:, None] * layer.normal.double(), (1, 0)))
    x = lorentz.lift(x[:, 1:].float())
    found, expected = layer(x).detach().double(), exact_logits(layer, x, -1.0)
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=2e-5)
    torch.testing.assert_close(expected[:, 0], (along - radius).detach(), rtol=0, atol=1e-4)


def test_a_logit_is_the_distance_to_the_nearest_point_of_the_hyperplane(curvature):
    """Found by descent over the hyperplane {y : y_s along the normal is tanh(a/R) y_t}."""
    layer = make(torch.float64, curvature)
    x = lorentz.lift(torch.randn(3, dtype=torch.float64), curvature)
    z, a, R = layer.normal[0].detach(), layer.offset[0].detach(), (-curvature) ** -0.5
    unit = z / z.norm()
    free = torch.zeros(3, dtype=torch.float64, requires_grad=True)

    def nearest():
        across = free - (free @ unit) * unit
        time = (across @ across + R * R).sqrt() * torch.cosh(a / R)
        return lorentz.dist(x, torch.cat([time[None], across + torch.tanh(a / R) * time * unit]), curvature)

    optimizer = torch.optim.LBFGS([free], max_iter=200, line_search_fn="strong_wolfe", tolerance_grad=1e-12)

    def closure():
        optimizer.zero_grad()
        loss = nearest().square()
        loss.backward()
        return loss

    optimizer.step(closure)
    torch.testing.assert_close(
        (z.norm() * nearest()).detach(), layer(x[None])[0, 0].abs().detach(), rtol=1e-7, atol=1e-7
    )


def test_gradcheck_and_finite_gradients_for_a_normal_of_zero(curvature):
    layer = make(torch.float64, curvature)
    space = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    inputs = (space, *layer.parameters())
    assert torch.autograd.gradcheck(lambda s, *_: layer(lorentz.lift(s, curvature)), inputs)
    with torch.no_grad():
        layer.normal[1] = 0
    out = layer(lorentz.lift(space, curvature))
    assert not out[:, 1].any()
    out.sum().backward()
    assert all(value.grad.isfinite().all() for value in inputs)


def test_separates_two_clouds_with_any_optimizer():
    sides = torch.tensor([[1.5, 0.0, 0.0], [-0.5, 1.0, 0.0]])
    y = torch.arange(80) % 2
    x = lorentz.lift(sides[y] + 0.2 * torch.randn(80, 3))
    layer = HMLR(3, 2)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    for _ in range(60):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(layer(x), y).backward()
        optimizer.step()
    assert (layer(x).argmax(1) == y).all()


def test_many_points_are_taken_in_pieces(monkeypatch):
    layer, x = make(torch.float64), lorentz.lift(torch.randn(50, 3, dtype=torch.float64))
    whole = layer(x)
    monkeypatch.setattr(reference, "NUMBERS_AT_ONCE", 200)
    torch.testing.assert_close(layer(x), whole, rtol=1e-13, atol=1e-13)


def test_compiles_as_one_graph():
    layer, x = make(torch.float32), lorentz.lift(torch.randn(5, 3))
    torch.testing.assert_close(torch.compile(layer, fullgraph=True, backend="aot_eager")(x), layer(x))


def test_shapes_copies_repr_and_bad_input():
    layer = make(torch.float32, -0.5)
    x = lorentz.lift(torch.randn(2, 5, 3), -0.5)
    torch.testing.assert_close(layer(x), torch.stack([layer(x[0]), layer(x[1])]))
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert torch.equal(twin(x), layer(x))
    assert str(layer) == "HMLR(3, 4, curvature=-0.5)"
    with pytest.raises(InputError, match="x must have 4 coordinates"):
        layer(x[..., 1:])
    with hkconv.debug(), pytest.raises(InputError, match="off the manifold"):
        layer(x + 1)
