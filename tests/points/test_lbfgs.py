import numpy as np

from hkconv.points.lbfgs import minimise


def rosenbrock(x):
    a, b = x[:, 0], x[:, 1]
    value = (1 - a) ** 2 + 100 * (b - a * a) ** 2
    return value, np.stack([-2 * (1 - a) - 400 * a * (b - a * a), 200 * (b - a * a)], axis=1)


def test_every_start_finds_the_minimum_of_a_curved_valley():
    start = np.array([[-1.2, 1.0], [0.0, 0.0], [3.0, -2.0], [1.0, 1.0]])
    x, value = minimise(rosenbrock, start, max_evaluations=300)
    np.testing.assert_allclose(x, 1, atol=1e-8)
    assert (value < 1e-16).all()


def test_starts_do_not_disturb_each_other():
    start = np.array([[-1.2, 1.0], [3.0, -2.0]])
    together, _ = minimise(rosenbrock, start, max_evaluations=25)
    for row, expected in zip(start, together):
        alone, _ = minimise(rosenbrock, row[None], max_evaluations=25)
        np.testing.assert_allclose(alone[0], expected, rtol=1e-9)


def test_steps_into_overflow_are_taken_back():
    def wall(x):
        return (np.exp(2000 * x) - x)[:, 0], 2000 * np.exp(2000 * x) - 1

    x, _ = minimise(wall, np.array([[-0.5], [0.0]]), max_evaluations=500)
    np.testing.assert_allclose(x, -np.log(2000) / 2000, rtol=1e-9)


def test_never_ends_above_its_start():
    start = np.random.default_rng(0).normal(size=(20, 2)) * 3
    _, value = minimise(rosenbrock, start, max_evaluations=7)
    assert (value <= rosenbrock(start)[0]).all()
