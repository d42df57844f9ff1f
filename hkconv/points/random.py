r"""Kernel points drawn at random instead of optimised: the paper's HKN-random ablation."""

import torch
from torch import Tensor

from hkconv.geometry import lorentz


def random_points(K: int, dim: int, curvature: float, seed: int, std: float = 1.0) -> Tensor:
    r"""``K`` draws from the wrapped normal :math:`\mathcal G(o, \mathrm{std}^2 I)`, ``(K, dim+1)`` in float64.

    Torch's global source of randomness is neither used nor changed.
    """
    generator = torch.Generator().manual_seed(seed)
    origin = lorentz.origin(dim, curvature, dtype=torch.float64)
    variance = torch.full((dim,), std * std, dtype=torch.float64)
    return lorentz.wrapped_normal(origin, variance, K, generator, curvature)
