r"""HKConv as one operation over the edges, forward and backward, with nothing of size edges x kernel points kept.

Without an activation, HLinear's products are linear in the two ends of an edge,
:math:`W (u \ominus x) = W_s u_s - c\,W_s x_s + t' w_t`, so they are taken over *nodes*, here. What is left for an edge
is a gather and a few multiply-adds: the operator ``hkconv::hk_edges``, which :mod:`hkconv.ops.cpu` and
:mod:`hkconv.ops.cuda` implement. It lives on the hyperboloid of curvature -1: :math:`x/R` is a point of it, the
centroid commutes with the scaling, and shares of distances do not change. Curvature therefore enters here alone,
through plain PyTorch, and so do its gradient and that of all parameters of HLinear.
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.geometry.centroid import effective_weight
from hkconv.geometry.curvature import curvature_radius
from hkconv.geometry.lorentz import lift
from hkconv.ops.edges import EdgeInputs, hk_edges
from hkconv.ops.neighbors import Neighbors


def hk_aggregate(
    x_source: Tensor,
    x_target: Tensor,
    neighbors: Neighbors,
    weight: Tensor | None,
    linear: dict[str, Tensor | None],
    points: Tensor,
    relative: bool = True,
    curvature: float | Tensor = -1.0,
) -> tuple[Tensor, Tensor]:
    """:func:`hkconv.ops.reference.hk_aggregate` without an activation, ``weight`` in the order by target."""
    R = curvature_radius(curvature)
    source = x_source[:, 1:]
    target = source if x_target is x_source else x_target[:, 1:]
    products = _relative_products(source, target, linear, R) if relative else _direct_products(x_source, linear)
    inputs = EdgeInputs(
        source=_on_unit(source, R),
        target=_on_unit(target, R),
        scale=linear["log_scale"].exp() / R,
        points=_on_unit(points[:, 1:], R),
        weight=None if weight is None else _acting_weight(weight, neighbors),
        **products,
    )
    out, unit_mass = hk_edges(inputs, neighbors)
    return lift(out * R, curvature), unit_mass * _total_weight(weight, neighbors).to(unit_mass.dtype)


def _on_unit(space: Tensor, R: float | Tensor) -> Tensor:
    return (space if isinstance(R, float) and R == 1 else space / R).contiguous()


def _relative_products(
    source: Tensor, target: Tensor, linear: dict[str, Tensor | None], R: float | Tensor
) -> dict[str, Tensor | None]:
    weight, gate = linear["weight"], linear["gate_weight"]
    K, n, _ = weight.shape
    in_space = weight[..., 1:].reshape(K * n, -1)
    target_direction = F.linear(target, in_space)
    target_gate = F.linear(target, gate[:, 1:])
    source_direction = target_direction if source is target else F.linear(source, in_space)
    source_gate = target_gate if source is target else F.linear(source, gate[:, 1:])
    if linear["bias"] is not None:
        source_direction = source_direction + linear["bias"].reshape(-1)
    if linear["gate_bias"] is not None:
        source_gate = source_gate + linear["gate_bias"]
    return {
        "source_direction": source_direction.unflatten(1, (K, n)),
        "target_direction": target_direction.unflatten(1, (K, n)),
        "source_gate": source_gate,
        "target_gate": target_gate,
        "time_direction": R * weight[..., 0],
        "time_gate": R * gate[:, 0],
    }


def _direct_products(source: Tensor, linear: dict[str, Tensor | None]) -> dict[str, Tensor | None]:
    """HLinear sees the source alone. Its direction has no scale and is taken in units of the largest coordinate."""
    weight, bias = linear["weight"], linear["bias"]
    unit = source.detach().abs().amax(-1, keepdim=True).clamp(min=1)
    direction = F.linear(source / unit, weight.flatten(0, 1))
    if bias is not None:
        direction = direction + bias.reshape(-1) / unit
    gate = F.linear(source, linear["gate_weight"], linear["gate_bias"])
    absent = dict.fromkeys(("target_direction", "target_gate", "time_direction", "time_gate"))
    return {"source_direction": direction.unflatten(1, weight.shape[:2]), "source_gate": gate, **absent}


def _acting_weight(weight: Tensor, neighbors: Neighbors) -> Tensor:
    """Where all weights of a target vanish, all its neighbours count alike."""
    counted = F.pad((weight > 0).cumsum(0, dtype=torch.int32), (1, 0))
    positive = counted[neighbors.target_pointer].diff()
    return effective_weight(weight, positive[neighbors.target_by_target()]).contiguous()


def _total_weight(weight: Tensor | None, neighbors: Neighbors) -> Tensor:
    if weight is None:
        return neighbors.target_pointer.diff()
    return torch.segment_reduce(weight, "sum", offsets=neighbors.target_pointer)
