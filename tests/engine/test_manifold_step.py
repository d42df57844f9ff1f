import copy

import geoopt
import pytest
import torch
from watching import Operations, operations_of

from hkconv.engine.manifold_step import start_state, step_on_manifolds
from hkconv.geometry import lorentz
from hkconv.geometry.manifold import Lorentz

SHAPES = ((5, 4), (4,), (2, 3, 4))


def make_points(generator, dtype=torch.float64, shapes=SHAPES, curvature=-1.0):
    """Parameters of several shapes, each with a manifold object of its own, as the layers of a network have them."""
    points = []
    for shape in shapes:
        spatial = torch.randn(*shape[:-1], shape[-1] - 1, generator=generator, dtype=torch.float64).to(dtype)
        points.append(geoopt.ManifoldParameter(lorentz.lift(spatial, curvature), manifold=Lorentz(curvature)))
    return points


def draw_gradients(points, generator):
    for point in points:
        point.grad = torch.randn(point.shape, generator=generator, dtype=torch.float64).to(point.dtype)


def make_group(**changes):
    return {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-6, "step": "exp", "capturable": False, **changes}


@torch.no_grad()
def walk(points, generator, group, *, steps=4, late=None, one_by_one=False):
    """Several steps; the parameter ``late`` has its first gradient in the third."""
    states = {}
    for number in range(steps):
        draw_gradients(points, generator)
        moving = [point for index, point in enumerate(points) if index != late or number >= 2]
        for point in moving:
            if id(point) not in states:
                states[id(point)] = start_state(point, group["capturable"])
        for some in [[point] for point in moving] if one_by_one else [moving]:
            step_on_manifolds(some, [states[id(point)] for point in some], group)
    return [point.detach() for point in points], [states[id(point)] for point in points]


@pytest.mark.parametrize("late", [None, 1])
@pytest.mark.parametrize("capturable", [False, True])
def test_together_equals_one_by_one(dtype, curvature, late, capturable):
    outcomes = []
    for one_by_one in (False, True):
        generator = torch.Generator().manual_seed(0)
        points = make_points(generator, dtype, curvature=curvature)
        group = make_group(capturable=capturable and not one_by_one)
        outcomes.append(walk(points, generator, group, late=late, one_by_one=one_by_one))
    (together, states), (alone, alone_states) = outcomes
    torch.testing.assert_close(together, alone)
    for state, alone_state, point in zip(states, alone_states, together):
        # Momentum is kept at the origin, where it has no time.
        assert state["exp_avg"].shape == (*point.shape[:-1], point.size(-1) - 1)
        assert state["exp_avg_sq"].shape == (*point.shape[:-1], 1)
        torch.testing.assert_close(state, alone_state)


def test_work_does_not_grow_with_the_number_of_parameters(generator):
    counts = []
    for number in (2, 20):
        points = make_points(generator, shapes=SHAPES[:1] * number)
        draw_gradients(points, generator)
        states = [start_state(point, False) for point in points]
        with torch.no_grad():
            seen = operations_of(lambda points=points, states=states: step_on_manifolds(points, states, make_group()))
        # What reads a parameter's place in memory or its own counter costs next to nothing.
        free = ("aten.view", "aten._unsafe_view", "aten.detach", "aten._local_scalar_dense")
        counts.append(sum(count for name, count in seen.items() if name not in free))
    assert counts[0] == counts[1]


def test_a_lorentz_point_is_lifted_once(generator, monkeypatch):
    """The maps end on the manifold; a projection would repeat their last line."""
    monkeypatch.setattr(Lorentz, "projx", lambda *_: pytest.fail("projected again"))
    points, _ = walk(make_points(generator), generator, make_group())
    for point in points:
        assert torch.equal(point, lorentz.lift(point[..., 1:]))


def test_other_spaces_are_not_mixed(generator):
    """Different curvatures, widths and manifolds step beside each other."""
    sphere = torch.nn.functional.normalize(torch.randn(3, 4, generator=generator, dtype=torch.float64))
    mixed = [
        *make_points(generator, shapes=[(3, 4)]),
        *make_points(generator, shapes=[(3, 4)], curvature=-2.0),
        *make_points(generator, shapes=[(3, 6)]),
        *make_points(generator, torch.float32, shapes=[(3, 4)]),
        geoopt.ManifoldParameter(sphere, manifold=geoopt.Sphere()),
        geoopt.ManifoldParameter(torch.eye(4, dtype=torch.float64), manifold=geoopt.EuclideanStiefel()),
        geoopt.ManifoldParameter(torch.eye(4, dtype=torch.float64), manifold=geoopt.EuclideanStiefel()),
        geoopt.ManifoldParameter(lorentz.lift(torch.ones(2, 3)), manifold=Lorentz(learnable=True)),
    ]
    twins = copy.deepcopy(mixed)
    together, _ = walk(mixed, torch.Generator().manual_seed(1), make_group())
    alone, _ = walk(twins, torch.Generator().manual_seed(1), make_group(), one_by_one=True)
    for mine, other in zip(together, alone):
        assert torch.equal(mine, other)


def test_a_capturable_step_reads_nothing(generator):
    points = make_points(generator)
    draw_gradients(points, generator)
    group = make_group(capturable=True)
    states = [start_state(point, True) for point in points]
    with Operations() as seen, torch.no_grad():
        step_on_manifolds(points, states, group)
    assert seen.reads == 0
    assert [state["step"].item() for state in states] == [1.0] * len(points)


@pytest.mark.parametrize("sideways", [0.0, 0.3])
def test_a_point_that_is_driven_outwards_goes_at_the_pace_of_the_learning_rate(dtype, sideways, generator):
    """To radius 12, where in float32 the coordinates of a tangent vector have long lost its length."""
    manifold, group = Lorentz(), make_group(lr=0.02, betas=(0.9, 0.999), eps=1e-8)
    space = 0.3 * torch.randn(4, 16, generator=generator, dtype=torch.float64).to(dtype)
    point = geoopt.ManifoldParameter(lorentz.lift(space), manifold=manifold)
    state = None
    with torch.no_grad():
        for _ in range(600):
            space, time = point[:, 1:], point[:, :1]
            ray = space / space.norm(dim=-1, keepdim=True)
            across = sideways * torch.randn(4, 16, generator=generator, dtype=torch.float64).to(dtype)
            across = across - (across * ray).sum(-1, keepdim=True) * ray
            point.grad = torch.nn.functional.pad(across - ray / time, (1, 0))
            state = state or start_state(point, False)
            before = point.clone()
            step_on_manifolds([point], [state], group)
            # A point itself is rounded by as much as the last term.
            assert manifold.dist(before, point).max() < 1.05 * 0.02 + torch.finfo(dtype).eps * point[:, 0].max()
    radius = torch.asinh(point[:, 1:].norm(dim=-1))
    assert radius.min() > (12 if sideways == 0 else 8)
