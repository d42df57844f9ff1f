import copy
import math
import pickle
from types import SimpleNamespace

import geoopt
import pytest
import torch
from watching import Operations, needs_cuda, operations_of

from hkconv.engine.optimizer import RiemannianAdam, RiemannianSGD, start_state, step_on_manifolds
from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.geometry.manifold import Lorentz
from hkconv.ops import rows
from hkconv.ops.backends import ALIGNMENT

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
    numbers = {"lr": 0.1, "betas": (0.8, 0.95), "eps": 1e-6}
    return {**numbers, "step": "exp", "capturable": False, "maximize": False, **changes}


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


def random_points(count, dim, curvature, dtype, generator):
    spatial = torch.randn(count, dim, generator=generator, dtype=torch.float64)
    return lorentz.lift(spatial, curvature).to(dtype)


def manifold_parameter(count, curvature, dtype, generator, dim=3):
    points = lorentz.lift(random_points(count, dim, curvature, dtype, generator)[:, 1:], curvature)
    return geoopt.ManifoldParameter(points, manifold=Lorentz(curvature))


def spread(parameter, targets, curvature):
    """Sum of squared distances of every point of the parameter to every target."""
    return lorentz.dist(parameter[:, None], targets[None], curvature).square().mean(1).sum()


def take_steps(optimizer, loss_of, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of().backward()
        optimizer.step()


@pytest.mark.parametrize("step", ["exp", "retraction"])
def test_reaches_the_frechet_mean_on_the_manifold(dtype, curvature, step, generator):
    targets = random_points(6, 3, curvature, dtype, generator)
    parameter = manifold_parameter(2, curvature, dtype, generator)
    optimizer = RiemannianAdam([parameter], lr=0.2, betas=(0.9, 0.95), step=step)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.96)
    for _ in range(250):
        take_steps(optimizer, lambda: spread(parameter, targets, curvature), 1)
        scheduler.step()
    point = parameter.detach()
    assert torch.equal(point, lorentz.lift(point[:, 1:], curvature))
    # At the Fréchet mean the logarithms of the targets sum to zero.
    pull = lorentz.log(point[:, None], targets[None], curvature).mean(1)
    limit = 1e-4 if dtype == torch.float64 else 1e-3
    assert pull.abs().max() < limit


def test_equals_the_equations(dtype, curvature, generator):
    targets = random_points(5, 3, curvature, dtype, generator)
    parameter = manifold_parameter(4, curvature, dtype, generator)
    point = parameter.detach().clone()
    optimizer = RiemannianAdam([parameter], lr=0.05, betas=(0.8, 0.95), eps=1e-6)
    take_steps(optimizer, lambda: spread(parameter, targets, curvature), 5)
    momentum, second = torch.zeros_like(point), torch.zeros(len(point), 1, dtype=dtype)
    R2 = -1 / curvature
    for t in range(1, 6):
        x = point.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(spread(x, targets, curvature), x)
        raised = torch.cat([-gradient[:, :1], gradient[:, 1:]], 1)
        riemannian = raised + lorentz.inner(point, raised, curvature)[:, None] / R2 * point
        momentum = 0.8 * momentum + 0.2 * riemannian
        second = 0.95 * second + 0.05 * lorentz.inner(riemannian, riemannian, curvature)[:, None]
        direction = (momentum / (1 - 0.8**t)) / ((second / (1 - 0.95**t)).sqrt() + 1e-6)
        phi = (lorentz.inner(direction, direction, curvature).clamp(min=0).sqrt() * 0.05 / R2**0.5)[:, None]
        moved = torch.cosh(phi) * point - torch.sinh(phi) / phi * 0.05 * direction
        factor = lorentz.inner(moved, momentum, curvature) / (R2 - lorentz.inner(point, moved, curvature))
        momentum = momentum + factor[:, None] * (point + moved)
        point = moved
    tolerance = 1e-10 if dtype == torch.float64 else 2e-4
    torch.testing.assert_close(parameter.detach(), point, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("step", ["exp", "retraction"])
def test_step_kind_chooses_between_the_manifolds_maps(dtype, step, generator):
    """On the sphere the two differ; the first step of Adam has length lr."""
    start = torch.nn.functional.normalize(torch.randn(4, 3, generator=generator, dtype=torch.float64)).to(dtype)
    slope = torch.randn(4, 3, generator=generator, dtype=torch.float64).to(dtype)
    point = geoopt.ManifoldParameter(start.clone(), manifold=geoopt.Sphere())
    optimizer = RiemannianAdam([point], lr=0.5, eps=0.0, step=step)
    take_steps(optimizer, lambda: (point * slope).sum(), 1)
    tangent = slope - (slope * start).sum(-1, keepdim=True) * start
    downhill = -0.5 * torch.nn.functional.normalize(tangent)
    along = torch.cos(torch.tensor(0.5)) * start + torch.sin(torch.tensor(0.5)) * downhill / 0.5
    expected = along if step == "exp" else torch.nn.functional.normalize(start + downhill)
    torch.testing.assert_close(point.detach(), expected, rtol=1e-5, atol=1e-5)


def test_orthogonal_matrices_equal_the_equations(dtype, generator):
    """A matrix of the Stiefel manifold is one point: its gradient has one length."""
    start, slope = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64).to(dtype)
    start = torch.linalg.qr(start)[0]
    parameter = geoopt.ManifoldParameter(start.clone(), manifold=geoopt.EuclideanStiefel())
    optimizer = RiemannianAdam([parameter], lr=0.1, betas=(0.8, 0.95), eps=1e-6, weight_decay=10.0, step="retraction")
    take_steps(optimizer, lambda: (slope * parameter).sum() + parameter.pow(4).sum(), 5)

    def tangent(x, v):
        return v - x @ (x.T @ v + v.T @ x) / 2

    x, m, v = start.double(), torch.zeros(5, 3, dtype=torch.float64), 0.0
    for t in range(1, 6):
        gradient = tangent(x, slope.double() + 4 * x**3)
        m = 0.8 * m + 0.2 * gradient
        v = 0.95 * v + 0.05 * gradient.square().sum()
        q, r = torch.linalg.qr(x - 0.1 * (m / (1 - 0.8**t)) / ((v / (1 - 0.95**t)).sqrt() + 1e-6))
        x = q * r.diagonal().sign()
        m = tangent(x, m)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(parameter.detach().double(), x, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("step", ["exp", "retraction"])
def test_orthogonal_matrices_reach_the_nearest_and_stay_orthogonal(dtype, step, generator):
    """The nearest rotation to a matrix of positive determinant is its polar factor."""
    aim = torch.randn(4, 4, generator=generator, dtype=torch.float64)
    aim[0] *= aim.det().sign()
    U, _, V = torch.linalg.svd(aim)
    parameter = geoopt.ManifoldParameter(torch.eye(4, dtype=dtype), manifold=geoopt.EuclideanStiefel())
    points = manifold_parameter(2, -1.0, dtype, generator)
    optimizer = RiemannianAdam([parameter, points], lr=0.05, step=step)
    take_steps(optimizer, lambda: (parameter - aim.to(dtype)).square().sum() + points.square().sum(), 250)
    torch.testing.assert_close(parameter.detach(), (U @ V).to(dtype), atol=1e-3, rtol=1e-3)
    gap = parameter.detach().T @ parameter.detach() - torch.eye(4, dtype=dtype)
    assert gap.abs().max() < 10 * torch.finfo(dtype).eps


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_euclidean_parameters_equal_torch_adam(dtype, weight_decay, generator):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).to(dtype)
    twin = copy.deepcopy(model)
    x = torch.randn(16, 4, generator=generator).to(dtype)
    curved = manifold_parameter(2, -1.0, dtype, generator)
    ours = RiemannianAdam([*model.parameters(), curved], lr=0.03, weight_decay=weight_decay)
    theirs = torch.optim.Adam(twin.parameters(), lr=0.03, weight_decay=weight_decay)
    targets = random_points(3, 3, -1.0, dtype, generator)
    take_steps(ours, lambda: model(x).square().sum() + spread(curved, targets, -1.0), 7)
    take_steps(theirs, lambda: twin(x).square().sum(), 7)
    for mine, torchs in zip(model.parameters(), twin.parameters()):
        assert torch.equal(mine, torchs)


def test_one_switch_makes_it_adamw(dtype, generator):
    plain = torch.nn.Parameter(torch.randn(5, 3, generator=generator).to(dtype))
    twin = copy.deepcopy(plain)
    curved = manifold_parameter(2, -1.0, dtype, generator)
    free = copy.deepcopy(curved)
    targets = random_points(3, 3, -1.0, dtype, generator)
    ours = RiemannianAdam([plain, curved], lr=0.03, weight_decay=0.5, decoupled_weight_decay=True)
    theirs, undecayed = torch.optim.AdamW([twin], lr=0.03, weight_decay=0.5), RiemannianAdam([free], lr=0.03)
    take_steps(ours, lambda: plain.pow(4).sum() + spread(curved, targets, -1.0), 7)
    take_steps(theirs, lambda: twin.pow(4).sum(), 7)
    take_steps(undecayed, lambda: spread(free, targets, -1.0), 7)
    assert torch.equal(plain, twin) and torch.equal(curved, free)
    penalty = copy.deepcopy(plain)
    assert RiemannianAdam([penalty]).param_groups[0]["decoupled_weight_decay"] is False


MOMENTA = [{}, {"momentum": 0.7}, {"momentum": 0.7, "dampening": 0.2}, {"momentum": 0.7, "nesterov": True}]


@pytest.mark.parametrize("options", MOMENTA, ids=str)
def test_sgd_equals_the_equations(dtype, curvature, options, generator):
    targets = random_points(5, 3, curvature, dtype, generator)
    parameter = manifold_parameter(4, curvature, dtype, generator)
    point, momentum, R2 = parameter.detach().clone(), None, -1 / curvature
    optimizer = RiemannianSGD([parameter], lr=0.02, **options)
    take_steps(optimizer, lambda: spread(parameter, targets, curvature), 5)
    mu = options.get("momentum", 0)
    for _ in range(5):
        x = point.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(spread(x, targets, curvature), x)
        raised = torch.cat([-gradient[:, :1], gradient[:, 1:]], 1)
        riemannian = raised + lorentz.inner(point, raised, curvature)[:, None] / R2 * point
        first = momentum is None
        momentum = riemannian if first else mu * momentum + (1 - options.get("dampening", 0)) * riemannian
        along = 0.02 * (riemannian + mu * momentum if options.get("nesterov") else momentum)
        phi = (lorentz.inner(along, along, curvature).clamp(min=0) / R2).sqrt()[:, None]
        moved = torch.cosh(phi) * point - torch.sinh(phi) / phi * along
        factor = lorentz.inner(moved, momentum, curvature) / (R2 - lorentz.inner(point, moved, curvature))
        point, momentum = moved, momentum + factor[:, None] * (point + moved)
    tolerance = 1e-10 if dtype == torch.float64 else 2e-4
    torch.testing.assert_close(parameter.detach(), point, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("options", MOMENTA, ids=str)
@pytest.mark.parametrize("maximize", [False, True])
def test_euclidean_parameters_equal_torch_sgd(options, maximize, generator):
    plain = torch.nn.Parameter(torch.randn(5, 3, generator=generator))
    twin, curved = copy.deepcopy(plain), manifold_parameter(2, -1.0, torch.float32, generator)
    sign = -1 if maximize else 1
    ours = RiemannianSGD([plain, curved], lr=0.03, weight_decay=0.1, **options)
    theirs = torch.optim.SGD([twin], lr=0.03, weight_decay=0.1, maximize=maximize, **options)
    ours.param_groups[0]["maximize"] = maximize
    targets, before = random_points(3, 3, -1.0, torch.float32, generator), curved.detach().clone()
    take_steps(ours, lambda: sign * (plain.square().sum() + spread(curved, targets, -1.0)), 5)
    take_steps(theirs, lambda: sign * twin.square().sum(), 5)
    assert torch.equal(plain, twin)
    assert spread(curved, targets, -1.0) < spread(before, targets, -1.0)


def test_sgd_goes_on_alike_from_its_state(generator):
    targets = random_points(3, 3, -1.0, torch.float64, generator)
    first = manifold_parameter(2, -1.0, torch.float64, generator)
    optimizer = RiemannianSGD([first], lr=0.02, momentum=0.9, step="retraction")
    take_steps(optimizer, lambda: spread(first, targets, -1.0), 3)
    second = copy.deepcopy(first)
    resumed = RiemannianSGD([second], lr=0.5)
    resumed.load_state_dict(optimizer.state_dict())
    for parameter, each in ((first, optimizer), (second, resumed)):
        take_steps(each, lambda parameter=parameter: spread(parameter, targets, -1.0), 3)
    assert torch.equal(first, second)


def test_every_manifold_parameter_of_a_group_moves_as_it_would_alone(generator):
    """In one group with matrices and weights; one of them is still without a gradient."""
    together = [
        *make_points(generator),
        geoopt.ManifoldParameter(torch.eye(4, dtype=torch.float64), manifold=geoopt.EuclideanStiefel()),
        torch.nn.Parameter(torch.randn(3, generator=generator, dtype=torch.float64)),
        *make_points(generator),
    ]
    alone, start = copy.deepcopy(together), [parameter.detach().clone() for parameter in together]
    optimizers = [RiemannianAdam(together, lr=0.1), *(RiemannianAdam([parameter], lr=0.1) for parameter in alone)]
    for _ in range(3):
        for parameter, twin in zip(together[:-1], alone[:-1]):
            twin.grad = parameter.grad = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        for optimizer in optimizers:
            optimizer.step()
    for parameter, twin, before in zip(together[:-1], alone, start):
        assert not torch.equal(parameter, before)
        torch.testing.assert_close(parameter.detach(), twin.detach())
    assert torch.equal(together[-1], start[-1])


@pytest.mark.parametrize("capturable", [False, True])
@pytest.mark.parametrize("step", ["exp", "retraction"])
def test_to_maximize_is_to_minimize_the_negative(step, capturable, generator):
    """As torch's Adam does for Euclidean parameters, in a group of its own beside one that minimizes."""
    sphere = torch.nn.functional.normalize(torch.randn(3, 4, generator=generator, dtype=torch.float64))
    curved = [
        *make_points(generator, shapes=SHAPES[:1]),
        geoopt.ManifoldParameter(sphere, manifold=geoopt.Sphere()),
        geoopt.ManifoldParameter(torch.eye(4, dtype=torch.float64)[:, :2], manifold=geoopt.EuclideanStiefel()),
    ]
    # Torch refuses to count on the CPU for Euclidean parameters.
    flat = [] if capturable else [torch.nn.Parameter(torch.ones(3, dtype=torch.float64))]
    up, down, beside = [*curved, *flat], copy.deepcopy([*curved, *flat]), make_points(generator, shapes=SHAPES[:1])
    slopes = [torch.randn(parameter.shape, generator=generator, dtype=torch.float64) for parameter in up]

    def height(parameters):
        return sum((slope * parameter).sum() for slope, parameter in zip(slopes, parameters))

    groups = [{"params": up, "maximize": True}, {"params": beside}]
    climber = RiemannianAdam(groups, lr=0.05, step=step, capturable=capturable)
    other = RiemannianAdam(down, lr=0.05, step=step, capturable=capturable)
    before, first = height(up).item(), beside[0][:, 0].sum().item()
    take_steps(climber, lambda: height(up) + beside[0][:, 0].sum(), 4)
    take_steps(other, lambda: -height(down), 4)
    assert height(up) > before and beside[0][:, 0].sum() < first
    for mine, theirs in zip(up, down):
        assert torch.equal(mine, theirs)


def test_a_euclidean_manifold_parameter_is_euclidean(generator):
    start = torch.randn(3, 2, generator=generator)
    mine, plain = geoopt.ManifoldParameter(start.clone()), torch.nn.Parameter(start.clone())
    take_steps(RiemannianAdam([mine], lr=0.1, weight_decay=0.1), lambda: mine.square().sum(), 4)
    take_steps(torch.optim.Adam([plain], lr=0.1, weight_decay=0.1), lambda: plain.square().sum(), 4)
    assert torch.equal(mine.data, plain.data)


def test_weight_decay_leaves_manifold_parameters_alone(dtype, curvature, generator):
    targets = random_points(3, 3, curvature, dtype, generator)
    first = manifold_parameter(2, curvature, dtype, generator)
    second = copy.deepcopy(first)
    for parameter, weight_decay in ((first, 0.0), (second, 10.0)):
        optimizer = RiemannianAdam([parameter], lr=0.05, weight_decay=weight_decay)
        take_steps(optimizer, lambda parameter=parameter: spread(parameter, targets, curvature), 5)
    assert torch.equal(first, second)


def make_problem(dtype, curvature):
    generator = torch.Generator().manual_seed(3)
    targets = random_points(5, 3, curvature, dtype, generator)
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(torch.randn(3, 3, generator=generator).to(dtype))
    module.centers = manifold_parameter(2, curvature, dtype, generator)

    def loss():
        return spread(module.centers, targets, curvature) + module.weight.square().sum()

    return module, loss


@pytest.mark.parametrize("step", ["exp", "retraction"])
def test_resumed_run_equals_uninterrupted_run(dtype, curvature, step, tmp_path):
    module, loss = make_problem(dtype, curvature)
    optimizer = RiemannianAdam(module.parameters(), lr=0.05, weight_decay=0.01, step=step)
    take_steps(optimizer, loss, 4)
    torch.save({"module": module.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "state.pt")
    take_steps(optimizer, loss, 4)

    resumed, resumed_loss = make_problem(dtype, curvature)
    other = RiemannianAdam(resumed.parameters(), lr=1.0)
    state = torch.load(tmp_path / "state.pt")
    resumed.load_state_dict(state["module"])
    other.load_state_dict(state["optimizer"])
    take_steps(other, resumed_loss, 4)
    assert other.param_groups[0]["step"] == step
    assert torch.equal(module.weight, resumed.weight)
    assert torch.equal(module.centers, resumed.centers)


def test_state_of_torch_adam_can_be_loaded(generator):
    parameter = torch.nn.Parameter(torch.randn(3, generator=generator))
    adam = torch.optim.Adam([parameter])
    take_steps(adam, lambda: parameter.square().sum(), 2)
    ours = RiemannianAdam([parameter], step="retraction")
    ours.load_state_dict(adam.state_dict())
    take_steps(ours, lambda: parameter.square().sum(), 1)
    assert ours.param_groups[0]["step"] == "retraction"


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))])
def test_copies_go_on_alike(duplicate):
    module, loss = make_problem(torch.float64, -1.0)
    optimizer = RiemannianAdam(module.parameters(), lr=0.05, step="retraction")
    take_steps(optimizer, loss, 3)
    twin = duplicate(optimizer)
    gradients = [parameter.grad.clone() for parameter in module.parameters()]
    for parameter, gradient in zip(twin.param_groups[0]["params"], gradients):
        parameter.grad = gradient
    optimizer.step()
    twin.step()
    for mine, theirs in zip(module.parameters(), twin.param_groups[0]["params"]):
        assert torch.equal(mine, theirs)


def test_groups_schedulers_closures_and_missing_gradients(generator):
    module, loss = make_problem(torch.float64, -1.0)
    unused = manifold_parameter(1, -1.0, torch.float64, generator)
    before = unused.detach().clone()
    groups = [{"params": [module.centers], "lr": 0.0}, {"params": [module.weight, unused], "step": "retraction"}]
    optimizer = RiemannianAdam(groups, lr=0.05)
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(2))]})
    assert [group["step"] for group in optimizer.param_groups] == ["exp", "retraction", "exp"]
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    centers, weight = module.centers.detach().clone(), module.weight.detach().clone()

    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    expected = loss().detach()
    assert optimizer.step(closure) == expected
    scheduler.step()
    torch.testing.assert_close(module.centers.detach(), centers, atol=1e-12, rtol=0)
    assert not torch.equal(module.weight, weight)
    assert torch.equal(unused, before)
    assert optimizer.param_groups[1]["lr"] == 0.025


def test_hooks_fire_once():
    module, loss = make_problem(torch.float64, -1.0)
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])
    optimizer = RiemannianAdam(module.parameters())
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    take_steps(optimizer, loss, 2)
    assert len(calls) == 2


def test_compiled_training_step_moves_manifold_parameters_every_time():
    module, loss = make_problem(torch.float64, -1.0)
    twin, twin_loss = make_problem(torch.float64, -1.0)
    optimizer, other = (RiemannianAdam(m.parameters(), lr=0.05) for m in (module, twin))
    compiled = torch.compile(lambda: other.step(), backend="eager")
    for _ in range(3):
        take_steps(optimizer, loss, 1)
        other.zero_grad()
        twin_loss().backward()
        compiled()
    assert torch.equal(module.centers, twin.centers)
    assert torch.equal(module.weight, twin.weight)


def test_unknown_step_is_refused():
    parameter = torch.nn.Parameter(torch.zeros(2))
    with pytest.raises(InputError, match=r"step must be 'exp' or 'retraction', got 'log'"):
        RiemannianAdam([parameter], step="log")
    with pytest.raises(InputError, match=r"step must be 'exp' or 'retraction', got 'log'"):
        RiemannianSGD([parameter], step="log")
    optimizer = RiemannianAdam([parameter])
    with pytest.raises(InputError, match="step must be"):
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(1))], "step": "log"})


SMALL_SHAPES = ((16, 17), (16,), (4, 16, 17), ())


def small_parameters(device="cpu", count=20):
    generator = torch.Generator().manual_seed(5)
    shapes = (SMALL_SHAPES[index % len(SMALL_SHAPES)] for index in range(count))
    parameters = [torch.nn.Parameter(torch.randn(shape, generator=generator).to(device)) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(device)
    return parameters


def test_a_euclidean_step_is_torchs_foreach_step_and_nothing_more():
    ours, theirs = RiemannianAdam(small_parameters()), torch.optim.Adam(small_parameters(), foreach=True)
    for _ in range(2):
        mine, torchs = operations_of(ours.step), operations_of(theirs.step)
        assert mine == torchs
    assert mine["aten._foreach_addcdiv_"] == 1
    for parameter, twin in zip(ours.param_groups[0]["params"], theirs.param_groups[0]["params"]):
        assert torch.equal(parameter, twin)


def test_scalars_and_small_shapes_equal_torch_adam_without_foreach():
    ours = RiemannianAdam(small_parameters(), lr=0.02, weight_decay=0.1)
    theirs = torch.optim.Adam(small_parameters(), lr=0.02, weight_decay=0.1, foreach=False)
    for _ in range(4):
        ours.step()
        theirs.step()
    for parameter, twin in zip(ours.param_groups[0]["params"], theirs.param_groups[0]["params"]):
        assert torch.equal(parameter, twin)


def test_the_state_of_torch_adam_does_not_make_it_slow():
    theirs = torch.optim.Adam(small_parameters())
    theirs.step()
    ours = RiemannianAdam(small_parameters())
    ours.load_state_dict(theirs.state_dict())
    assert operations_of(ours.step)["aten._foreach_addcdiv_"] == 1


def test_a_capturable_step_counts_where_the_point_is(generator):
    point = manifold_parameter(2, -1.0, torch.float64, generator)
    twin = copy.deepcopy(point)
    targets = random_points(3, 3, -1.0, torch.float64, generator)
    take_steps(RiemannianAdam([point], lr=0.1, capturable=True), lambda: spread(point, targets, -1.0), 5)
    take_steps(RiemannianAdam([twin], lr=0.1), lambda: spread(twin, targets, -1.0), 5)
    torch.testing.assert_close(point.detach(), twin.detach())


@pytest.fixture
def take_kernels(monkeypatch):
    """Let points move by their kernel from now on, in Triton's interpreter where there is no GPU; return the device."""
    pytest.importorskip("triton")

    def take() -> str:
        if torch.cuda.is_available():
            return "cuda"
        from hkconv.ops import rows_cuda

        monkeypatch.setattr(rows, "are_fused", lambda x, width, curvature: True)
        monkeypatch.setattr(rows, "backend", lambda x: rows_cuda)
        return "cpu"

    return take


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("radius", [0.01, 1.0, 8.0])
def test_points_move_by_their_kernel_as_by_the_equations(radius, maximize, curvature, dtype, take_kernels):
    outcomes = []
    for take in (lambda: "cpu", take_kernels):
        generator, device = torch.Generator().manual_seed(0), take()
        space = torch.randn(3, 5, 4, generator=generator, dtype=torch.float64)
        space = radius_to_length(radius, curvature) * space / space.norm(dim=-1, keepdim=True)
        point = geoopt.ManifoldParameter(
            lorentz.lift(space, curvature).to(dtype).to(device), manifold=Lorentz(curvature)
        )
        state = None
        for _ in range(3):
            point.grad = torch.randn(3, 5, 5, generator=generator, dtype=torch.float64).to(dtype).to(device)
            state = state or start_state(point, capturable=device == "cuda")
            with torch.no_grad():
                step_on_manifolds([point], [state], make_group(capturable=device == "cuda", maximize=maximize))
        outcomes.append([point.detach().cpu(), state["exp_avg"].cpu(), state["exp_avg_sq"].cpu()])
    (plain, *moments), (fused, *others) = outcomes
    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12}[dtype] * (1 + radius) ** 2
    assert lorentz.dist(plain.double(), fused.double(), curvature).max() < tolerance
    for mine, theirs in zip(moments, others):
        torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance * mine.abs().max().item())


@pytest.mark.parametrize("betas", [(0.0, 0.95), (0.8, 0.0)], ids=str)
def test_a_beta_of_zero_keeps_nothing_by_the_kernel_either(betas, generator, take_kernels):
    start, gradients = (lorentz.lift(torch.randn(2, 5, 4, generator=generator, dtype=torch.float64)) for _ in range(2))
    moved = []
    for take in (lambda: "cpu", take_kernels):
        device = take()
        point = geoopt.ManifoldParameter(start[0].to(device), manifold=Lorentz())
        optimizer = RiemannianAdam([point], lr=0.1, betas=betas)
        for gradient in gradients:
            point.grad = gradient.to(device)
            optimizer.step()
        moved.append(point.detach().cpu())
    torch.testing.assert_close(*moved)


def test_points_of_each_network_move_by_its_rate_by_the_kernel_too(generator, take_kernels):
    start, gradient = (lorentz.lift(torch.randn(3, 2, 4, generator=generator, dtype=torch.float64)) for _ in range(2))
    moved = []
    for take in (lambda: "cpu", take_kernels):
        device = take()
        point = geoopt.ManifoldParameter(start.to(device), manifold=Lorentz())
        point.grad = gradient.to(device)
        rates = torch.tensor([0.1, 0.001, 0.02], device=device).view(3, 1, 1)
        with torch.no_grad():
            step_on_manifolds([point], [start_state(point, True)], make_group(lr=rates, capturable=True))
        moved.append(point.detach().cpu())
    torch.testing.assert_close(*moved)


def test_all_numbers_of_a_step_are_where_a_kernel_is_launched_quickest(monkeypatch):
    """Without a look at its arguments, see Launcher."""
    given = []
    kernels = SimpleNamespace(move_points=lambda points, grad, moments, *numbers: given.extend(numbers[:2]))
    monkeypatch.setattr(rows, "are_fused", lambda x, width, curvature: True)
    monkeypatch.setattr(rows, "backend", lambda x: kernels)
    point = geoopt.ManifoldParameter(lorentz.lift(torch.ones(2, 3)), manifold=Lorentz())
    point.grad = torch.ones(2, 4)
    step_on_manifolds([point], [start_state(point, capturable=False)], make_group(lr=0.25))
    assert [number.item() for number in given] == [0.25, 1]
    assert [number.data_ptr() % ALIGNMENT for number in given] == [0, 0]


def radius_to_length(radius, curvature):
    R = (-curvature) ** -0.5
    return R * math.sinh(radius)


@needs_cuda
@pytest.mark.parametrize("capturable", [False, True])
def test_a_step_on_the_gpu_never_waits_and_equals_the_one_on_the_cpu(capturable):
    module, _ = make_problem(torch.float64, -1.0)
    gpu = copy.deepcopy(module).cuda()
    optimizer = RiemannianAdam(module.parameters(), lr=0.05)
    other = RiemannianAdam(gpu.parameters(), lr=0.05, capturable=capturable)
    for seed in range(4):
        drawn = torch.Generator().manual_seed(seed)
        for mine, theirs in zip(module.parameters(), gpu.parameters()):
            mine.grad = torch.randn(mine.shape, generator=drawn, dtype=torch.float64)
            theirs.grad = mine.grad.cuda()
        optimizer.step()
        torch.cuda.set_sync_debug_mode("error")
        try:
            other.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    # Torch computes 1 - beta^t in float32 when it counts on the device.
    for mine, theirs in zip(module.parameters(), gpu.parameters()):
        torch.testing.assert_close(theirs.detach().cpu(), mine.detach(), rtol=1e-4, atol=1e-4)


def test_steps_are_counted_on_the_device_for_a_graph_alone():
    point = geoopt.ManifoldParameter(torch.empty(2, 4, device="meta"), manifold=Lorentz())
    point.grad = torch.empty(2, 4, device="meta")
    assert [start_state(point, capturable)["step"].device.type for capturable in (False, True)] == ["cpu", "meta"]
