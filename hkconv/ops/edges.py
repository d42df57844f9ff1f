"""What the fused backends exchange with :mod:`hkconv.ops.fused`: everything on the hyperboloid of curvature -1."""

from typing import NamedTuple

from torch import Tensor


class Inputs(NamedTuple):
    """The differentiable inputs of the operator, in its order; ``edge_weight`` in the order by target."""

    x_source: Tensor
    x_target: Tensor
    weight: Tensor
    bias: Tensor | None
    gate_weight: Tensor
    gate_bias: Tensor | None
    log_scale: Tensor
    points: Tensor
    edge_weight: Tensor | None


class Packed(NamedTuple):
    r"""HLinear's parameters side by side: K directions one after the other, then K gates, then unused room.

    Args:
        weight: :math:`W` and :math:`v`, ``(P, m+1)`` with :math:`P \ge K(n+1)`, zero in the room.
        bias: :math:`b` and :math:`b'`, ``(P,)``.
        time: :math:`w_t` and :math:`v_t`, ``(P,)``.
        scale: :math:`\lambda`, ``(K,)``.
    """

    weight: Tensor
    bias: Tensor
    time: Tensor
    scale: Tensor


class EdgeInputs(NamedTuple):
    r"""All that the edges read, for S sources, T targets and K kernel points.

    A row of products holds the K directions one after the other, then the K gates, as :class:`Packed`.

    Args:
        source, target: points ``(S|T, m+1)``, of which only the space is read.
        source_product: :math:`W_s u_s` and :math:`v_s \cdot u_s`; if not relative, :math:`W u` and :math:`v \cdot u`.
        target_product: :math:`W_s x_s` and :math:`v_s \cdot x_s`; None if not relative.
        bias, time, scale: as :class:`Packed`.
        points: kernel points ``(K, m+1)``.
        weight: ``(E,)`` in the order by target, not all zero for any target; None for equal ones.
        out_dim: :math:`n`.
    """

    source: Tensor
    target: Tensor
    source_product: Tensor
    target_product: Tensor | None
    bias: Tensor
    time: Tensor
    scale: Tensor
    points: Tensor
    weight: Tensor | None
    out_dim: int

    @property
    def relative(self) -> bool:
        return self.target_product is not None


class EdgeGradients(NamedTuple):
    """Gradients of :class:`EdgeInputs`, empty where there is none."""

    source: Tensor
    target: Tensor
    source_product: Tensor
    target_product: Tensor
    bias: Tensor
    time: Tensor
    scale: Tensor
    points: Tensor
    weight: Tensor
