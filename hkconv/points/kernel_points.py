"""The kernel points of an HKConv layer: one function in front of the solvers, section "Hyperbolic Point Kernels"."""

import math
from numbers import Real

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.geometry.maps import max_radius
from hkconv.points.cache import Key, cached
from hkconv.points.placements import best_simplex, random_points
from hkconv.points.solvers import best_of_many_starts, descend

METHODS = ("optimal", "gradient", "random")


def kernel_points(
    K: int, dim: int, curvature: float | Tensor = -1.0, *, method: str = "optimal", seed: int = 0
) -> Tensor:
    r"""``K`` kernel points in :math:`\mathbb L^{dim}`, far from each other but near the origin.

    ``"optimal"`` minimises :func:`~hkconv.points.energy.kernel_energy` at the given curvature: in closed form
    for ``K <= dim + 1``, else by L-BFGS from several starts that ``seed`` draws. It is turned so that the first
    point off the origin lies on the first axis, and so on; for many ``K`` one point, then the first, is the
    origin itself. ``"gradient"`` is the paper's descent with step 0.0001 from the start that ``seed`` draws; it
    takes seconds to a minute. ``"random"`` draws from the wrapped normal with unit standard deviation.

    Results of the first two are cached in memory and in ``$XDG_CACHE_HOME/hkconv/points`` (or
    ``~/.cache/hkconv/points``). ``K = 64`` takes seconds unless ``dim >= 63``, where it takes none; the time
    grows with the square of ``K``.

    Args:
        K: number of points, at least 1; one point is the origin (unless random).
        dim: dimension of the space, at least 1.
        curvature: negative curvature, a float or a 0-d tensor (its value is used, no gradient flows).
        method: ``"optimal"``, ``"gradient"`` or ``"random"``.
        seed: of everything random; torch's global source of randomness is left alone.

    Returns:
        Points on the hyperboloid of that curvature, ``(K, dim+1)``, float64, on the CPU.
    """
    _check_integer("K", K, 1)
    _check_integer("dim", dim, 1)
    _check_integer("seed", seed, 0, 2**63 - 1)
    if method not in METHODS:
        raise InputError(f"method must be one of {', '.join(map(repr, METHODS))}, got {method!r}")
    curvature = _as_float(curvature)
    # Made inside inference mode or under another default device, the points must still serve a layer that trains.
    with torch.inference_mode(False), torch.device("cpu"):
        if method == "random":
            return random_points(K, dim, curvature, seed)
        _check_representable(K, curvature)
        return cached(Key(method, K, dim, curvature, seed), lambda: _solve(K, dim, curvature, method, seed))


def _solve(K: int, dim: int, curvature: float, method: str, seed: int) -> Tensor:
    if method == "gradient" and K > 1:
        return descend(K, dim, curvature, seed)
    if dim >= K - 1:
        return best_simplex(K, dim, curvature)
    return best_of_many_starts(K, dim, curvature, seed)


def _check_integer(name: str, value: int, least: int, most: float = math.inf) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        bounds = f"of at least {least}" if most == math.inf else f"from {least} to {most}"
        raise InputError(f"{name} must be an integer {bounds}, got {value!r}")


def _as_float(curvature: float | Tensor) -> float:
    value = curvature.detach().item() if isinstance(curvature, Tensor) and curvature.dim() == 0 else curvature
    if not isinstance(value, Real) or not -math.inf < value < 0:
        raise InputError(f"curvature must be a negative finite float or 0-d tensor, got {curvature!r}")
    return float(value)


def _check_representable(K: int, curvature: float) -> None:
    r"""The points lie within about :math:`\sqrt{K + 1}` of the origin, which must be within float64's range."""
    strongest = -(max_radius(torch.float64) ** 2) / (K + 1)
    if curvature < strongest:
        raise InputError(f"curvature must be above {strongest:.0f} for K={K}: float64 ends there, got {curvature:g}")
