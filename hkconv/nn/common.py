"""What the layers share: their curvature, full precision under autocast, and points that stay on the manifold."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

from hkconv.geometry.curvature import Curvature, curvature_radius
from hkconv.geometry.lorentz import lift


def register_curvature(module: torch.nn.Module, curvature: Curvature) -> None:
    """Set ``module.curvature``: a float stays one, a Parameter or a LearnedCurvature is learned, another tensor
    is a buffer."""
    curvature_radius(curvature)
    if isinstance(curvature, Tensor) and not isinstance(curvature, torch.nn.Parameter):
        module.register_buffer("curvature", curvature)
    else:
        module.curvature = curvature  # type: ignore[assignment]  # torch types its own attributes alone


def reset_modules(modules: Iterable[torch.nn.Module]) -> None:
    """Draw the weights anew of all modules that know how."""
    for module in modules:
        reset = getattr(module, "reset_parameters", None)
        if reset is not None:
            reset()


@contextmanager
def full_precision(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Geometry in at least float32: no autocast inside, half-precision inputs are promoted."""
    tensors = tuple(t.float() if t.dtype in {torch.float16, torch.bfloat16} else t for t in tensors)
    kind = tensors[0].device.type
    # Switching off what is off takes as long as launching a kernel.
    with torch.autocast(kind, enabled=False) if torch.is_autocast_enabled(kind) else nullcontext():
        yield tensors


@torch.no_grad()
def relift_(points: Tensor, curvature: Curvature) -> None:
    """Recompute the time coordinate in place, as after a change of dtype, which rounds it."""
    points.copy_(lift(points[..., 1:], curvature))
