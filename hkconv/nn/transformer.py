"""Layers of the fully hyperbolic transformer (HyboNet, Chen et al. 2021), with HKConv or centroids in the attention."""

import math
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor

from hkconv.geometry.checks import check_points
from hkconv.geometry.curvature import Curvature
from hkconv.nn.centroid import mix
from hkconv.nn.common import dropped, full_precision, register_curvature, reset_modules
from hkconv.nn.hk_attention import AttentionCache, HKAttention
from hkconv.nn.linear import HLinear
from hkconv.nn.norm import HNorm
from hkconv.ops.rows import are_fused, mixed_norm

# Of a part in its residual, in a fresh layer.
INITIAL_SHARE = 0.2


class HFeedForward(torch.nn.Module):
    r"""Two hyperbolic linear maps, :math:`\mathrm{HLinear}_2 \circ \mathrm{HLinear}_1`, the second with a ReLU on its
    input.

    Args:
        dim: dimension of the points.
        hidden_dim: dimension between the two maps.
        dropout: rate for the spatial coordinates of the inputs of both maps.
        curvature: negative curvature; a ``torch.nn.Parameter`` is learned.

    Shapes: ``(..., dim+1) -> (..., dim+1)``.
    """

    curvature: Curvature

    def __init__(self, dim: int, hidden_dim: int, *, dropout: float = 0.0, curvature: Curvature = -1.0):
        super().__init__()
        self.dropout = dropout
        register_curvature(self, curvature)
        self.first = HLinear(dim, hidden_dim, curvature=curvature)
        self.second = HLinear(hidden_dim, dim, act="relu", curvature=curvature)

    def reset_parameters(self) -> None:
        reset_modules(self.children())

    def forward(self, x: Tensor) -> Tensor:
        with full_precision(x) as (x,):
            for linear in (self.first, self.second):
                x = linear(dropped(x, self.dropout, self.curvature, self.training))
            return x

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.first.in_dim}, {self.first.out_dim})"


class HResidual(torch.nn.Module):
    r"""Residual connection of a part f of a layer: the centroid of its input and its output with learned weights,

    .. math:: x' = \mathrm{HNorm}(\mathrm{HCent}(\{x, f\}, \{1 - \sigma(\beta), \sigma(\beta)\})),

    the weighted sum of both brought back to the manifold, then :class:`~hkconv.nn.norm.HNorm` over the channels.

    HLinear gives every output the same length, also to the average that a fresh attention makes of all positions. With
    equal weights each layer would halve what tells positions apart, and nothing of it would be left after six. The
    share :math:`\sigma(\beta)` therefore starts at 1/5, about that of attention in a Euclidean transformer.

    Shapes: ``(..., dim+1), (..., dim+1) -> (..., dim+1)``.
    """

    curvature: Curvature

    def __init__(self, dim: int, *, curvature: Curvature = -1.0):
        super().__init__()
        register_curvature(self, curvature)
        self.logit = torch.nn.Parameter(torch.empty(()))
        self.norm = HNorm(dim, "layer", curvature=curvature)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        torch.nn.init.constant_(self.logit, math.log(INITIAL_SHARE / (1 - INITIAL_SHARE)))
        self.norm.reset_parameters()

    def forward(self, x: Tensor, part: Tensor) -> Tensor:
        with full_precision(x, part) as (x, part):
            if isinstance(self.norm.norm, torch.nn.LayerNorm) and are_fused(x, self.norm.dim, self.curvature):
                return mixed_norm(x, part, self.logit, self.norm.norm, cast(float, self.curvature))
            return self.norm(mix(x, part, self.logit, self.curvature))

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.norm.dim})"


class HTransformerEncoderLayer(torch.nn.Module):
    """Self attention and feed-forward, each closed by :class:`HResidual`.

    Args:
        dim: dimension of the points.
        num_heads: number of heads.
        feedforward_dim: dimension inside the feed-forward part.
        kernel_size, aggregation, form: of :class:`~hkconv.nn.hk_attention.HKAttention`.
        dropout: rate for the spatial coordinates of the input of every linear map but the last of the attention.
        curvature: negative curvature; a ``torch.nn.Parameter`` is learned.
        backend: of the attention.

    Shapes:
        - **x**: points ``(B, T, dim+1)``
        - **padding_mask**: ``(B, T)``, true for padding, or None
        - **output**: points ``(B, T, dim+1)``
    """

    curvature: Curvature

    def __init__(
        self,
        dim: int,
        num_heads: int,
        feedforward_dim: int,
        *,
        kernel_size: int = 4,
        aggregation: Literal["kernel", "centroid"] = "kernel",
        form: Literal["paper", "views"] = "paper",
        dropout: float = 0.0,
        curvature: Curvature = -1.0,
        backend: str = "auto",
    ):
        super().__init__()
        self.dim = dim
        register_curvature(self, curvature)
        common: dict[str, Any] = {"dropout": dropout, "curvature": curvature}
        self.attention = HKAttention(
            dim, num_heads, kernel_size=kernel_size, aggregation=aggregation, form=form, backend=backend, **common
        )
        self.feedforward = HFeedForward(dim, feedforward_dim, **common)
        self.after_attention, self.after_feedforward = (HResidual(dim, curvature=curvature) for _ in range(2))

    def reset_parameters(self) -> None:
        reset_modules(self.children())

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        check_points(x, self.dim, self.curvature, "x")
        x = self.after_attention(x, self.attention(x, key_padding_mask=padding_mask))
        return self.after_feedforward(x, self.feedforward(x))

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.attention}, {self.feedforward})"


class DecoderCache(NamedTuple):
    """State of a decoder layer between the steps of incremental decoding."""

    self_attention: AttentionCache
    cross_attention: AttentionCache

    @classmethod
    def empty(cls) -> "DecoderCache":
        return cls(AttentionCache(), AttentionCache())

    def reorder(self, index: Tensor) -> None:
        """Keep the sequences of these numbers ``(B',)``, in their order."""
        for cache in self:
            cache.reorder(index)


class HTransformerDecoderLayer(HTransformerEncoderLayer):
    """Causal self attention, attention to a memory, and feed-forward, each closed by :class:`HResidual`.

    Attention to the memory is always HyboNet's: there is no value of the query's own that others could be relative to.

    Args: as :class:`HTransformerEncoderLayer`; ``aggregation`` and ``form`` are those of the self attention.

    Shapes:
        - **x**: points ``(B, T, dim+1)``; with a cache only the new positions
        - **memory**: points ``(B, S, dim+1)``
        - **memory_padding_mask**: ``(B, S)``, true for padding, or None
        - **output**: points ``(B, T, dim+1)``
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        feedforward_dim: int,
        *,
        dropout: float = 0.0,
        curvature: Curvature = -1.0,
        backend: str = "auto",
        **self_attention: Any,
    ):
        common: dict[str, Any] = {"dropout": dropout, "curvature": curvature, "backend": backend}
        super().__init__(dim, num_heads, feedforward_dim, **common, **self_attention)
        self.cross_attention = HKAttention(dim, num_heads, aggregation="centroid", **common)
        self.after_cross_attention = HResidual(dim, curvature=curvature)

    def forward(  # type: ignore[override]  # it has the parts of an encoder layer, and reads a memory too
        self,
        x: Tensor,
        memory: Tensor,
        memory_padding_mask: Tensor | None = None,
        cache: DecoderCache | None = None,
    ) -> Tensor:
        check_points(x, self.dim, self.curvature, "x")
        own, cross = (None, None) if cache is None else cache
        x = self.after_attention(x, self.attention(x, causal=True, cache=own))
        attended = self.cross_attention(x, memory, key_padding_mask=memory_padding_mask, cache=cross)
        x = self.after_cross_attention(x, attended)
        return self.after_feedforward(x, self.feedforward(x))
