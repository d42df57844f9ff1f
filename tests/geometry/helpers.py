"""Points and vectors to test with. Radii are in units of R = 1/sqrt(-k), the only scale of the space."""

from collections.abc import Callable

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

from hkconv.geometry import lorentz

ATOL = 1e-9
quick = settings(max_examples=40, deadline=None, derandomize=True, database=None)


def curvature_scale(curvature: float) -> float:
    return (-curvature) ** -0.5


def directions(*shape: int) -> Tensor:
    return torch.nn.functional.normalize(torch.randn(*shape, dtype=torch.float64), dim=-1)


def at_radius(radius: float, direction: Tensor, curvature: float = -1.0) -> Tensor:
    """The point in a direction from the origin, at ``radius`` in units of R."""
    R = curvature_scale(curvature)
    return lorentz.lift(R * torch.sinh(torch.as_tensor(radius, dtype=torch.float64)) * direction, curvature)


def random_points(*shape: int, curvature: float = -1.0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Generic points near the origin; ``shape`` ends in the dimension."""
    return lorentz.lift(curvature_scale(curvature) * torch.randn(*shape, dtype=torch.float64), curvature).to(dtype)


def around(x: Tensor, spread: float, count: int, curvature: float = -1.0) -> Tensor:
    """A cloud of points around ``x``, ``spread`` in units of R."""
    noise = spread * curvature_scale(curvature) * torch.randn(count, x.size(-1) - 1, dtype=x.dtype)
    return lorentz.oplus(lorentz.exp0(at_origin(noise), curvature), x, curvature)


def as_float32(x: Tensor, curvature: float) -> Tensor:
    return lorentz.lift(x[..., 1:].float(), curvature)


def at_origin(s: Tensor) -> Tensor:
    """The tangent vector at the origin with spatial coordinates ``s``."""
    return torch.nn.functional.pad(s, (1, 0))


def tangent(x: Tensor, s: Tensor) -> Tensor:
    """The tangent vector at ``x`` with spatial coordinates ``s``."""
    time = (x[..., 1:] * s).sum(-1, keepdim=True) / x[..., :1]
    return torch.cat([time, s.expand(*time.shape[:-1], -1)], dim=-1)


def random_tangents(x: Tensor) -> Tensor:
    """Tangent vectors at points, of random spatial coordinates."""
    return tangent(x, torch.randn_like(x[..., 1:]))


def assert_on_manifold(x: Tensor, curvature: float) -> None:
    torch.testing.assert_close(x, lorentz.lift(x[..., 1:], curvature))


def assert_finite_gradients(function: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    """Value and gradients of ``function`` are finite; returns the gradients."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    value = function(*leaves)
    assert value.isfinite().all(), value
    gradients = torch.autograd.grad(value.sum(), leaves)
    assert all(g.isfinite().all() for g in gradients), gradients
    return list(gradients)


curvatures = st.floats(-4.0, -0.1)


@st.composite
def spaces(draw, count: int) -> tuple:
    """A curvature and ``count`` points of one dimension, up to a few R from the origin."""
    k = draw(curvatures)
    dim = draw(st.integers(1, 4))
    coordinates = st.lists(st.floats(-5.0, 5.0, width=32), min_size=dim, max_size=dim)
    scale = curvature_scale(k)
    points = [lorentz.lift(scale * torch.tensor(draw(coordinates), dtype=torch.float64), k) for _ in range(count)]
    return k, *points
