r"""Scale of features, learned from training rows alone, and what stands for a missing value.

With :math:`t(x)` the feature, or :math:`\operatorname{sign}(x) \log(1 + |x|)` of it, and :math:`\mu` and :math:`\sigma`
its mean and deviation over the training rows that have it, a model sees :math:`(t(x) - \mu) / \sigma`, and 0, the mean,
where it is missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from hkconv.data.options import LOG, NONE


@dataclass(frozen=True)
class Scaling:
    """Map of each column of features, with an entry for each.

    Args:
        log: whether the logarithm is taken first.
        fill: what stands for a missing value, after the logarithm.
        center: what is subtracted then.
        factor: of the difference.
    """

    log: tuple[bool, ...]
    fill: tuple[float, ...]
    center: tuple[float, ...]
    factor: tuple[float, ...]

    def __call__(self, x: Tensor) -> Tensor:
        """Return the features as a model sees them, in the type of ``x``; NaN is a missing value."""
        values = _logarithms(x.double(), torch.tensor(self.log, device=x.device))
        fill, center, factor = (
            torch.tensor(row, dtype=torch.float64, device=x.device) for row in (self.fill, self.center, self.factor)
        )
        return ((torch.where(values.isnan(), fill, values) - center) * factor).to(x.dtype)


def learn_scaling(x: Tensor, scale: str, is_number: Sequence[bool]) -> Scaling:
    """The scaling that training rows call for.

    A column of zeros and ones stays as it is. One that is the same in every row becomes one in size, for a network on a
    graph can count neighbors by it, and zero if it is zero or never known.

    Args:
        x: (N, F) features of the training rows, NaN where missing.
        scale: ``"none"``, ``"standard"`` or ``"log"``, standardized logarithms.
        is_number: (F,) false for the one-hot columns of a category, which are not scaled.

    Returns:
        The map; with ``"none"`` it fills missing values with the mean and does nothing else.
    """
    known, numbers = ~x.isnan(), torch.tensor(is_number, dtype=torch.bool)
    is_constant = x.where(known, -torch.inf).amax(0) <= x.where(known, torch.inf).amin(0)
    is_binary = ((x == 0) | (x == 1) | ~known).all(0) & ~is_constant
    scaled = numbers & ~is_binary & (scale != NONE)
    log = scaled & (scale == LOG)
    values = torch.where(known, _logarithms(x.double(), log), 0)
    count = known.sum(0).clamp(min=1)
    mean = values.sum(0) / count
    deviation = (torch.where(known, values - mean, 0).square().sum(0) / count).sqrt()
    # A category that no training row has was never learned, and stays zero.
    unit = torch.where(is_constant, mean.abs(), deviation)
    says_nothing = (unit == 0) & (scaled | (~numbers & is_constant))
    factor = torch.where(scaled, 1 / torch.where(unit == 0, 1, unit), 1)
    return Scaling(
        log=tuple(log.tolist()),
        fill=tuple(mean.tolist()),
        center=tuple(torch.where(scaled & ~is_constant, mean, 0).tolist()),
        factor=tuple(torch.where(says_nothing, 0, factor).tolist()),
    )


def mean_and_deviation(values: Tensor) -> tuple[float, float]:
    """The mean and the deviation of those numbers that are not NaN."""
    known = values[~values.isnan()].double()
    return known.mean().item(), known.std(correction=0).item()


def _logarithms(x: Tensor, chosen: Tensor) -> Tensor:
    return torch.where(chosen, x.sign() * x.abs().log1p(), x)
