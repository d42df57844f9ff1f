r"""The operator ``hkconv::hk_edges`` as torch knows it: its schema, shapes, gradient and kernels by device.

Inputs, on the hyperboloid of curvature -1, with S sources, T targets, K kernel points:

======================  ==========  ==================================================================
``source, target``      (S|T, m)    spatial parts of the points
``source_direction``    (S, K, n)   :math:`W_s u_s + b`, or all of :math:`W u + b` if not relative
``target_direction``    (T, K, n)   :math:`W_s x_s`, None if not relative
``source_gate``         (S, K)      the same for the gate vectors
``target_gate``         (T, K)
``time_direction``      (K, n)      :math:`w_t`, ``time_gate`` (K): :math:`v_t`
``scale``               (K,)        :math:`\lambda`
``points``              (K, m)      spatial parts of the kernel points
``weight``              (E,)        in the order by target, not all zero for any target; None for equal ones
the last six            int32       the fields of :class:`hkconv.ops.neighbors.Neighbors`
======================  ==========  ==================================================================

Outputs: spatial parts of the aggregated points (T, n), and the masses of these centroids for unit total weight (T,).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from hkconv.geometry.lorentz import dist, lift, ominus
from hkconv.ops.centroid import segment_centroid
from hkconv.ops.linear import point_along
from hkconv.ops.neighbors import Neighbors
from hkconv.ops.reference import kernel_centroid


class EdgeInputs(NamedTuple):
    """The differentiable inputs of the operator, in its order."""

    source: Tensor
    target: Tensor
    source_direction: Tensor
    target_direction: Tensor | None
    source_gate: Tensor
    target_gate: Tensor | None
    time_direction: Tensor | None
    time_gate: Tensor | None
    scale: Tensor
    points: Tensor
    weight: Tensor | None

    @property
    def relative(self) -> bool:
        return self.target_direction is not None


_INPUTS = ", ".join(
    [f"Tensor{'?' if 'None' in str(kind) else ''} {name}" for name, kind in EdgeInputs.__annotations__.items()]
    + [f"Tensor neighbors_{name}" for name in Neighbors._fields]
)
_COUNT = len(EdgeInputs._fields)
_OUTPUTS = "Tensor out, Tensor mass, Tensor grad_out, Tensor grad_mass"

torch.library.define("hkconv::hk_edges", f"({_INPUTS}) -> (Tensor, Tensor)")
torch.library.define("hkconv::hk_edges_backward", f"({_INPUTS}, {_OUTPUTS}, bool points_too) -> Tensor[]")


def hk_edges(inputs: EdgeInputs, neighbors: Neighbors) -> tuple[Tensor, Tensor]:
    """Aggregated points (T, n), spatial, and the masses of these centroids for unit total weight (T,)."""
    return torch.ops.hkconv.hk_edges(*inputs, *neighbors)


@torch.library.impl("hkconv::hk_edges", "cpu")
def _on_cpu(*arguments: Tensor | None) -> tuple[Tensor, Tensor]:
    from hkconv.ops import cpu  # Numba takes a second to import

    return cpu.hk_edges(EdgeInputs(*arguments[:_COUNT]), Neighbors(*arguments[_COUNT:]))


@torch.library.impl("hkconv::hk_edges", "cuda")
def _on_cuda(*arguments: Tensor | None) -> tuple[Tensor, Tensor]:
    from hkconv.ops import cuda  # Triton is not everywhere

    return cuda.hk_edges(EdgeInputs(*arguments[:_COUNT]), Neighbors(*arguments[_COUNT:]))


@torch.library.impl("hkconv::hk_edges_backward", "cpu")
def _backward_on_cpu(*arguments: Tensor | bool | None) -> list[Tensor]:
    from hkconv.ops import cpu

    neighbors = Neighbors(*arguments[_COUNT : _COUNT + len(Neighbors._fields)])
    return cpu.hk_edges_backward(EdgeInputs(*arguments[:_COUNT]), neighbors, *arguments[-5:])


@torch.library.impl("hkconv::hk_edges_backward", "cuda")
def _backward_on_cuda(*arguments: Tensor | bool | None) -> list[Tensor]:
    from hkconv.ops import cuda

    neighbors = Neighbors(*arguments[_COUNT : _COUNT + len(Neighbors._fields)])
    return cuda.hk_edges_backward(EdgeInputs(*arguments[:_COUNT]), neighbors, *arguments[-5:])


@torch.library.register_fake("hkconv::hk_edges")
def _shapes(*arguments: Tensor | None) -> tuple[Tensor, Tensor]:
    inputs = EdgeInputs(*arguments[:_COUNT])
    targets, n = inputs.target.size(0), inputs.source_direction.size(2)
    return inputs.target.new_empty(targets, n), inputs.target.new_empty(targets)


@torch.library.register_fake("hkconv::hk_edges_backward")
def _backward_shapes(*arguments: Tensor | bool | None) -> list[Tensor]:
    inputs, points_too = EdgeInputs(*arguments[:_COUNT]), arguments[-1]
    like = inputs if points_too else inputs._replace(points=None)
    return [inputs.source.new_empty(() if value is None else value.shape) for value in like]


def _save(ctx, inputs: tuple[Tensor | None, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, *output)


def _gradient(ctx, grad_out: Tensor, grad_mass: Tensor) -> tuple[Tensor | None, ...]:
    *arguments, out, mass = ctx.saved_tensors
    needed = ctx.needs_input_grad
    if torch.is_grad_enabled():  # the gradient is to be differentiated itself
        return _differentiable_gradient(arguments, needed, grad_out, grad_mass)
    points_too = needed[EdgeInputs._fields.index("points")]
    found = torch.ops.hkconv.hk_edges_backward(
        *arguments, out, mass, grad_out.contiguous(), grad_mass.contiguous(), points_too
    )
    return *(gradient if wanted else None for gradient, wanted in zip(found, needed)), *(None,) * len(Neighbors._fields)


torch.library.register_autograd("hkconv::hk_edges", _gradient, setup_context=_save)


def _differentiable_gradient(
    arguments: list[Tensor | None], needed: tuple[bool, ...], *grads: Tensor
) -> tuple[Tensor | None, ...]:
    inputs, neighbors = EdgeInputs(*arguments[:_COUNT]), Neighbors(*arguments[_COUNT:])
    wanted = [value for value, need in zip(inputs, needed) if need]
    found = iter(torch.autograd.grad(in_torch(inputs, neighbors), wanted, grads, create_graph=True, allow_unused=True))
    return tuple(next(found) if need else None for need in needed)


def in_torch(inputs: EdgeInputs, neighbors: Neighbors) -> tuple[Tensor, Tensor]:
    """The operator in plain PyTorch: for derivatives of its gradient, and as its definition in tests."""
    source, target = neighbors.source.long(), neighbors.target_by_target()
    u, x = lift(inputs.source)[source], lift(inputs.target)[target]
    z = ominus(u, x)
    direction, gate = inputs.source_direction[source], inputs.source_gate[source]
    if inputs.relative:
        reach = z[:, :1]
        stretch = (u[:, :1] + reach) / (1 + x[:, :1])
        direction = direction - stretch.unsqueeze(-1) * inputs.target_direction[target]
        direction = direction / reach.unsqueeze(-1) + inputs.time_direction
        gate = gate - stretch * inputs.target_gate[target] + reach * inputs.time_gate
    transformed = point_along(direction, inputs.scale * gate.sigmoid())
    message = kernel_centroid(transformed, dist(z.unsqueeze(1), lift(inputs.points)))
    weight = u.new_ones(len(u)) if inputs.weight is None else inputs.weight
    point, mass = segment_centroid(message, target, len(inputs.target), weight)
    total = u.new_zeros(len(inputs.target)).index_add(0, target, weight)
    return point[:, 1:], torch.where(total > 0, mass / torch.where(total > 0, total, 1), 1)
