r"""HNN++ (Shimizu et al. 2021, Hyperbolic Neural Networks++): ConvSeq2Seq with all its parts in hyperbolic space.

The paper writes its layers in the Poincaré ball of curvature -1, whose points :math:`p` have a conformal factor
:math:`\lambda_p = 2/(1 - |p|^2)`. Here a point is that of the Lorentz model over it: :math:`\lambda_p\, p = x_s` and
:math:`\lambda_p - 1 = x_t`, with which the formulas become shorter and need no distance from the boundary.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.geometry.lorentz import exp0, lift, log0, oplus
from hkconv.geometry.maps import max_radius
from hkconv.models.translation.convseq2seq import HALF, ConvSeq2Seq, around, up_to
from hkconv.models.translation.hatt import attend
from hkconv.models.translation.seq2seq import Cache, Memory, Sizes
from hkconv.nn.common import full_precision


class HNNPlusPlus(ConvSeq2Seq):
    r""":class:`~hkconv.models.translation.convseq2seq.ConvSeq2Seq` in hyperbolic space.

    The paper names the layers and not each step between them. Here every equation of ConvSeq2Seq is taken over: linear
    maps become :class:`PoincareLinear`, concatenation and splitting the β-concatenation and β-split, sums Möbius
    additions :math:`\oplus`, factors Möbius multiplications :math:`r \otimes x = \exp_o(r \log_o x)`, GLU acts in the
    tangent space of the origin, attention is by distance and reads gyromidpoints, and the logits are those of the
    Poincaré multinomial regression. States are points ``(B, T, dim+1)`` of the Lorentz model, and tangent vectors as
    long as they are there, twice their coordinates in the ball.

    Args:
        sizes: sizes of the system, of which ``num_heads`` and ``feedforward_dim`` do not matter.
        kernel_size: width of the convolutions.
    """

    geometry = "lorentz"

    def make_embedding(self) -> torch.nn.Module:
        return PointEmbedding(self.sizes)

    def make_encoder_layer(self, kernel_size: int) -> torch.nn.Module:
        return PoincareEncoderLayer(self.sizes, kernel_size)

    def make_decoder_layer(self, kernel_size: int) -> torch.nn.Module:
        return PoincareDecoderLayer(self.sizes, kernel_size)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        return mobius_add(x, y)


class PoincareLinear(torch.nn.Module):
    r"""The Poincaré fully connected layer, with which :math:`v_k` are also the logits of multinomial regression,

    .. math::
        v_k(p) &= 2 |z_k| \operatorname{arsinh}\big(\lambda_p \langle p, [z_k]\rangle \cosh 2r_k
                  - (\lambda_p - 1) \sinh 2r_k\big), \qquad [z] = z/|z| \\
        y &= \frac{w}{1 + \sqrt{1 + |w|^2}}, \qquad w_k = \sinh v_k(p),

    so that the Lorentz coordinates of :math:`y` in space are :math:`w` itself.

    Args:
        in_dim: dimension of the input points, which carry ``in_dim+1`` coordinates.
        out_dim: number of hyperplanes :math:`(z_k, r_k)`.
        std: standard deviation of :math:`2z` at the start; near the origin the layer is the linear map :math:`2z`. The
            paper's :math:`(2 n m)^{-1/2}` for :math:`z` shrinks points with every layer; :math:`m^{-1/2}`, with m the
            number of outputs, keeps their size.

    Shapes: ``(..., in_dim+1) -> (..., out_dim+1)``, the scores ``(..., out_dim)``.
    """

    def __init__(self, in_dim: int, out_dim: int, std: float):
        super().__init__()
        self.direction = torch.nn.Parameter(std / 2 * torch.randn(out_dim, in_dim))
        self.offset = torch.nn.Parameter(torch.zeros(out_dim))

    def scores(self, x: Tensor) -> Tensor:
        """:math:`v_k`, twice :math:`|z_k|` times the signed distance to the hyperplane."""
        length = torch.linalg.vector_norm(self.direction, dim=-1)
        along = F.linear(x[..., 1:], self.direction / length.unsqueeze(-1))
        return 2 * length * torch.asinh(along * (2 * self.offset).cosh() - x[..., :1] * (2 * self.offset).sinh())

    def forward(self, x: Tensor) -> Tensor:
        limit = max_radius(x.dtype)
        return lift(torch.sinh(self.scores(x).clamp(-limit, limit)))


class PointEmbedding(torch.nn.Module):
    r"""Points :math:`\exp_o(\operatorname{dropout}(E_w + P_t))` of token :math:`w` at position :math:`t`, and the
    logits of the Poincaré multinomial regression.

    Shapes: ids ``(B, T)`` to points ``(B, T, dim+1)``; points to logits ``(B, T, vocabulary)``.
    """

    def __init__(self, sizes: Sizes):
        super().__init__()
        start = (2 * sizes.dim) ** -0.5  # points at distance about 1
        self.tokens = torch.nn.Parameter(start * torch.randn(sizes.vocabulary, sizes.dim))
        self.positions = torch.nn.Parameter(start * torch.randn(sizes.max_length, sizes.dim))
        self.dropout = torch.nn.Dropout(sizes.dropout)
        self.output = PoincareLinear(sizes.dim, sizes.vocabulary, std=1.0)

    def forward(self, ids: Tensor, first: int) -> Tensor:
        position = self.positions[first : first + ids.size(1)]
        return from_tangent(self.dropout(F.embedding(ids, self.tokens) + position))

    def logits(self, states: Tensor) -> Tensor:
        with full_precision(states) as (states,):
            return self.output.scores(states)


class PoincareGatedConvolution(torch.nn.Module):
    r"""The Poincaré convolution, a :class:`PoincareLinear` of the β-concatenation of a window, and a gate,

    .. math::
        u = \exp_o\Big(\operatorname{dropout}\Big[\frac{\beta_{kn}}{\beta_n} \log_o x_j\Big]_{j=1}^k\Big), \qquad
        [a, b] = \frac{\beta_n}{\beta_{2n}} \log_o \operatorname{FC}(u), \qquad
        h = \exp_o(a \odot \sigma(b)), \qquad \beta_n = B(n/2, 1/2).

    Shapes: tangent vectors ``(B, T, dim, k)`` to points ``(B, T, dim+1)``.
    """

    def __init__(self, sizes: Sizes, kernel_size: int):
        super().__init__()
        n = sizes.dim
        self.join, self.split = beta(kernel_size * n) / beta(n), beta(n) / beta(2 * n)
        self.dropout = torch.nn.Dropout(sizes.dropout)
        # Twice the size that is kept, because gates start half open.
        self.linear = PoincareLinear(kernel_size * n, 2 * n, std=2 * (2 * n) ** -0.5)

    def forward(self, windows: Tensor) -> Tensor:
        joined = from_tangent(self.dropout(self.join * windows.flatten(2)))
        return from_tangent(F.glu(self.split * tangent(self.linear(joined))))


class PoincareEncoderLayer(torch.nn.Module):
    r""":math:`x_i' = \sqrt{1/2} \otimes (h_i \oplus x_i)` with :math:`h` the gated convolution around each position.

    Shapes: ``(B, S, dim+1) -> (B, S, dim+1)``.
    """

    def __init__(self, sizes: Sizes, kernel_size: int):
        super().__init__()
        self.kernel_size, self.convolution = kernel_size, PoincareGatedConvolution(sizes, kernel_size)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        with full_precision(x) as (x,):
            h = self.convolution(around(tangent(x), padding, self.kernel_size))
            return scaled_sum(h, x)


class PoincareDecoderLayer(torch.nn.Module):
    r"""A gated convolution :math:`h` over the past and an attention from it,

    .. math::
        d_i = \operatorname{FC}(h_i) \oplus g_i, \qquad
        a_{ij} = \operatorname{softmax}_j(-\tau\, d(d_i, z_j)), \qquad
        c_i = \operatorname{midpoint}_j(z_j \oplus e_j;\ a_{ij}), \qquad
        x_i' = \sqrt{\tfrac12} \otimes \Big(\sqrt{\tfrac12} \otimes (h_i \oplus c_i) \oplus x_i\Big),

    with a learned :math:`\tau`; a bias beside it would cancel in the softmax.

    Shapes: ``(B, T, dim+1) -> (B, T, dim+1)``.
    """

    def __init__(self, sizes: Sizes, kernel_size: int):
        super().__init__()
        self.kernel_size, self.convolution = kernel_size, PoincareGatedConvolution(sizes, kernel_size)
        self.query = PoincareLinear(sizes.dim, sizes.dim, std=sizes.dim**-0.5)
        self.log_sharpness = torch.nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, embedded: Tensor, memory: Memory, cache: Cache | None) -> Tensor:
        with full_precision(x, embedded, memory.states) as (x, embedded, states):
            h = self.convolution(up_to(tangent(x), self.kernel_size, cache))
            key, value = states.unbind(2)
            query = mobius_add(self.query(h), embedded)
            read = attend(query, key, value, ~memory.padding.unsqueeze(1), self.log_sharpness.exp())
            return scaled_sum(scaled_sum(h, read), x)


def beta(n: int) -> float:
    """:math:`B(n/2, 1/2)`, by which the lengths of tangent vectors of different dimensions are made alike."""
    return math.exp(math.lgamma(n / 2) + math.lgamma(0.5) - math.lgamma((n + 1) / 2))


def tangent(x: Tensor) -> Tensor:
    """The logarithm at the origin, without its time. Shapes: ``(..., n+1) -> (..., n)``."""
    return log0(x)[..., 1:]


def from_tangent(v: Tensor) -> Tensor:
    """The inverse of :func:`tangent`."""
    with full_precision(v) as (v,):
        return exp0(F.pad(v, (1, 0)))


def mobius_add(x: Tensor, y: Tensor) -> Tensor:
    r""":math:`x \oplus y`: the point ``y``, seen from the origin, placed around ``x``."""
    # Lifted, so that rounding does not add up over the layers.
    return lift(oplus(y, x)[..., 1:])


def scaled_sum(x: Tensor, y: Tensor) -> Tensor:
    r""":math:`\sqrt{1/2} \otimes (x \oplus y)`."""
    return from_tangent(HALF * tangent(mobius_add(x, y)))
