"""HKConv edge by edge in plain PyTorch: equations (5) to (7) of the paper, what every other backend must equal."""

from collections.abc import Callable

from torch import Tensor

from hkconv.geometry.centroid import effective_weight
from hkconv.geometry.curvature import Curvature, curvature_radius
from hkconv.geometry.lorentz import dist, lift, ominus
from hkconv.ops.centroid import segment_centroid
from hkconv.ops.linear import LinearTensors, hyperbolic_linear
from hkconv.ops.neighbors import Edges
from hkconv.ops.pieces import in_pieces


def hk_aggregate(
    x_source: Tensor,
    x_target: Tensor,
    edges: Edges,
    linear: LinearTensors,
    points: Tensor,
    act: Callable[[Tensor], Tensor] | None = None,
    relative: bool = True,
    curvature: Curvature = -1.0,
    piecewise: bool = False,
) -> tuple[Tensor, Tensor]:
    r"""The three steps of HKConv for the neighbours :math:`x_i` of each target :math:`x`:

    .. math::
        x_{ik} &= \mathrm{HLinear}_k(x_i \ominus x) \\
        x_i'   &= \mathrm{HCent}(\{x_{ik}\}_k, \{d(x_i \ominus x, \tilde x_k)\}_k) \\
        x'     &= \mathrm{HCent}(\{x_i'\}_i, \{w_i\}_i)

    With ``relative=False`` (HKN-direct) HLinear sees :math:`x_i` itself. The correlation there,
    :math:`d(x_i, T_{o \to x}(\tilde x_k))`, is the same number, because :math:`T_{x \to o}` is an isometry.

    Args:
        x_source: points to gather, ``(N_source, m+1)``.
        x_target: points to gather at, ``(N_target, m+1)``.
        edges: who is whose neighbour, and the weights :math:`w_i`.
        linear: the parameters of K stacked :func:`~hkconv.ops.linear.hyperbolic_linear` by name.
        points: kernel points, ``(K, m+1)``.
        act: activation :math:`\tau` inside HLinear.
        relative: use relative features.
        curvature: negative curvature.
        piecewise: where there are many edges, take them in pieces, so that nothing of size E x K x n is kept.

    Returns:
        Aggregated points ``(N_target, n+1)``, the origin where there is no neighbour, and their masses.
    """

    def messages(source: Tensor, target: Tensor) -> Tensor:
        neighbour = x_source.index_select(0, source)
        relative_feature = ominus(neighbour, x_target.index_select(0, target), curvature)
        feature = relative_feature if relative else neighbour
        transformed = hyperbolic_linear(feature, **linear, act=act, curvature=curvature)
        correlation = dist(relative_feature.unsqueeze(1), points, curvature)
        return kernel_centroid(transformed, correlation, curvature)

    numbers = edges.source.numel() * points.size(0) * (linear["weight"].size(1) + 1) if piecewise else 0
    message = in_pieces(messages, (edges.source, edges.target), numbers, is_random=act is not None)
    return segment_centroid(message, edges.target, x_target.size(0), edges.weight, curvature)


def kernel_centroid(x: Tensor, weight: Tensor, curvature: Curvature = -1.0) -> Tensor:
    r"""Centroid of a few outputs of HLinear, ``(E, K, n+1), (E, K) -> (E, n+1)``.

    Because HLinear bounds its outputs by :math:`\lambda`, the shorter form
    :math:`-\langle s, s\rangle/(\sum\nu)^2 = R^2 + \mathrm{Var}(x_s) - \mathrm{Var}(x_t)` is accurate here; it
    spares most of the work of the general centroid on tensors of size E x K x n.
    """
    weight = effective_weight(weight, weight.sum(-1, keepdim=True))
    share = (weight / weight.sum(-1, keepdim=True)).unsqueeze(-1)
    mean = (share * x).sum(1, keepdim=True)
    spread = (x - mean).square()
    variance = (share * (spread[..., 1:].sum(-1, keepdim=True) - spread[..., :1])).sum(1)
    mass = (1 + variance / curvature_radius(curvature) ** 2).sqrt()
    return lift(mean[:, 0, 1:] / mass, curvature)
