r"""The energy whose minimum places the kernel points, equation (2) of the paper (``loss_ker``)."""

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.geometry import lorentz


def kernel_energy(points: Tensor, curvature: float | Tensor = -1.0) -> Tensor:
    r"""Energy of kernel points, low where they are far from each other but near the origin,

    .. math::
        \mathfrak L(\{\tilde x_k\}) = \sum_{k=1}^K \sum_{l \ne k} \frac{1}{d(\tilde x_l, \tilde x_k)}
                                    + \sum_{k=1}^K d(o, \tilde x_k).

    The first sum runs over *ordered* pairs, so each distance counts twice. Coincident points have
    infinite energy. At the origin, where the second sum has no derivative, autograd takes it to be 0.

    Args:
        points: the kernel points, ``(K, dim+1)``, on the hyperboloid of ``curvature``.
        curvature: negative curvature.

    Returns:
        The energy, a 0-d tensor.
    """
    if points.dim() != 2 or points.size(-1) < 2 or not points.is_floating_point():
        raise InputError(
            f"points must be a floating-point tensor of shape (K, dim+1), got {tuple(points.shape)} of {points.dtype}"
        )
    K, dim = points.size(0), points.size(1) - 1
    first, second = torch.triu_indices(K, K, offset=1, device=points.device)
    origin = lorentz.origin(dim, curvature, dtype=points.dtype, device=points.device)
    repulsion = 2 * lorentz.dist(points[first], points[second], curvature).reciprocal().sum()
    return repulsion + lorentz.dist(origin, points, curvature).sum()
