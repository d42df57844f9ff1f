"""Layers along edges as PyG's tools see them: explainers, ``to_hetero``, counts of hops and layers."""

from typing import Any, NoReturn

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing

from hkconv.errors import InputError
from hkconv.geometry.curvature import Curvature
from hkconv.geometry.lorentz import centroid, origin

_STEPS = ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")


class HMessagePassing(MessagePassing):
    r"""A layer from points and edges to points, which computes with kernels of its own and not by ``propagate``.

    An explainer gives each edge a mask :math:`m_i \in [0, 1]`. A sum or mean of PyG's multiplies the message by it,
    so that what is taken from an edge goes to zero, where a node without neighbors is. A node without neighbors is at
    the origin here: an edge keeps the share :math:`m_i` of its weight, and the origin gets the rest,

    .. math:: x' = \mathrm{HCent}\big(\{x_i'\}_i \cup \{o\},\; \{m_i w_i\}_i \cup \{\textstyle\sum_i (1-m_i) w_i\}\big)

    in place of :math:`\mathrm{HCent}(\{x_i'\}_i, \{w_i\}_i)`. With all masks at 1 that is the layer, with all at 0 the
    node has no neighbors, and every mask has a gradient, that of a single neighbor too. As weights alone, masks would
    only count beside each other: all at 0.01 would be the same as all at 1.
    """

    in_dim: int
    out_dim: int

    def __init__(self) -> None:
        super().__init__(aggr=None, node_dim=0)

    @property
    def in_channels(self) -> int:
        """Number of columns of the input, one more than the dimension of its points; -1 before the first input."""
        return -1 if self.in_dim < 0 else self.in_dim + 1

    @property
    def out_channels(self) -> int:
        """Number of columns of the output."""
        return self.out_dim + 1

    def kept_shares(self) -> Tensor | None:
        """Return the masks :math:`m_i`, in the order of the edges as they were first given; None if nobody explains."""
        if not self.explain:
            return None
        if self._edge_mask is None:
            raise InputError("explain is set, and there is no edge mask: only explainers that learn one are supported")
        return self._edge_mask.sigmoid() if self._apply_sigmoid else self._edge_mask

    def propagate(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Not offered."""
        raise InputError(f"{type(self).__name__} makes no single messages that could be propagated or hooked")

    def _set_jittable_templates(self, raise_on_error: bool = False) -> None:
        """PyG would write a module for ``propagate`` to disk."""


for _step in _STEPS:
    for _hook in (f"register_{_step}_forward_pre_hook", f"register_{_step}_forward_hook"):
        setattr(HMessagePassing, _hook, HMessagePassing.propagate)


def masked(
    weight: Tensor | None, kept: Tensor | None, order: Tensor | None, target: Tensor, x_target: Tensor
) -> tuple[Tensor | None, Tensor | None]:
    r"""Weights :math:`m_i w_i` under the masks of an explainer, and what the origin gets at each target.

    Args:
        weight: weights of edges, or None for equal ones.
        kept: masks in the order of the user's edges, or None.
        order: positions of the edges among the user's, if they are in another order.
        target: targets of the edges.
        x_target: the points that these number.
    """
    if kept is None:
        return weight, None
    if kept.shape != target.shape:
        raise InputError(f"an edge mask must have shape {tuple(target.shape)}, got {tuple(kept.shape)}")
    kept = (kept if order is None else kept.index_select(0, order)).to(x_target.dtype)
    full = torch.ones_like(kept) if weight is None else weight.to(kept.dtype)
    return full * kept, kept.new_zeros(x_target.size(0)).index_add(0, target, full * (1 - kept))


def drawn_to_origin(point: Tensor, mass: Tensor, weight: Tensor, curvature: Curvature) -> Tensor:
    """The centroid of a point with its mass and of the origin with a weight, ``(N, n+1), (N,), (N,) -> (N, n+1)``."""
    start = origin(point.size(-1) - 1, curvature, dtype=point.dtype, device=point.device).expand_as(point)
    return centroid(torch.stack([point, start], -2), torch.stack([mass, weight], -1), curvature=curvature)
