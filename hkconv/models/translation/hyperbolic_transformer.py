"""HKN and HyboNet for translation: the fully hyperbolic transformer with their attention, points from end to end."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import geoopt
import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.errors import InputError
from hkconv.geometry.lorentz import centroid, exp0, lift
from hkconv.geometry.manifold import Lorentz
from hkconv.models.translation.seq2seq import DecodingState, Memory, Seq2Seq, Sizes
from hkconv.nn import DecoderCache, HNorm, HTransformerDecoderLayer, HTransformerEncoderLayer
from hkconv.nn.common import full_precision, relift_

Output = Literal["distance", "planes"]
OUTPUTS = ("distance", "planes")


class HyperbolicTransformer(Seq2Seq):
    """Embeddings, states and output embeddings are points ``(..., dim+1)`` of one hyperboloid, of curvature -1.

    Args:
        sizes: sizes of the system.
        output: of :class:`LorentzEmbedding`.
        attention: what :class:`~hkconv.nn.HTransformerEncoderLayer` takes for its attention.
    """

    geometry = "lorentz"

    def __init__(self, sizes: Sizes, output: Output = "distance", **attention: Any):
        super().__init__(sizes)
        dims = sizes.dim, sizes.num_heads, sizes.feedforward_dim
        options = {**attention, "dropout": sizes.dropout}
        self.embedding = LorentzEmbedding(sizes, output)
        self.encoder = torch.nn.ModuleList(HTransformerEncoderLayer(*dims, **options) for _ in range(sizes.num_layers))
        self.decoder = torch.nn.ModuleList(HTransformerDecoderLayer(*dims, **options) for _ in range(sizes.num_layers))

    def run_decoder(self, states: Tensor, memory: Memory, caches: Sequence[DecoderCache | None]) -> Tensor:
        for layer, cache in zip(self.decoder, caches):
            states = layer(states, *memory, cache)
        return states

    def start(self, memory: Memory) -> DecodingState:
        return DecodingState(0, [DecoderCache.empty() for _ in self.decoder])

    def reorder(self, state: DecodingState, memory: Memory, index: Tensor) -> tuple[DecodingState, Memory]:
        for cache in state.caches:
            cache.reorder(index)
        return state, memory.pick(index)


class LorentzEmbedding(torch.nn.Module):
    r"""Points of tokens :math:`e_w` and of positions :math:`p_t`, all learned; a state is their normalised centroid,
    and a logit the negative squared Lorentzian distance to a token, as in HyboNet (Chen et al. 2021),

    .. math::
        x = \mathrm{HNorm}(\mathrm{HCent}(\{e_w, p_t\})), \qquad
        \mathrm{logit}_w(x) = -\frac{\|x - e_w\|_L^2}{T} = \frac{2 + 2 \langle x, e_w\rangle}{T},

    with a learned temperature :math:`T`. That distance is :math:`2(\cosh d - 1)`, and grows with the geodesic one; it
    is one product of matrices, where all distances of a batch to a vocabulary would be billions of roots. One set
    of points serves source, target and output. Dropout acts on the spatial coordinates of states.

    A token is near to most states only if it is near to the origin: frequent ones go there, and from there no direction
    of a state says much about them. With ``output="planes"`` a logit compares the distance with that of the token
    mirrored in the origin, :math:`\bar e_w`, and the radius is free,

    .. math::
        \mathrm{logit}_w(x) = \frac{\|x - \bar e_w\|_L^2 - \|x - e_w\|_L^2}{2T} = \frac{2\, x_s \cdot e_{w,s}}{T}
        = \frac{2}{T} \sinh d(o, e_w) \sinh d(x, H_w),

    with the signed distance to the hyperplane :math:`H_w` through the origin whose normal points to the token.

    Args:
        sizes: sizes of the system.
        output: ``"distance"`` or ``"planes"``.

    Shapes: ids ``(B, T)`` to points ``(B, T, dim+1)``; points to logits ``(B, T, vocabulary)``.
    """

    def __init__(self, sizes: Sizes, output: Output = "distance"):
        super().__init__()
        if output not in OUTPUTS:
            raise InputError(f"output must be {' or '.join(map(repr, OUTPUTS))}, got {output!r}")
        self.output = output
        manifold = Lorentz()
        self.tokens = geoopt.ManifoldParameter(manifold.origin(sizes.vocabulary, sizes.dim + 1), manifold=manifold)
        self.positions = geoopt.ManifoldParameter(manifold.origin(sizes.max_length, sizes.dim + 1), manifold=manifold)
        self.norm = HNorm(sizes.dim, "layer")
        self.dropout = torch.nn.Dropout(sizes.dropout)
        self.log_temperature = torch.nn.Parameter(torch.empty(()))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        r"""Points in random directions at distance about 1, and :math:`T = 2 n^{-1/2}`, with which the logits of such
        points have a standard deviation of about 1."""
        for points in (self.tokens, self.positions):
            points.copy_(exp0(F.pad(points.new_empty(points[:, 1:].shape).normal_(std=self.norm.dim**-0.5), (1, 0))))
        self.norm.reset_parameters()
        self.log_temperature.fill_(math.log(2 * self.norm.dim**-0.5))

    def forward(self, ids: Tensor, first: int) -> Tensor:
        """Points of tokens at the positions ``first``, ``first + 1``, ..."""
        token = lift(F.embedding(ids, self.tokens)[..., 1:])
        position = lift(self.positions[first : first + ids.size(1), 1:]).expand_as(token)
        states = self.norm(centroid(torch.stack([token, position], dim=-2)))
        return lift(self.dropout(states[..., 1:]))

    def logits(self, states: Tensor) -> Tensor:
        return self.logits_of(self.tokens, states)

    def logits_of(self, tokens: Tensor, states: Tensor) -> Tensor:
        """The logits of other points ``(V, dim+1)`` than those of the vocabulary."""
        with full_precision(states) as (states,):
            if self.output == "planes":
                return F.linear(states[..., 1:] * (2 * (-self.log_temperature).exp()), tokens[:, 1:])
            mirrored = torch.cat([-states[..., :1], states[..., 1:]], dim=-1)
            return 2 * (1 + F.linear(mirrored, lift(tokens[:, 1:]))) * (-self.log_temperature).exp()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "LorentzEmbedding":
        super()._apply(fn, recurse)
        relift_(self.tokens, -1.0)
        relift_(self.positions, -1.0)
        return self


class HKNTransformer(HyperbolicTransformer):
    """The paper's system: the :class:`HyperbolicTransformer` whose self-attention aggregates values by HKConv, in
    encoder and decoder. Attention to the memory has no value of its own to be relative
    to and is HyboNet's.

    Args:
        sizes: sizes of the system.
        kernel_size: number of kernel points.
        form, backend: of :class:`~hkconv.nn.HKAttention`.
        output: of :class:`LorentzEmbedding`.
    """

    def __init__(
        self,
        sizes: Sizes,
        kernel_size: int = 4,
        form: Literal["paper", "views"] = "paper",
        output: Output = "distance",
        backend: str = "auto",
    ):
        super().__init__(sizes, output, aggregation="kernel", kernel_size=kernel_size, form=form, backend=backend)


class HyboNetTransformer(HyperbolicTransformer):
    """HyboNet (Chen et al. 2021, Fully Hyperbolic Neural Networks): the :class:`HyperbolicTransformer` whose attention
    takes the centroid of values, so that it differs from HKN in the aggregation alone.

    Args:
        sizes: sizes of the system.
        output: of :class:`LorentzEmbedding`.
        backend: of :class:`~hkconv.nn.HKAttention`.
    """

    def __init__(self, sizes: Sizes, output: Output = "distance", backend: str = "auto"):
        super().__init__(sizes, output, aggregation="centroid", backend=backend)
