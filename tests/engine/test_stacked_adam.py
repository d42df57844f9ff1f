import geoopt
import torch

from hkconv import Lorentz, RiemannianAdam
from hkconv.engine.stacked_adam import StackedAdam
from hkconv.geometry import lorentz

RATES, DECAYS = (0.1, 0.001, 0.02), (0.0, 0.5, 0.01)


def test_each_row_takes_the_steps_of_an_optimizer_of_its_own(generator):
    start = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    points = lorentz.lift(torch.randn(3, 4, 2, generator=generator, dtype=torch.float64))
    steps = [(torch.randn_like(start), torch.randn_like(points)) for _ in range(4)]
    adam = StackedAdam(start.new_tensor(RATES), start.new_tensor(DECAYS))
    weights, moved = start.clone(), {"centers": points.clone()}
    for gradient, of_points in steps:
        adam.step(weights, gradient, torch.ones(5))
        adam.step_points(moved, [of_points], {"centers": Lorentz()})
    for row, (lr, decay) in enumerate(zip(RATES, DECAYS)):
        own = torch.nn.Parameter(start[row].clone())
        point = geoopt.ManifoldParameter(points[row].clone(), manifold=Lorentz())
        optimizer = RiemannianAdam([own, point], lr=lr, weight_decay=decay)
        for gradient, of_points in steps:
            own.grad, point.grad = gradient[row].clone(), of_points[row].clone()
            optimizer.step()
        torch.testing.assert_close(weights[row], own.detach())
        torch.testing.assert_close(moved["centers"][row], point.detach().as_subclass(torch.Tensor))


def test_what_the_loss_does_not_depend_on_does_not_decay():
    weights, is_used = torch.ones(2, 3), torch.tensor([1.0, 0.0, 1.0])
    points = {"centers": lorentz.lift(torch.ones(2, 1, 2))}
    adam = StackedAdam(torch.full((2,), 0.1), torch.full((2,), 0.5))
    adam.step(weights, torch.zeros(2, 3), is_used)
    adam.step_points(points, [None], {"centers": Lorentz()})
    assert (weights[:, 1] == 1).all() and (weights[:, ::2] < 1).all()
    assert torch.equal(points["centers"], lorentz.lift(torch.ones(2, 1, 2)))


def test_rows_that_are_kept_go_on_as_before(generator):
    gradients = torch.randn(4, 3, 5, generator=generator)
    starts = torch.randn(3, 5, generator=generator), lorentz.lift(torch.randn(3, 2, 4, generator=generator))
    found = {}
    for kept in ([0, 1, 2], [2, 0]):
        adam = StackedAdam(torch.tensor(RATES), torch.tensor(DECAYS))
        weights, points, rows = starts[0].clone(), {"centers": starts[1].clone()}, torch.arange(3)
        for number, gradient in enumerate(gradients):
            if number == 2:
                rows = torch.tensor(kept)
                adam.keep(rows)
                weights, points = weights[rows], {"centers": points["centers"][rows]}
            adam.step(weights, gradient[rows], torch.ones(5))
            adam.step_points(points, [gradient[rows].unsqueeze(1).expand(-1, 2, -1)], {"centers": Lorentz()})
        found[len(kept)] = weights, points["centers"]
    for whole, part in zip(found[3], found[2]):
        torch.testing.assert_close(whole[[2, 0]], part)
