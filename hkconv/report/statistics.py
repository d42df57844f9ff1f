"""Paired tests on the same splits: is one system better than another, and how sure can one be?

The splits of a dataset share most of their members, so the differences over splits are not independent and the usual
paired t test claims too much. Nadeau and Bengio (2003) widen its variance by the size of test to train set; both forms
are given, and a signed-rank test that assumes no shape of distribution but is as optimistic as the plain t test.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

# geoopt requires scipy, so it is there wherever this library is.
from scipy.special import stdtr, stdtrit

# Shares of the same count differ in their last bits, 0.3 - 0.2 and 0.2 - 0.1 for one. A real difference between two
# shares of at most a million members is at least 1e-6.
DIGITS = 9
CONFIDENCE = 0.95
# A difference with a smaller corrected p is called one beyond chance.
CHANCE = 0.05


@dataclass(frozen=True)
class PairedTest:
    """Differences ``first - second`` over pairs, and the tests that they are 0 on average.

    Args:
        pairs: how many.
        difference: their mean.
        low, high: its interval of 95 % confidence, corrected where ``p_corrected`` is given.
        p_corrected: two-sided p of the corrected resampled t test; None where the sizes of the splits are not known.
        p_plain: two-sided p of the paired t test.
        p_ranks: two-sided exact p of Wilcoxon's signed-rank test.
    """

    pairs: int
    difference: float
    low: float
    high: float
    p_corrected: float | None
    p_plain: float
    p_ranks: float

    @property
    def beyond_chance(self) -> bool:
        """True if the corrected p says that there is a difference; without a correction nothing does."""
        return self.p_corrected is not None and self.p_corrected < CHANCE


def paired_test(first: Sequence[float], second: Sequence[float], test_to_train: float | None = None) -> PairedTest:
    r"""Compare two systems that were scored on the same splits.

    With differences :math:`d_i`, their mean :math:`\bar d` and sample variance :math:`s^2`,

    .. math:: t = \bar d \Big/ \sqrt{\left(\tfrac 1 n + \rho\right) s^2}

    has :math:`n - 1` degrees of freedom, with :math:`\rho = 0` in the plain test and
    :math:`\rho = n_\text{test} / n_\text{train}` in the corrected one.

    Args:
        first: scores of the one system.
        second: scores of the other, in the same order.
        test_to_train: :math:`\rho`, members of a test set for each member of a training set; None if not known.

    Returns:
        The tests. At least two pairs are needed.
    """
    differences = [rounded(mine - yours) for mine, yours in zip(first, second, strict=True)]
    count = len(differences)
    if count < 2:
        raise ValueError(f"a paired test needs at least two pairs, got {count}")
    mean, deviation = fmean(differences), stdev(differences)
    plain = deviation * math.sqrt(1 / count)
    error = plain if test_to_train is None else deviation * math.sqrt(1 / count + test_to_train)
    reach = error * float(stdtrit(count - 1, (1 + CONFIDENCE) / 2))
    return PairedTest(
        pairs=count,
        difference=mean,
        low=mean - reach,
        high=mean + reach,
        p_corrected=None if test_to_train is None else _two_sided_t(mean, error, count - 1),
        p_plain=_two_sided_t(mean, plain, count - 1),
        p_ranks=signed_rank_p(differences),
    )


def signed_rank_p(differences: Sequence[float]) -> float:
    """Two-sided exact p of Wilcoxon's signed-rank test.

    Zeros are left out, as Wilcoxon did, and equal sizes share the mean of their ranks. The distribution of the sum of
    the positive ranks is counted over all sign patterns of these very ranks, so it is exact with ties too.

    Args:
        differences: one for each pair.

    Returns:
        The smaller tail twice, at most 1; 1 where all differences are 0.
    """
    differences = [entry for entry in map(rounded, differences) if entry != 0]
    # Twice the mean ranks are whole numbers, which can index a list of counts.
    ranks = _doubled_ranks([abs(entry) for entry in differences])
    observed = sum(rank for rank, entry in zip(ranks, differences) if entry > 0)
    patterns = [1]
    for rank in ranks:
        without, with_rank = patterns + [0] * rank, [0] * rank + patterns
        patterns = [left + right for left, right in zip(without, with_rank)]
    tail = min(sum(patterns[: observed + 1]), sum(patterns[observed:]))
    return min(1.0, 2 * tail / 2 ** len(ranks))


def _doubled_ranks(sizes: list[float]) -> list[int]:
    """Twice the rank of each size from 1 up; equal ones get the mean of theirs."""
    ordered = sorted(sizes)
    first = {size: ordered.index(size) + 1 for size in set(sizes)}
    return [2 * first[size] + ordered.count(size) - 1 for size in sizes]


def _two_sided_t(mean: float, error: float, freedom: int) -> float:
    if error == 0:
        return 1.0 if mean == 0 else 0.0
    return float(2 * stdtr(freedom, -abs(mean) / error))


def rounded(difference: float) -> float:
    """A difference of scores or of their means without the bits in which equal ones differ."""
    return round(difference, DIGITS)
