"""Hyperbolic attention pair by pair in plain PyTorch: what every other backend must equal."""

from typing import cast

import torch
from torch import Tensor

from hkconv.geometry.curvature import Curvature
from hkconv.geometry.lorentz import centroid, dist, lift, ominus
from hkconv.ops.linear import LinearTensors, hyperbolic_linear
from hkconv.ops.pieces import in_pieces
from hkconv.ops.reference import kernel_centroid


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
    """Which keys the queries of these numbers see, ``(B or 1, len(number), keys)``."""
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
