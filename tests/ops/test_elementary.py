import mpmath
import numpy as np
import pytest
import torch

from hkconv.ops import native

exp_of, log1p_of = "exponential_of", "log1p_of"


def values(function, arguments, dtype=np.float32):
    """The function of each argument; few ones are repeated, so that all lanes and a rest of them run."""
    arguments = np.asarray(arguments, dtype=dtype)
    times = 33 if arguments.size < 1000 else 1
    repeated = torch.from_numpy(np.repeat(arguments, times))
    out = torch.full_like(repeated, 7)
    native.call_typed(function, out.dtype, out.numel(), repeated, out)
    found = out.numpy().reshape(-1, times)
    np.testing.assert_array_equal(found, np.broadcast_to(found[:, :1], found.shape))
    return found[:, 0]


def positive_floats(step):
    """Every ``step``-th float32 from 0 over the subnormal ones to the largest."""
    return np.arange(0, 0x7F800000, step, dtype=np.int64).astype(np.int32).view(np.float32)


def relative_error(ours, exact):
    assert ours.dtype == np.float32
    scale = np.where(exact == 0, 1, exact)
    return np.max(np.abs(ours - exact) / scale)


def ulps(ours, exact):
    """Distance from sixty digits, in units of the last place."""
    assert ours.dtype == np.float64
    return max(abs(mpmath.mpf(float(a)) - b) / float(np.spacing(abs(a))) for a, b in zip(ours, exact))


def test_exp_in_float32_over_its_whole_range():
    x = np.concatenate([np.linspace(-87, 88, 700_001), np.linspace(-1, 1, 100_001)]).astype(np.float32)
    assert relative_error(values(exp_of, x), np.exp(x.astype(np.float64))) < 3e-7


def test_exp_in_float32_of_tiny_arguments_is_one_plus_them():
    tiny = positive_floats(1_000_003)
    tiny = tiny[tiny < 1e-3]
    x = np.concatenate([tiny, -tiny])
    assert relative_error(values(exp_of, x), np.exp(x.astype(np.float64))) < 1.2e-7
    assert (values(exp_of, [0.0, -0.0, 1e-45, -1e-45, 1e-40, 1e-20, -1e-20]) == 1).all()


def test_exp_in_float32_stops_at_the_ends_of_its_range():
    """Never 0 or infinite, so that 1/(1 + exp(x)) and what divides by it stay finite."""
    low, high = values(exp_of, [-87.0, 88.0])
    assert 0 < low < 2e-38
    assert 1e38 < high < np.inf
    assert (values(exp_of, [-87.5, -104.0, -1e4, -3e38, -np.inf]) == low).all()
    assert (values(exp_of, [88.5, 89.0, 1e4, 3e38, np.inf]) == high).all()


def test_log1p_in_float32_over_its_whole_range():
    y = np.concatenate([positive_floats(3001), np.linspace(0, 8, 100_001, dtype=np.float32)])
    y = np.append(y, np.finfo(np.float32).max)
    assert relative_error(values(log1p_of, y), np.log1p(y.astype(np.float64))) < 3e-7


def test_log1p_in_float32_keeps_tiny_arguments():
    y = np.array([0, 1e-45, 1e-40, np.finfo(np.float32).tiny, 1e-30, 1e-10], dtype=np.float32)
    np.testing.assert_array_equal(values(log1p_of, y), y)


@pytest.mark.parametrize("kernel", [exp_of, log1p_of])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_stays_nan(kernel, dtype):
    out = values(kernel, [0.5, np.nan, 2.0], dtype)
    assert np.isnan(out).tolist() == [False, True, False]


def test_log1p_of_infinity_is_not_finite():
    """An overflow is never hidden: infinite in float64, infinite or NaN in float32."""
    assert values(log1p_of, [np.inf], np.float64)[0] == np.inf
    assert not np.isfinite(values(log1p_of, [np.inf])[0])


def test_exp_in_float64_to_two_units_in_the_last_place():
    x = np.concatenate([np.linspace(-708, 709, 501), np.linspace(-1, 1, 101), [0, 1e-300, -1e-300, 5e-324, 1e-17]])
    with mpmath.workdps(60):
        assert ulps(values(exp_of, x, np.float64), [mpmath.exp(mpmath.mpf(float(v))) for v in x]) <= 2


def test_exp_in_float64_beyond_its_range():
    assert values(exp_of, [-np.inf, -800, 800, np.inf], np.float64).tolist() == [0, 0, np.inf, np.inf]


def test_log1p_in_float64_to_two_units_in_the_last_place():
    y = np.concatenate([np.geomspace(1e-320, 1e308, 501), np.linspace(0, 8, 101), [5e-324, np.finfo(float).max]])
    with mpmath.workdps(60):
        exact = [mpmath.log1p(mpmath.mpf(float(v))) for v in y]
        assert ulps(values(log1p_of, y, np.float64), exact) <= 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("kernel", "grid"),
    [(exp_of, np.linspace(-100, 100, 200_001)), (log1p_of, np.linspace(0, 10, 200_001))],
    ids=["exp", "log1p"],
)
def test_monotone_on_a_grid(kernel, grid, dtype):
    assert (np.diff(values(kernel, grid, dtype)) >= 0).all()


def test_log1p_is_monotone_through_all_exponents():
    assert (np.diff(values(log1p_of, positive_floats(4001))) >= 0).all()


@pytest.mark.parametrize("bound", [-60.0, -20.0, -1.0, 0.0, 1.0, 20.0, 60.0])
def test_exp_is_monotone_between_neighboring_floats(bound):
    """Around odd multiples of ln 2 / 2, where one polynomial ends and the next begins."""
    run = [np.float32((np.floor(bound / np.log(2)) + 0.5) * np.log(2))]
    for _ in range(200):
        run = [np.nextafter(run[0], np.float32(-np.inf)), *run, np.nextafter(run[-1], np.float32(np.inf))]
    assert (np.diff(values(exp_of, run)) >= 0).all()
