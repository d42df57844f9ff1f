import itertools
import math
from statistics import fmean

import mpmath
import pytest
from scipy import stats

from hkconv.report.statistics import paired_test, signed_rank_p

FIRST = [0.83, 0.79, 0.86, 0.81, 0.75, 0.84, 0.90, 0.78, 0.80, 0.83]
SECOND = [0.80, 0.81, 0.79, 0.78, 0.76, 0.80, 0.82, 0.77, 0.74, 0.81]


def two_sided_t(statistic, freedom):
    """The integral of the density of Student's t over both tails."""
    scale = mpmath.gamma((freedom + 1) / mpmath.mpf(2)) / (
        mpmath.sqrt(freedom * mpmath.pi) * mpmath.gamma(freedom / mpmath.mpf(2))
    )

    def density(x):
        return scale * (1 + x * x / freedom) ** (-(freedom + 1) / mpmath.mpf(2))

    return 2 * mpmath.quad(density, [abs(statistic), 10, mpmath.inf])


def t_statistic(differences, rho=0.0):
    count = len(differences)
    mean = sum(differences) / count
    variance = sum((entry - mean) ** 2 for entry in differences) / (count - 1)
    return mean / math.sqrt((1 / count + rho) * variance)


def enumerated_p(differences):
    """Wilcoxon's test by looking at every pattern of signs."""
    kept = [entry for entry in differences if entry != 0]
    sizes = sorted(abs(entry) for entry in kept)
    ranks = [fmean(place + 1 for place, size in enumerate(sizes) if size == abs(entry)) for entry in kept]
    observed = sum(rank for rank, entry in zip(ranks, kept) if entry > 0)
    sums = [
        sum(rank for rank, sign in zip(ranks, signs) if sign) for signs in itertools.product((0, 1), repeat=len(kept))
    ]
    lower = sum(total <= observed for total in sums) / len(sums)
    upper = sum(total >= observed for total in sums) / len(sums)
    return min(1.0, 2 * min(lower, upper))


@pytest.mark.parametrize("rho", [0.1235, 20 / 48, 1.0])
def test_both_t_tests_against_the_integrated_density(rho):
    differences = [mine - yours for mine, yours in zip(FIRST, SECOND)]
    found = paired_test(FIRST, SECOND, rho)
    assert found.pairs == 10
    assert found.difference == pytest.approx(0.031, abs=1e-12)
    assert found.p_plain == pytest.approx(float(two_sided_t(t_statistic(differences), 9)), rel=1e-7)
    assert found.p_corrected == pytest.approx(float(two_sided_t(t_statistic(differences, rho), 9)), rel=1e-7)
    assert found.p_corrected > found.p_plain


@pytest.mark.parametrize("rho", [None, 20 / 48])
def test_the_interval_ends_where_the_p_would_be_one_in_twenty(rho):
    found = paired_test(FIRST, SECOND, rho)
    for end in (found.low, found.high):
        # Moving all of the second system's scores by an end of the interval leaves a difference just significant.
        moved = paired_test(FIRST, [score + end for score in SECOND], rho)
        assert (moved.p_plain if rho is None else moved.p_corrected) == pytest.approx(0.05, rel=1e-6)


def test_a_known_value_of_the_t_test():
    # Differences 1, 2, 3: t = 2 / sqrt(1 / 3) = 2 sqrt(3) with 2 degrees of freedom, where the tails have the closed
    # form 1 - t / sqrt(2 + t^2) = 1 - sqrt(6 / 7).
    found = paired_test([1.0, 2.0, 3.0], [0.0, 0.0, 0.0])
    assert found.p_plain == pytest.approx(1 - math.sqrt(6 / 7), rel=1e-12)
    assert found.p_corrected is None


@pytest.mark.parametrize(
    "differences",
    [
        [1.0, 2.0, 3.0],
        [1.0, -2.0, 3.0, 4.0, -5.0],
        [0.5, 0.5, -0.5, 1.0, 1.0, 1.0, -2.0],
        [0.0, 0.0, 1.0, -1.0, 2.0, 3.0, 3.0, 3.0],
        [-1.0, -1.0, -1.0, -1.0],
        [mine - yours for mine, yours in zip([8, 7, 9, 6, 8, 5, 9, 9, 7, 8], [7, 7, 6, 7, 5, 5, 7, 4, 8, 6])],
    ],
)
def test_signed_ranks_against_every_pattern_of_signs(differences):
    assert signed_rank_p(differences) == enumerated_p(differences)
    assert signed_rank_p([-entry for entry in differences]) == enumerated_p(differences)


def test_signed_ranks_against_scipy_without_ties():
    differences = [0.11, -0.02, 0.35, 0.27, -0.14, 0.08, 0.41, 0.19, -0.05, 0.22, 0.31, -0.12, 0.07]
    assert signed_rank_p(differences) == pytest.approx(stats.wilcoxon(differences, method="exact").pvalue, rel=1e-12)


def test_ten_wins_of_ten():
    assert signed_rank_p([0.01 * place for place in range(1, 11)]) == 2 / 2**10


def test_differences_of_equal_counts_tie_in_spite_of_rounding():
    # 0.3 - 0.2, 0.2 - 0.1 and 0.8 - 0.7 are three different floats, 0.3 - (0.1 + 0.2) is not 0.
    first, second = [0.3, 0.2, 0.7, 0.3], [0.2, 0.1, 0.8, 0.1 + 0.2]
    differences = [mine - yours for mine, yours in zip(first, second)]
    assert len({abs(entry) for entry in differences}) == 4
    assert signed_rank_p(differences) == enumerated_p([1.0, 1.0, -1.0, 0.0])
    # Were they not equal, these would have a tiny deviation and a tiny p.
    assert paired_test([0.3, 0.3], [0.3, 0.1 + 0.2]).p_plain == 1.0


def test_systems_that_never_differ_and_ones_that_always_differ_by_the_same():
    same = paired_test([0.5, 0.6], [0.5, 0.6], 0.25)
    assert (same.difference, same.low, same.high) == (0.0, 0.0, 0.0)
    assert (same.p_corrected, same.p_plain, same.p_ranks) == (1.0, 1.0, 1.0)
    apart = paired_test([0.5, 0.6, 0.7], [0.4, 0.5, 0.6])
    assert apart.p_plain == 0.0
    assert (apart.low, apart.high) == pytest.approx((0.1, 0.1))


def test_pairs_must_be_pairs():
    with pytest.raises(ValueError, match="at least two pairs"):
        paired_test([0.5], [0.4])
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        paired_test([0.5, 0.6], [0.4])
