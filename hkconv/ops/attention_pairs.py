"""What the backends of attention exchange with :mod:`hkconv.ops.attention`: everything on the unit hyperboloid."""

from typing import NamedTuple, cast

from torch import Tensor


class KernelInputs(NamedTuple):
    """What HKConv's aggregation reads beside HyboNet's, as in :class:`Inputs`."""

    own: Tensor
    weight: Tensor
    bias: Tensor | None
    gate_weight: Tensor
    gate_bias: Tensor | None
    log_scale: Tensor
    points: Tensor


class Inputs(NamedTuple):
    r"""The tensors of the operator, in its order, for H heads, B sequences, T queries, S keys and K kernel points.

    Args:
        query, key, value, own: points ``(H, B, T|S|S|T, n+1)``, of which only the space is read.
        weight, bias, gate_weight, gate_bias, log_scale: of K HLinear a head, with leading ``(H, K)``.
        points: kernel points ``(K, n+1)``.
        steepness: the factor of :math:`-d^2` in the scores, ``()``.
        padding: ``(B, S)``, true for keys that nobody sees.

    ``own`` to ``points`` are None for HyboNet's aggregation.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    own: Tensor | None
    weight: Tensor | None
    bias: Tensor | None
    gate_weight: Tensor | None
    gate_bias: Tensor | None
    log_scale: Tensor | None
    points: Tensor | None
    steepness: Tensor
    padding: Tensor | None

    @property
    def kernel(self) -> KernelInputs | None:
        """``own`` to ``points``; None for HyboNet's aggregation."""
        if self.own is None:
            return None
        # With the first come all of them but the biases, which are optional.
        return KernelInputs(
            self.own,
            cast(Tensor, self.weight),
            self.bias,
            cast(Tensor, self.gate_weight),
            self.gate_bias,
            cast(Tensor, self.log_scale),
            cast(Tensor, self.points),
        )


class Kernel(NamedTuple):
    r"""What pairs need for HKConv. A row of products holds the K directions one after the other, then the K gates.

    Args:
        own: the points :math:`v_i`, ``(H, B, T, n+1)``.
        value_product, own_product: :math:`W_s v_s` and the gates' :math:`v \cdot v_s`, ``(H, B, S|T, K(n+1))``.
        bias, time: :math:`b` and :math:`w_t` in the same order, ``(H, K(n+1))``.
        scale: :math:`\lambda`, ``(H, K)``.
        points: ``(K, n+1)``.
    """

    own: Tensor
    value_product: Tensor
    own_product: Tensor
    bias: Tensor
    time: Tensor
    scale: Tensor
    points: Tensor


class Pairs(NamedTuple):
    """All that pairs of queries and keys read; the kernel is None for HyboNet's aggregation."""

    query: Tensor
    key: Tensor
    value: Tensor
    steepness: Tensor
    padding: Tensor | None
    causal: bool
    kernel: Kernel | None


class KernelGradients(NamedTuple):
    """Gradients of :class:`Kernel`, as in :class:`PairGradients`."""

    own: Tensor
    value_product: Tensor
    own_product: Tensor
    time: Tensor
    scale: Tensor
    points: Tensor


class PairGradients(NamedTuple):
    """Gradients of :class:`Pairs`, and of :class:`Kernel` if there is one; that of the biases follows from these."""

    query: Tensor
    key: Tensor
    value: Tensor
    steepness: Tensor
    own: Tensor | None = None
    value_product: Tensor | None = None
    own_product: Tensor | None = None
    time: Tensor | None = None
    scale: Tensor | None = None
    points: Tensor | None = None

    @property
    def kernel(self) -> KernelGradients:
        """Those of :class:`Kernel`, where there is one."""
        return KernelGradients._make(getattr(self, name) for name in KernelGradients._fields)
