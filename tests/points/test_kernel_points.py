import math
import time

import pytest
import torch

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.geometry.maps import max_radius
from hkconv.points import kernel_energy, kernel_points

CURVATURES = [-1.0, -0.3, -2.5]
PUBLISHED = [
    (2, 2, 2.828427),
    (3, 2, 6.335722),
    (4, 2, 10.534169),
    (4, 3, 10.495191),
    (5, 16, 15.205960),
    (8, 3, 32.549758),
    (10, 64, 45.300917),
    (10, 2, 47.186453),
]


@pytest.mark.parametrize("K,dim,energy", PUBLISHED)
def test_energy_at_or_below_the_known_optimum_in_under_a_second(K, dim, energy):
    start = time.process_time()  # of this process, so that a busy machine does not fail the test
    points = kernel_points(K, dim)
    assert time.process_time() - start < 1
    assert points.shape == (K, dim + 1) and points.dtype == torch.float64
    torch.testing.assert_close(points, lorentz.lift(points[:, 1:]), rtol=1e-15, atol=0)
    assert kernel_energy(points).item() <= energy + 5e-7


@pytest.mark.parametrize("curvature", CURVATURES)
@pytest.mark.parametrize("K,dim", [(3, 2), (4, 3), (5, 2), (8, 3), (7, 1)])
def test_stationary_and_not_lowered_by_any_small_move(K, dim, curvature):
    points = kernel_points(K, dim, curvature)
    tangent = lorentz.log0(points, curvature).requires_grad_()
    energy = kernel_energy(lorentz.exp0(tangent, curvature), curvature)
    (gradient,) = torch.autograd.grad(energy, tangent)
    at_origin = tangent.detach().norm(dim=-1) == 0
    assert at_origin.sum() <= 1
    assert gradient[~at_origin].abs().max() < 1e-8
    assert (gradient[at_origin].norm(dim=-1) < 1).all()  # less than the pull of the origin, which autograd leaves out
    generator = torch.Generator().manual_seed(0)
    for size in (1e-4, 1e-3, 1e-2):
        for _ in range(10):
            noise = torch.randn(K, dim, dtype=torch.float64, generator=generator) * size
            moved = lorentz.exp0(tangent.detach() + torch.nn.functional.pad(noise, (1, 0)), curvature)
            assert kernel_energy(moved, curvature) >= energy - 1e-12


@pytest.mark.parametrize("curvature", [-0.3, -2.5])
@pytest.mark.parametrize("K,dim", [(4, 2), (5, 16), (8, 3)])
def test_optimal_at_its_own_curvature_and_not_a_scaled_copy(K, dim, curvature):
    R = (-curvature) ** -0.5
    own = kernel_energy(kernel_points(K, dim, curvature), curvature)
    assert own < kernel_energy(R * kernel_points(K, dim), curvature) - 1e-3


@pytest.mark.parametrize("method", ["optimal", "gradient"])
def test_one_point_is_the_origin(method):
    expected = torch.tensor([[2.0, 0.0, 0.0]], dtype=torch.float64)
    assert torch.equal(kernel_points(1, 2, -0.25, method=method), expected)


@pytest.mark.parametrize("method", ["optimal", "random"])
def test_deterministic_in_the_seed_and_apart_from_global_randomness(method, monkeypatch):
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = kernel_points(7, 2, method=method, seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    monkeypatch.setattr("hkconv.points.cache._solved", {})
    monkeypatch.setattr("hkconv.points.cache._read", lambda key: None)
    torch.manual_seed(2)
    assert torch.equal(kernel_points(7, 2, method=method, seed=3), first)


def test_first_point_off_the_origin_lies_on_the_first_axis():
    free, centred = kernel_points(6, 3), kernel_points(10, 2)
    assert free[0, 1] > 0 and (free[0, 2:] == 0).all()
    assert (centred[0, 1:] == 0).all() and centred[1, 1] > 0 and (centred[1, 2:] == 0).all()


def test_curvature_as_a_tensor_carries_no_gradient():
    curvature = torch.tensor(-0.5, dtype=torch.float64, requires_grad=True)
    points = kernel_points(5, 2, curvature)
    assert not points.requires_grad and torch.equal(points, kernel_points(5, 2, -0.5))


@pytest.mark.parametrize("context", [torch.inference_mode, torch.no_grad, lambda: torch.device("meta")])
def test_made_in_any_context_and_used_in_training(context):
    with context():
        points = [kernel_points(5, 2), kernel_points(3, 4), kernel_points(3, 2, method="random")]
    for each in points:
        assert each.device.type == "cpu" and not each.is_inference()
    weight = torch.ones(3, dtype=torch.float64, requires_grad=True)
    (points[0] @ weight).sum().backward()
    assert weight.grad.isfinite().all()


@pytest.mark.parametrize("K,dim", [(64, 63), (64, 512)])
def test_many_points_in_high_dimension(K, dim):
    assert kernel_energy(kernel_points(K, dim)).item() == pytest.approx(740.074561, abs=1e-6)


@pytest.mark.parametrize("curvature", [-1e-9, -500.0])
def test_extreme_curvatures(curvature):
    points = kernel_points(6, 2, curvature)
    energy = kernel_energy(points, curvature).item()
    # Between the limits of a tree, where all distances are sums of radii, and of a flat line.
    tree = 2 * math.sqrt(6 * 15)
    assert tree - 1e-9 <= energy <= 2 * tree
    torch.testing.assert_close(points, lorentz.lift(points[:, 1:], curvature))


BAD = [
    ({"K": 0}, "K must be an integer of at least 1, got 0"),
    ({"K": 2.0}, "K must be an integer of at least 1, got 2.0"),
    ({"K": True}, "K must be an integer of at least 1, got True"),
    ({"dim": 0}, "dim must be an integer of at least 1, got 0"),
    ({"dim": "2"}, "dim must be an integer of at least 1, got '2'"),
    ({"curvature": 0.0}, "curvature must be a negative finite float or 0-d tensor, got 0.0"),
    ({"curvature": 1.0}, "curvature must be a negative finite float or 0-d tensor, got 1.0"),
    ({"curvature": math.nan}, "curvature must be a negative finite float or 0-d tensor, got nan"),
    ({"curvature": -math.inf}, "curvature must be a negative finite float or 0-d tensor, got -inf"),
    ({"curvature": "-1"}, "curvature must be a negative finite float or 0-d tensor, got '-1'"),
    ({"curvature": torch.tensor([-1.0])}, "curvature must be a negative finite float or 0-d tensor"),
    ({"curvature": torch.tensor(0.5)}, "curvature must be a negative finite float or 0-d tensor"),
    ({"curvature": -1e6}, "curvature must be above"),
    ({"method": "best"}, "method must be one of 'optimal', 'gradient', 'random', got 'best'"),
    ({"seed": -1}, "seed must be an integer from 0 to"),
    ({"seed": 2**64}, "seed must be an integer from 0 to"),
]


@pytest.mark.parametrize("wrong,message", BAD, ids=[f"{wrong}" for wrong, _ in BAD])
def test_bad_input(wrong, message, own_cache):
    with pytest.raises(InputError) as error:
        kernel_points(**{"K": 3, "dim": 2, **wrong})
    assert str(error.value).startswith(message) and "\n" not in str(error.value)
    assert not own_cache.exists()


def test_curvature_may_be_as_strong_as_the_points_can_be_represented():
    """The limit itself is that of the message; a percent beyond it there is none."""
    strongest = -(max_radius(torch.float64) ** 2) / 5
    assert kernel_points(4, 3, 0.999 * strongest).isfinite().all()
    with pytest.raises(InputError, match=f"curvature must be above {strongest:.0f} for K=4"):
        kernel_points(4, 3, 1.01 * strongest)
