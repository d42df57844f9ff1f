import copy
import math
import pickle
import warnings

import geoopt
import pytest
import torch

import hkconv
from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.geometry.manifold import Lorentz

from .helpers import around, as_float32, assert_finite_gradients, at_radius, directions, random_points, tangent


@pytest.fixture
def manifold(curvature):
    return Lorentz(curvature)


def frechet_loss(x, points, manifold):
    return (manifold.dist(x, points) ** 2).mean()


def run_steps(optimizer_of, manifold, count=60):
    """Losses of the search for the Fréchet mean of a cloud, and the parameter at the end."""
    center = at_radius(1.5, directions(4), manifold.curvature)
    points = around(center, 0.3, 20, manifold.curvature)
    parameter = geoopt.ManifoldParameter(manifold.origin(5, dtype=torch.float64), manifold=manifold)
    optimizer = optimizer_of([parameter])
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = frechet_loss(parameter, points, manifold)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, parameter


def test_it_is_a_thin_class_over_the_functions(manifold, curvature):
    x, y = random_points(2, 5, 3, curvature=curvature)
    v = tangent(x, torch.randn(5, 3, dtype=torch.float64))
    for ours, theirs in (
        (manifold.dist(x, y), lorentz.dist(x, y, curvature)),
        (manifold.dist(x, y, keepdim=True), lorentz.dist(x, y, curvature).unsqueeze(-1)),
        (manifold.expmap(x, v), lorentz.exp(x, v, curvature)),
        (manifold.logmap(x, y), lorentz.log(x, y, curvature)),
        (manifold.transp(x, y, v), lorentz.transport(x, y, v, curvature)),
    ):
        assert ours.equal(theirs)


def test_inner_products_of_tangent_vectors_are_lorentz_products(manifold, curvature):
    x = random_points(5, 3, curvature=curvature)
    u, v = (tangent(x, torch.randn(5, 3, dtype=torch.float64)) for _ in range(2))
    for ours, theirs in (
        (manifold.inner(x, u), lorentz.inner(u, u)),
        (manifold.inner(x, u, v), lorentz.inner(u, v)),
        (manifold.inner(x, u, v, keepdim=True), lorentz.inner(u, v).unsqueeze(-1)),
        (manifold.norm(x, u), lorentz.inner(u, u).sqrt()),
        (manifold.norm(x, u, keepdim=True), lorentz.inner(u, u).sqrt().unsqueeze(-1)),
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("radius", [6.0, 9.0, 12.0])
def test_lengths_of_far_tangent_vectors_are_right_in_float32(manifold, curvature, radius):
    """The plain Lorentz product is wrong by 100 % from radius 9 on."""
    x = at_radius(radius, directions(50, 4), curvature)
    v = lorentz.log(x, lorentz.oplus(at_radius(1.0, directions(50, 4), curvature), x, curvature), curvature)
    found = manifold.norm(as_float32(x, curvature), v.float()).double()
    rounding = torch.finfo(torch.float32).eps * math.exp(radius)
    torch.testing.assert_close(found, manifold.norm(x, v), rtol=4 * rounding, atol=0)


def test_geoopt_accepts_its_points_and_vectors(manifold, dtype, curvature):
    x = random_points(6, 3, curvature=curvature, dtype=dtype)
    u = torch.randn(6, 4, dtype=dtype)
    assert manifold.check_point_on_manifold(x)
    assert manifold.check_vector_on_tangent(x, manifold.proju(x, u))
    assert manifold.check_point_on_manifold(manifold.projx(u))
    assert manifold.check_point_on_manifold(manifold.expmap(x, manifold.proju(x, u)))
    assert manifold.check_point_on_manifold(manifold.retr(x, manifold.proju(x, u)))
    assert manifold.check_vector_on_tangent(x, manifold.logmap(x, x.flip(0)))
    assert manifold.check_point_on_manifold(manifold.random_normal(5, 4, dtype=dtype))
    assert manifold.check_point_on_manifold(manifold.origin(5, 4, dtype=dtype))


def test_geoopt_rejects_what_is_off(manifold, curvature):
    x = random_points(6, 3, curvature=curvature)
    v = manifold.proju(x, torch.randn_like(x))
    assert not manifold.check_point_on_manifold(1.001 * x)
    assert not manifold.check_point_on_manifold(-x)
    assert not manifold.check_vector_on_tangent(x, v + 1e-2 * x)
    with pytest.raises(ValueError, match="time coordinate"):
        manifold.assert_check_point_on_manifold(1.001 * x)


def test_a_large_vector_does_not_hide_one_off_the_tangent_space(manifold, curvature):
    x = random_points(2, 3, curvature=curvature)
    v = manifold.proju(x, torch.randn_like(x))
    off = torch.stack([1e8 * v[0], v[1] + x[1]])
    assert not manifold.check_vector_on_tangent(x, off)


def test_proju_is_the_orthogonal_projection(manifold, curvature):
    x, u = random_points(6, 3, curvature=curvature), torch.randn(6, 4, dtype=torch.float64)
    v = manifold.proju(x, u)
    torch.testing.assert_close(manifold.proju(x, v), v)
    torch.testing.assert_close(lorentz.inner(u - v, v), torch.zeros(6, dtype=torch.float64), atol=1e-9, rtol=0)


def test_egrad2rgrad_gives_the_derivative_along_every_geodesic(manifold, curvature):
    x, target = random_points(3, curvature=curvature), random_points(3, curvature=curvature)
    slope = torch.randn(4, dtype=torch.float64)

    def f(x):
        return manifold.dist(x, target) ** 2 + torch.sin(slope @ x)

    (egrad,) = assert_finite_gradients(f, x)
    rgrad = manifold.egrad2rgrad(x, egrad)
    assert manifold.check_vector_on_tangent(x, rgrad)
    for _ in range(4):
        v = tangent(x, torch.randn(3, dtype=torch.float64))
        step = 1e-5
        derivative = (f(manifold.expmap(x, step * v)) - f(manifold.expmap(x, -step * v))) / (2 * step)
        torch.testing.assert_close(manifold.inner(x, rgrad, v), derivative, atol=1e-6, rtol=1e-6)


def test_gradient_of_half_the_squared_distance_is_minus_log(manifold, curvature):
    x, y = random_points(2, 5, 3, curvature=curvature)
    (egrad,) = assert_finite_gradients(lambda x: 0.5 * manifold.dist2(x, y), x)
    torch.testing.assert_close(manifold.egrad2rgrad(x, egrad), -manifold.logmap(x, y), atol=1e-8, rtol=1e-8)


def test_retraction_agrees_with_exp_to_first_order(manifold, curvature):
    x = random_points(3, curvature=curvature)
    v = tangent(x, torch.randn(3, dtype=torch.float64))
    gaps = [manifold.dist(manifold.retr(x, h * v), manifold.expmap(x, h * v)).item() for h in (1e-2, 1e-3)]
    assert gaps[1] <= gaps[0] / 50


def test_retraction_is_undone_by_the_transported_step_back(manifold, curvature):
    """What geoopt calls reversible, and asks of a manifold before it samples on it."""
    x = random_points(3, curvature=curvature)
    v = tangent(x, torch.randn(3, dtype=torch.float64))
    y, carried = manifold.retr_transp(x, v, v)
    assert manifold.reversible
    torch.testing.assert_close(manifold.retr(y, -carried), x, atol=1e-7, rtol=1e-7)


def test_norm_of_the_zero_vector_is_zero_with_a_finite_gradient(manifold, dtype, curvature):
    x = random_points(3, curvature=curvature, dtype=dtype)
    zero = torch.zeros_like(x)
    assert manifold.norm(x, zero) == 0
    assert_finite_gradients(lambda u: manifold.norm(x, u), zero)


@pytest.mark.parametrize(
    "optimizer_of",
    [
        lambda p: geoopt.optim.RiemannianAdam(p, lr=0.1),
        lambda p: geoopt.optim.RiemannianAdam(p, lr=0.1, amsgrad=True, stabilize=5),
        lambda p: geoopt.optim.RiemannianSGD(p, lr=0.2),
        lambda p: geoopt.optim.RiemannianSGD(p, lr=0.05, momentum=0.5, stabilize=5),
    ],
    ids=["adam", "amsgrad", "sgd", "momentum"],
)
def test_geoopt_optimizers_find_the_frechet_mean(optimizer_of, manifold):
    losses, parameter = run_steps(optimizer_of, manifold)
    assert losses[-1] < 0.3 * losses[0]
    assert manifold.check_point_on_manifold(parameter)


def test_a_geoopt_sampler_walks_on_the_manifold_towards_the_mass(manifold, curvature):
    target = at_radius(1.0, directions(3), curvature)
    parameter = geoopt.ManifoldParameter(manifold.origin(4, dtype=torch.float64), manifold=manifold)
    sampler = geoopt.samplers.RSGLD([parameter], epsilon=1e-3)
    sampler.burnin = False
    for _ in range(40):
        sampler.step(lambda: 300 * curvature * manifold.dist2(parameter, target))
        assert manifold.check_point_on_manifold(parameter)
    assert sum(sampler.log_probs[-20:]) / 20 > 0.2 * sampler.log_probs[0]


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))], ids=["copy", "pickle"])
@pytest.mark.parametrize("learnable", [False, True])
def test_parameters_copy_and_pickle(duplicate, learnable):
    manifold = Lorentz(-0.3, learnable=learnable)
    parameter = geoopt.ManifoldParameter(manifold.random_normal(5, 4), manifold=manifold)
    again = duplicate(parameter)
    assert isinstance(again, geoopt.ManifoldParameter)
    assert again.requires_grad
    assert again.equal(parameter)
    assert again.data_ptr() != parameter.data_ptr()
    assert isinstance(again.manifold, Lorentz)
    assert repr(again.manifold) == repr(manifold)


def test_state_dict_carries_a_learned_curvature():
    source, target = Lorentz(-0.3, learnable=True), Lorentz(learnable=True)
    target.load_state_dict(source.state_dict())
    assert target.curvature.item() == pytest.approx(-0.3)


def test_learned_curvature_gets_a_gradient_and_stays_negative():
    manifold = Lorentz(-0.5, learnable=True).double()
    x, y = torch.randn(2, 8, 4, dtype=torch.float64)
    for sign in (1, -1):
        optimizer = torch.optim.SGD(manifold.parameters(), lr=5.0)
        for _ in range(30):
            optimizer.zero_grad()
            (sign * manifold.dist(manifold.projx(x), manifold.projx(y)).mean()).backward()
            assert manifold.log_curvature.grad != 0
            optimizer.step()
            assert manifold.curvature < 0


def test_fixed_curvature_is_no_parameter():
    assert not list(Lorentz(-2.0).parameters())
    assert Lorentz(-2.0).curvature == -2.0


@pytest.mark.parametrize("learnable", [False, True])
def test_non_negative_curvature_is_rejected(learnable):
    with pytest.raises(InputError, match=r"curvature must be negative and finite, got 0\.0"):
        Lorentz(0.0, learnable=learnable)


def test_random_points_spread_as_asked(manifold, curvature):
    x = manifold.random_normal(20_000, 3, std=0.4, dtype=torch.float64)
    spread = lorentz.log0(x.as_subclass(torch.Tensor), curvature)[:, 1:].std(0)
    torch.testing.assert_close(spread, torch.full((2,), 0.4, dtype=torch.float64), atol=0.01, rtol=0)


def test_repr_names_curvature_and_whether_it_is_learned():
    assert repr(Lorentz()) == "Lorentz(curvature=-1, learnable=False) manifold"
    assert repr(Lorentz(-0.3, learnable=True)) == "Lorentz(curvature=-0.3, learnable=True) manifold"


EUCLIDEAN = [torch.optim.Adam, torch.optim.AdamW, lambda parameters: torch.optim.SGD(parameters, lr=0.1)]


def take_steps_with(optimizer, parameter, count=3):
    for _ in range(count):
        parameter.grad = torch.ones_like(parameter)
        optimizer.step()


@pytest.mark.parametrize("optimizer_of", EUCLIDEAN)
def test_optimizers_that_take_points_for_vectors_are_named_once(optimizer_of, manifold):
    parameter = geoopt.ManifoldParameter(manifold.origin(5, 3), manifold=manifold)
    optimizer = optimizer_of([torch.nn.Parameter(torch.zeros(2)), parameter])
    with pytest.warns(UserWarning, match="treats points as Euclidean vectors.*hkconv.RiemannianAdam") as found:
        take_steps_with(optimizer, parameter)
    assert len([warning for warning in found if "points" in str(warning.message)]) == 1
    with pytest.warns(UserWarning, match="treats points as Euclidean vectors"):  # another optimizer is another mistake
        take_steps_with(optimizer_of([parameter]), parameter)


def test_other_optimizers_and_other_parameters_are_not_named(manifold):
    parameter = geoopt.ManifoldParameter(manifold.origin(5, 3), manifold=manifold)
    plain = torch.nn.Parameter(torch.zeros(2))
    sphere = geoopt.ManifoldParameter(torch.eye(3), manifold=geoopt.Sphere())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for optimizer in (hkconv.RiemannianAdam, hkconv.RiemannianSGD, geoopt.optim.RiemannianAdam):
            take_steps_with(optimizer([parameter], lr=0.01), parameter)
        take_steps_with(torch.optim.Adam([plain]), plain)
        take_steps_with(torch.optim.Adam([sphere]), sphere)
