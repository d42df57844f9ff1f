"""Shared parts of the layers: curvature, full precision under autocast, points that stay on the manifold, and the two
ends of edges."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn.resolver import activation_resolver

from hkconv.errors import InputError
from hkconv.geometry.checks import check_attributes, check_points
from hkconv.geometry.curvature import Curvature, LearnedCurvature, curvature_radius
from hkconv.geometry.lorentz import lift
from hkconv.ops.rows import lifted

Size = tuple[int, int]

# Functions of a number alone. Whatever else a resolver could find under a name that a file holds is none.
ACTIVATIONS = (
    *("relu", "relu6", "leakyrelu", "rrelu", "prelu", "elu", "selu", "celu", "gelu", "silu", "swish", "mish"),
    *("softplus", "softsign", "sigmoid", "logsigmoid", "tanh", "tanhshrink", "hardtanh", "hardswish", "hardsigmoid"),
    *("hardshrink", "softshrink"),
)


def register_curvature(module: torch.nn.Module, curvature: Curvature) -> None:
    """Set ``module.curvature``: a float stays one, a Parameter or a LearnedCurvature is learned, another tensor
    is a buffer."""
    curvature_radius(curvature)
    if isinstance(curvature, Tensor) and not isinstance(curvature, torch.nn.Parameter):
        module.register_buffer("curvature", curvature)
    else:
        module.curvature = curvature  # type: ignore[assignment]  # torch types its own attributes alone


def describe(layer: torch.nn.Module, *sizes: int, **settings: Any) -> str:
    """A line like the call that makes a layer, with those of its settings that are not the default."""
    defaults = inspect.signature(type(layer)).parameters
    shown = [str(size) for size in sizes]
    for name, value in settings.items():
        if isinstance(value, Tensor):
            value = value.item()
        elif callable(value) and not isinstance(value, LearnedCurvature):  # an activation
            value = getattr(value, "__name__", type(value).__name__.lower())
        if value != defaults[name].default:
            shown.append(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value!r}")
    return f"{type(layer).__name__}({', '.join(shown)})"


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


def find_activation(act: str | Callable[[Tensor], Tensor]) -> Any:
    """Return an activation by its name, which is one of ``ACTIVATIONS`` however it is written; any other as it is."""
    if isinstance(act, str) and re.sub(r"[-_ ]", "", act.lower()) in ACTIVATIONS:
        return activation_resolver(act)
    if isinstance(act, str) or not callable(act):
        raise InputError(f"an activation must be one of {', '.join(ACTIVATIONS)}, got {act!r}")
    return act


def check_rate(dropout: float) -> None:
    """Raise unless it is a rate of dropout."""
    if not 0 <= dropout < 1:
        raise InputError(f"dropout must lie in [0, 1), got {dropout}")


def read_ends(
    x: Tensor | tuple[Tensor, Tensor], size: Size | None, dim: int, curvature: Curvature, layer: torch.nn.Module
) -> tuple[Tensor, ...]:
    """The points at both ends of edges, checked: ``(x,)`` where targets are sources too, else ``(x_source, x_target)``.

    Args:
        x: points ``(N, dim+1)``, or a pair of such.
        size: ``(N_source, N_target)``, or None. Of a single ``x`` the first ``N_target`` rows are targets.
        dim: dimension of the points.
        curvature: negative curvature.
        layer: the layer that reads them.
    """
    if not isinstance(x, tuple | list):
        _check_rows(x, dim, curvature, "x", layer)
        if size is not None and (size[0] != x.size(0) or not 0 <= size[1] <= x.size(0)):
            count = x.size(0)
            raise InputError(f"size must be ({count}, at most {count}) for {count} points, got {tuple(size)}")
        return (x,)
    x_source, x_target = x
    if x_target is None:
        raise InputError("x must be (x_source, x_target): the target points are needed too")
    _check_rows(x_source, dim, curvature, "x[0]", layer)
    _check_rows(x_target, dim, curvature, "x[1]", layer)
    nodes = (x_source.size(0), x_target.size(0))
    if size is not None and tuple(size) != nodes:
        raise InputError(f"size must equal the number of points {nodes}, got {tuple(size)}")
    return (x_source,) if x_target is x_source else (x_source, x_target)


def _check_rows(x: Tensor, dim: int, curvature: Curvature, name: str, layer: torch.nn.Module) -> None:
    check_points(x, dim, curvature, name, layer)
    if x.dim() != 2:
        raise InputError(f"{name} must have shape (nodes, {dim + 1}), a point a row, got {tuple(x.shape)}")


def read_attributes(edge_attr: Tensor | None, edge_dim: int | None, edges: int, order: Tensor | None) -> Tensor | None:
    """The ``(edges, edge_dim)`` attributes of edges, checked, in an order other than the user's if one is given."""
    check_attributes(edge_attr, edge_dim, edges)
    return edge_attr if edge_attr is None or order is None else edge_attr.index_select(0, order)


def dropped(x: Tensor, rate: float, curvature: Curvature, training: bool = True) -> Tensor:
    """Points after dropout of their space; time is recomputed."""
    return lifted(F.dropout(x[..., 1:], rate), curvature) if training and rate > 0 else x


def drop_ends(
    ends: tuple[Tensor, ...], size: Size | None, dropout: float, curvature: Curvature
) -> tuple[Tensor, Tensor]:
    """Sources and targets of :func:`read_ends`, :func:`dropped` once a node."""
    ends = tuple(dropped(x, dropout, curvature) for x in ends)
    if len(ends) == 2 or size is None or size[1] == ends[0].size(0):
        return ends[0], ends[-1]
    return ends[0], ends[0][: size[1]]
