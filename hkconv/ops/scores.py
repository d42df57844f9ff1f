r"""Learned attention along edges, with nothing of size edges x n ever stored.

The operator ``hkconv::edge_square_distances`` gives :math:`d^2(q, k_i)` for each edge, with

.. math::
    d = \log(1 + \delta + \sinh d), \quad \sinh d = \sqrt{\delta(\delta + 2)}, \qquad
    \frac{\partial d^2}{\partial q_s} = \frac{2 d}{\sinh d} \Bigl(D - (q_t - k_t) \frac{q_s}{q_t}\Bigr),
    \quad D = q_s - k_s,

and the same for :math:`k` with the roles exchanged; :math:`\delta` is the excess of :mod:`hkconv.geometry.relative`.
Unlike that of :math:`d`, this gradient is smooth where the points meet, and 0 there. As in :mod:`hkconv.ops.fused` the
operator lives on the hyperboloid of curvature -1, and only the space of points is read: their time follows it.

All that comes after is a number an edge, in the order by target.
"""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from hkconv.geometry.curvature import Curvature, curvature_radius
from hkconv.geometry.lorentz import dist, lift
from hkconv.ops.neighbors import Neighbors

_SCHEMA = ", ".join(["Tensor query", "Tensor key", *(f"Tensor neighbors_{name}" for name in Neighbors._fields)])
torch.library.define("hkconv::edge_square_distances", f"({_SCHEMA}) -> Tensor")
torch.library.define("hkconv::edge_square_distances_backward", f"({_SCHEMA}, Tensor grad) -> (Tensor, Tensor)")
torch.library.define("hkconv::edge_totals", "(Tensor values, Tensor pointer, Tensor target) -> Tensor")


def attention(query: Tensor, key: Tensor, neighbors: Neighbors, curvature: Curvature = -1.0) -> Tensor:
    r"""Weights :math:`w_i = \mathrm{softmax}_i(-d^2(q, k_i)/\sqrt n)` over the neighbors of each target.

    Shapes: ``(T, n+1), (S, n+1) -> (E,)`` in the order by target.
    """
    square = square_distances(query, key, neighbors, curvature)
    return segment_softmax(-square / (query.size(1) - 1) ** 0.5, neighbors)


def square_distances(query: Tensor, key: Tensor, neighbors: Neighbors, curvature: Curvature = -1.0) -> Tensor:
    """Squared distances between the two ends of each edge: ``(T, n+1), (S, n+1) -> (E,)`` in the order by target."""
    R = curvature_radius(curvature)
    if not isinstance(R, Tensor) and R == 1:
        return torch.ops.hkconv.edge_square_distances(query, key, *neighbors)
    return R**2 * torch.ops.hkconv.edge_square_distances(query / R, key / R, *neighbors)


def segment_softmax(scores: Tensor, neighbors: Neighbors) -> Tensor:
    """Softmax over the edges of each target, in the order by target."""
    pointer, target = neighbors.target_pointer, neighbors.target
    highest = torch.segment_reduce(scores.detach(), "max", offsets=pointer)
    shares = (scores - highest.index_select(0, target)).exp()
    return shares / torch.ops.hkconv.edge_totals(shares, pointer, target)


def _backend(x: Tensor) -> ModuleType:
    # Imported when first used: Triton is not everywhere.
    if x.device.type == "cpu":
        from hkconv.ops import scores_cpu

        return scores_cpu
    from hkconv.ops import scores_cuda

    return scores_cuda


@torch.library.impl("hkconv::edge_square_distances", ("cpu", "cuda"))
def _forward(query: Tensor, key: Tensor, *neighbors: Tensor) -> Tensor:
    return _backend(query).square_distances(query.contiguous(), key.contiguous(), Neighbors(*neighbors))


@torch.library.impl("hkconv::edge_square_distances_backward", ("cpu", "cuda"))
def _backward(query: Tensor, key: Tensor, *arguments: Tensor) -> tuple[Tensor, Tensor]:
    *neighbors, grad = arguments
    points = query.contiguous(), key.contiguous()
    return _backend(query).gradients(*points, Neighbors(*neighbors), grad.contiguous())


@torch.library.register_fake("hkconv::edge_square_distances")
def _shape(query: Tensor, key: Tensor, *neighbors: Tensor) -> Tensor:
    return query.new_empty(Neighbors(*neighbors).source.size(0))


@torch.library.register_fake("hkconv::edge_square_distances_backward")
def _backward_shapes(query: Tensor, key: Tensor, *arguments: Tensor) -> tuple[Tensor, Tensor]:
    return query.new_empty(query.shape), key.new_empty(key.shape)


def _save(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradient(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    query, key, *neighbors = ctx.saved_tensors
    needed = ctx.needs_input_grad[:2]
    if torch.is_grad_enabled():  # the gradient is to be differentiated itself
        found = _differentiable_gradient((query, key), needed, Neighbors(*neighbors), grad)
    else:
        found = torch.ops.hkconv.edge_square_distances_backward(query, key, *neighbors, grad)
    return *(gradient if need else None for gradient, need in zip(found, needed)), *(None for _ in neighbors)


torch.library.register_autograd("hkconv::edge_square_distances", _gradient, setup_context=_save)


def _differentiable_gradient(
    points: tuple[Tensor, Tensor], needed: tuple[bool, ...], neighbors: Neighbors, grad: Tensor
) -> list[Tensor | None]:
    """The gradient by way of plain PyTorch, which can differentiate it again."""
    # Views, because queries and keys may be one tensor, and each is to get its own part of the gradient.
    query, key = (x.view_as(x) for x in points)
    edges = neighbors.edges()
    ends = lift(query[:, 1:]).index_select(0, edges.target), lift(key[:, 1:]).index_select(0, edges.source)
    wanted = [x for x, need in zip((query, key), needed) if need]
    found = iter(torch.autograd.grad(dist(*ends).square(), wanted, grad, create_graph=True))
    return [next(found) if need else None for need in needed]


@torch.library.impl("hkconv::edge_totals", ("cpu", "cuda"))
def _totals(values: Tensor, pointer: Tensor, target: Tensor) -> Tensor:
    """The sum over all edges of the same target, for each edge.

    An operator for its gradient, which is the same sum: that of ``index_select`` needs atomics, and that of
    ``segment_reduce`` has no derivative.
    """
    return torch.segment_reduce(values.contiguous(), "sum", offsets=pointer).index_select(0, target)


@torch.library.register_fake("hkconv::edge_totals")
def _totals_shape(values: Tensor, pointer: Tensor, target: Tensor) -> Tensor:
    return torch.empty_like(values, memory_format=torch.contiguous_format)


def _save_segments(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[1:])


def _totals_gradient(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    return torch.ops.hkconv.edge_totals(grad, *ctx.saved_tensors), None, None


torch.library.register_autograd("hkconv::edge_totals", _totals_gradient, setup_context=_save_segments)
