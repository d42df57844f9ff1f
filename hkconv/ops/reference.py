"""HKConv and its attention edge by edge in plain PyTorch: equations (5) to (7) of the paper.

Every other backend must equal these. Many edges are taken in pieces, which are computed again for gradients.
"""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from hkconv.geometry.curvature import Curvature
from hkconv.geometry.lorentz import centroid, dist, lift, ominus
from hkconv.ops.centroid import kernel_centroid, segment_centroid
from hkconv.ops.linear import LinearTensors, hyperbolic_linear
from hkconv.ops.neighbors import Edges

# More numbers than this in one tensor on the way, and rows are taken in pieces: 128 MB in float32.
NUMBERS_AT_ONCE = 1 << 25


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
    r"""The three steps of HKConv for the neighbors :math:`x_i` of each target :math:`x`:

    .. math::
        x_{ik} &= \mathrm{HLinear}_k(x_i \ominus x) \\
        x_i'   &= \mathrm{HCent}(\{x_{ik}\}_k, \{d(x_i \ominus x, \tilde x_k)\}_k) \\
        x'     &= \mathrm{HCent}(\{x_i'\}_i, \{w_i\}_i)

    With ``relative=False`` (HKN-direct) HLinear sees :math:`x_i` itself. The correlation there,
    :math:`d(x_i, T_{o \to x}(\tilde x_k))`, is the same number, because :math:`T_{x \to o}` is an isometry.

    Args:
        x_source: points to gather, ``(N_source, m+1)``.
        x_target: points to gather at, ``(N_target, m+1)``.
        edges: who is whose neighbor, and the weights :math:`w_i`.
        linear: the parameters of K stacked :func:`~hkconv.ops.linear.hyperbolic_linear` by name.
        points: kernel points, ``(K, m+1)``.
        act: activation :math:`\tau` inside HLinear.
        relative: use relative features.
        curvature: negative curvature.
        piecewise: where there are many edges, take them in pieces, so that nothing of size E x K x n is kept.

    Returns:
        Aggregated points ``(N_target, n+1)``, the origin where there is no neighbor, and their masses.
    """

    def messages(source: Tensor, target: Tensor) -> Tensor:
        neighbor = x_source.index_select(0, source)
        relative_feature = ominus(neighbor, x_target.index_select(0, target), curvature)
        feature = relative_feature if relative else neighbor
        transformed = hyperbolic_linear(feature, **linear, act=act, curvature=curvature)
        correlation = dist(relative_feature.unsqueeze(1), points, curvature)
        return kernel_centroid(transformed, correlation, curvature)

    numbers = edges.source.numel() * points.size(0) * (linear["weight"].size(1) + 1) if piecewise else 0
    message = in_pieces(messages, (edges.source, edges.target), numbers, is_random=act is not None)
    return segment_centroid(message, edges.target, x_target.size(0), edges.weight, curvature)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    own: Tensor | None = None,
    linear: LinearTensors | None = None,
    points: Tensor | None = None,
    padding: Tensor | None = None,
    causal: bool = False,
    curvature: Curvature = -1.0,
    piecewise: bool = False,
    steepness: Tensor | None = None,
) -> Tensor:
    r"""Attention of H heads over B sequences, from T queries :math:`q_i` to S keys :math:`k_j` and values :math:`v_j`:

    .. math::
        w_{ij}   &= \mathrm{softmax}_j(-d^2(q_i, k_j)/\sqrt n) \\
        v_{ij}'  &= \mathrm{HCent}(\{\mathrm{HLinear}_k(v_j \ominus v_i)\}_k, \{d(v_j \ominus v_i, \tilde x_k)\}_k) \\
        \mu_i    &= \mathrm{HCent}(\{v_{ij}'\}_j, \{w_{ij}\}_j)

    Without ``linear`` it is HyboNet's, :math:`v_{ij}' = v_j`. A query that may see no key gives the origin.

    Args:
        query: points ``(H, B, T, n+1)``.
        key: points ``(H, B, S, n+1)``.
        value: points ``(H, B, S, n+1)``.
        own: the values :math:`v_i` at the positions of the queries, ``(H, B, T, n+1)``.
        linear: K maps a head by the names of :func:`~hkconv.ops.linear.hyperbolic_linear`, with leading ``(H, K)``.
        points: kernel points ``(K, n+1)``.
        padding: keys that nobody may see, ``(B, S)``, true there.
        causal: query i sees the keys up to j = i + S - T: its own position is the last where T = S.
        curvature: negative curvature.
        piecewise: where there are many pairs, take the queries in pieces, and compute these again for gradients.
        steepness: another factor of :math:`-d^2` than :math:`1/\sqrt n`, ``()``.

    Returns:
        Points ``(H, B, T, n+1)``.
    """

    def rows(number: Tensor, query: Tensor, own: Tensor | None = None) -> Tensor:
        """The outputs of some queries; positions come first in all tensors, because these are taken in pieces."""
        query, own = query.movedim(0, 2), None if own is None else own.movedim(0, 2)
        seen = visible(number, key.size(2), positions, padding, causal)
        distance = dist(query.unsqueeze(3), key.unsqueeze(2), curvature)
        weight = _softmax(-factor * distance.square(), seen)
        # `own` comes with the parameters and the points of its kernel.
        kernel = cast(LinearTensors, linear), cast(Tensor, points)
        message = value.unsqueeze(2) if own is None else _messages(value, own, *kernel, curvature)
        out = centroid(message.expand(*weight.shape, -1), weight, -2, curvature)
        return lift(torch.where(seen.any(-1, keepdim=True), out[..., 1:], 0), curvature).movedim(2, 0)

    positions = query.size(2)
    factor = (key.size(-1) - 1) ** -0.5 if steepness is None else steepness
    parts = [torch.arange(positions, device=query.device), query.movedim(2, 0)]
    parts += [] if own is None else [own.movedim(2, 0)]
    numbers = 0
    if piecewise:
        numbers = query[..., 0].numel() * key.size(2) * value.size(-1) * (1 if points is None else points.size(0))
    return in_pieces(rows, tuple(parts), numbers).movedim(0, 2)


def visible(number: Tensor, keys: int, queries: int, padding: Tensor | None, causal: bool) -> Tensor:
    """Mask of the keys that the queries of these numbers see, ``(B or 1, len(number), keys)``."""
    seen = torch.ones(1, number.numel(), keys, dtype=torch.bool, device=number.device)
    if causal:
        seen = seen & (torch.arange(keys, device=number.device) <= number.unsqueeze(1) + (keys - queries))
    return seen if padding is None else seen & ~padding.unsqueeze(1)


def _softmax(score: Tensor, seen: Tensor) -> Tensor:
    """Softmax over the keys that are seen, all zero where there is none."""
    score = score.masked_fill(~seen, -torch.inf)
    highest = score.detach().amax(-1, keepdim=True) if score.size(-1) else score.new_zeros(())
    share = (score - torch.where(highest == -torch.inf, 0, highest)).exp()
    total = share.sum(-1, keepdim=True)
    return share / torch.where(total == 0, 1, total)


def _messages(value: Tensor, own: Tensor, linear: LinearTensors, points: Tensor, curvature: Curvature) -> Tensor:
    """The points v_ij' of all pairs, ``(H, B, T, S, n+1)``."""
    heads = []
    for head, (v, o) in enumerate(zip(value, own)):
        relative = ominus(v.unsqueeze(1), o.unsqueeze(2), curvature)
        maps: LinearTensors = {
            "weight": linear["weight"][head],
            "bias": _of_head(linear["bias"], head),
            "gate_weight": linear["gate_weight"][head],
            "gate_bias": _of_head(linear["gate_bias"], head),
            "log_scale": linear["log_scale"][head],
        }
        transformed = hyperbolic_linear(relative, **maps, curvature=curvature)
        correlation = dist(relative.unsqueeze(-2), points, curvature)
        found = kernel_centroid(transformed.flatten(0, 2), correlation.flatten(0, 2), curvature)
        heads.append(found.unflatten(0, relative.shape[:-1]))
    return torch.stack(heads)


def _of_head(bias: Tensor | None, head: int) -> Tensor | None:
    return None if bias is None else bias[head]


def in_pieces(
    function: Callable[..., Tensor], rows: tuple[Tensor, ...], numbers: int, *, is_random: bool = False
) -> Tensor:
    """``function(*rows)``, which treats each row by itself and makes tensors of ``numbers`` numbers on the way.

    What else the function needs it must have by itself; gradients reach that too. If it draws random numbers, it must
    draw the same when it is computed again.
    """
    # The number of pieces would be written into an exported program, which is for any number of rows.
    if torch.compiler.is_exporting() or torch._C._are_functorch_transforms_active():
        return function(*rows)
    pieces = -(-numbers // NUMBERS_AT_ONCE)
    if pieces <= 1:
        return function(*rows)
    parts = zip(*(row.chunk(pieces) for row in rows))
    return torch.cat([checkpoint(function, *part, use_reentrant=False, preserve_rng_state=is_random) for part in parts])
