"""ConvSeq2Seq (Gehring et al. 2017, Convolutional Sequence to Sequence Learning)."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from hkconv.errors import InputError
from hkconv.models.translation.seq2seq import Cache, Memory, Seq2Seq, Sizes
from hkconv.models.translation.tokens import PAD
from hkconv.models.translation.transformer import TokenEmbedding

# Keeps the variance of a sum of two.
HALF = math.sqrt(0.5)


def around(x: Tensor, padding: Tensor, width: int) -> Tensor:
    """Each position in the middle of ``width`` ones, with zeros beyond both ends of the sentence.

    Shapes: ``(B, S, d)`` and padding ``(B, S)`` to ``(B, S, d, width)``.
    """
    before = (width - 1) // 2
    x = x.masked_fill(padding.unsqueeze(-1), 0)
    return F.pad(x, (0, 0, before, width - 1 - before)).unfold(1, width, 1)


def up_to(x: Tensor, width: int, cache: Cache | None = None) -> Tensor:
    """Each position as the last of ``width`` ones, with zeros before the sentence; earlier ones come from the cache.

    Shapes: ``(B, T, d) -> (B, T, d, width)``.
    """
    x = torch.cat([cache["inputs"], x], dim=1) if cache else F.pad(x, (0, 0, width - 1, 0))
    if cache is not None:
        cache["inputs"] = x[:, x.size(1) - (width - 1) :]
    return x.unfold(1, width, 1)


class ConvSeq2Seq(Seq2Seq):
    r"""Convolutions with gated linear units, and in every layer of the decoder an attention to the encoder.

    With embeddings :math:`e_j` of the source and :math:`g_i` of the target, each token plus position, the encoder ends
    with :math:`z_j` and the decoder attends to :math:`z_j` and reads :math:`z_j + e_j`; see :class:`ConvEncoderLayer`
    and :class:`ConvDecoderLayer`. All linear maps are weight-normalised.

    Embeddings and states have the same dimension, so that the paper's maps between the two are left out. The output
    shares the table of the embeddings, as in the other systems here. The paper divides gradients of the encoder by the
    number of attentions, which Adam does not notice.

    Args:
        sizes: sizes of the system, of which ``num_heads`` and ``feedforward_dim`` do not matter.
        kernel_size: width of the convolutions.
    """

    def __init__(self, sizes: Sizes, kernel_size: int = 3):
        super().__init__(sizes)
        if kernel_size < 1:
            raise InputError(f"kernel_size must be at least 1, got {kernel_size}")
        self.embedding = self.make_embedding()
        self.encoder = torch.nn.ModuleList(self.make_encoder_layer(kernel_size) for _ in range(sizes.num_layers))
        self.decoder = torch.nn.ModuleList(self.make_decoder_layer(kernel_size) for _ in range(sizes.num_layers))

    def make_embedding(self) -> torch.nn.Module:
        # The attention takes the dot product of states as they are: those of size 1 would saturate it.
        return TokenEmbedding(self.sizes, scale=1.0)

    def make_encoder_layer(self, kernel_size: int) -> torch.nn.Module:
        return ConvEncoderLayer(self.sizes, kernel_size)

    def make_decoder_layer(self, kernel_size: int) -> torch.nn.Module:
        return ConvDecoderLayer(self.sizes, kernel_size)

    def encode(self, source: Tensor) -> Memory:
        """The states :math:`z` and :math:`z + e`, one beside the other: ``(B, S, 2, dim)``."""
        layers = self.encoder_layers(source)
        return Memory(torch.stack([layers[-1], self.add(layers[-1], layers[0])], dim=2), source == PAD)

    def add(self, x: Tensor, y: Tensor) -> Tensor:
        """The sum of two states."""
        return x + y

    def run_decoder(self, states: Tensor, memory: Memory, caches: Sequence[Cache | None]) -> Tensor:
        embedded = states
        for layer, cache in zip(self.decoder, caches):
            states = layer(states, embedded, memory, cache)
        return states


class GatedConvolution(torch.nn.Module):
    r""":math:`\operatorname{GLU}(W \operatorname{dropout}[x_1, \dots, x_k] + b)` with
    :math:`\operatorname{GLU}([a, b]) = a \odot \sigma(b)`. Shapes: ``(B, T, dim, k) -> (B, T, dim)``."""

    def __init__(self, sizes: Sizes, kernel_size: int):
        super().__init__()
        self.dropout = torch.nn.Dropout(sizes.dropout)
        # Twice the usual standard deviation makes up for the gates, which start half open.
        self.linear = normalized_linear(sizes.dim * kernel_size, 2 * sizes.dim, gain=2 * math.sqrt(1 - sizes.dropout))

    def forward(self, windows: Tensor) -> Tensor:
        return F.glu(self.linear(self.dropout(windows.flatten(2))))


def normalized_linear(in_features: int, out_features: int, gain: float = 1.0) -> torch.nn.Linear:
    """A weight-normalised linear map that starts with weights of standard deviation ``gain / sqrt(in_features)``."""
    linear = torch.nn.Linear(in_features, out_features)
    torch.nn.init.normal_(linear.weight, std=gain / math.sqrt(in_features))
    torch.nn.init.zeros_(linear.bias)
    return weight_norm(linear)


class ConvEncoderLayer(torch.nn.Module):
    r""":math:`z_i' = \sqrt{1/2}\,(\operatorname{GLU}(W [z_{i-k/2}, \dots, z_{i+k/2}] + b) + z_i)`.

    Shapes: ``(B, S, dim) -> (B, S, dim)``.
    """

    def __init__(self, sizes: Sizes, kernel_size: int):
        super().__init__()
        self.kernel_size, self.convolution = kernel_size, GatedConvolution(sizes, kernel_size)

    def forward(self, x: Tensor, padding: Tensor) -> Tensor:
        return HALF * (self.convolution(around(x, padding, self.kernel_size)) + x)


class ConvDecoderLayer(torch.nn.Module):
    r"""A convolution over the past and an attention from its output :math:`h`, with :math:`m` source positions,

    .. math::
        h_i &= \operatorname{GLU}(W [x_{i-k+1}, \dots, x_i] + b), \qquad d_i = W_d h_i + b_d + g_i, \qquad
        a_{ij} = \operatorname{softmax}_j (d_i \cdot z_j) \\
        c_i &= \sqrt m \sum_j a_{ij} (z_j + e_j), \qquad x_i' = \sqrt{1/2}\,(\sqrt{1/2}\,(h_i + c_i) + x_i).

    The paper scales sums by :math:`\sqrt{1/2}` to keep their variance without naming each; here it is both.

    Shapes: ``(B, T, dim) -> (B, T, dim)``.
    """

    def __init__(self, sizes: Sizes, kernel_size: int):
        super().__init__()
        self.kernel_size, self.convolution = kernel_size, GatedConvolution(sizes, kernel_size)
        self.query = normalized_linear(sizes.dim, sizes.dim)

    def forward(self, x: Tensor, embedded: Tensor, memory: Memory, cache: Cache | None) -> Tensor:
        h = self.convolution(up_to(x, self.kernel_size, cache))
        seen = ~memory.padding.unsqueeze(1)
        key, value = memory.states.unbind(2)
        read = F.scaled_dot_product_attention(self.query(h) + embedded, key, value, attn_mask=seen, scale=1.0)
        c = seen.sum(-1, keepdim=True).to(read.dtype).sqrt() * read
        return HALF * (HALF * (h + c) + x)
