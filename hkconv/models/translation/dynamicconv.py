"""DynamicConv (Wu et al. 2019, Pay Less Attention with Lightweight and Dynamic Convolutions)."""

import torch
from torch import Tensor
from torch.nn import functional as F

from hkconv.errors import InputError
from hkconv.models.translation.convseq2seq import around, up_to
from hkconv.models.translation.seq2seq import Cache, Sizes
from hkconv.models.translation.transformer import DecoderLayer, EncoderLayer, Transformer


class DynamicConv(Transformer):
    """The Transformer with :class:`DynamicConvolution` in the place of self-attention, in both encoder and decoder.

    The table of the paper cites Chen et al. (2020) here, whose dynamic convolution is one for images; the translation
    system of this name is that of Wu et al.

    Args:
        sizes: sizes of the system; ``num_heads`` is also the number of kernels of a position.
        kernel_sizes: widths of the kernels in the first layers; the last one serves all further layers too. Those of
            Wu et al. if not given.
    """

    def __init__(self, sizes: Sizes, kernel_sizes: tuple[int, ...] = (3, 7, 15, 31)):
        if not kernel_sizes or min(kernel_sizes) < 1:
            raise InputError(f"kernel_sizes must be numbers of at least 1, got {tuple(kernel_sizes)}")
        self.kernel_sizes = tuple(kernel_sizes)
        super().__init__(sizes)

    def make_encoder_layer(self, number: int) -> EncoderLayer:
        return EncoderLayer(self.sizes, self._convolution(number))

    def make_decoder_layer(self, number: int) -> DecoderLayer:
        memory_attention = self.make_attention()
        return DecoderLayer(self.sizes, self._convolution(number), memory_attention)

    def _convolution(self, number: int) -> "DynamicConvolution":
        return DynamicConvolution(self.sizes, self.kernel_sizes[min(number, len(self.kernel_sizes) - 1)])


class DynamicConvolution(torch.nn.Module):
    r"""A convolution by a kernel that each position computes from itself,

    .. math::
        y_i = \operatorname{GLU}(W^I x_i + b^I), \qquad
        \kappa_{i,h} = \operatorname{dropout}(\operatorname{softmax}(W^K_h y_i)) \in \mathbb R^k, \qquad
        z_{i,c} = \sum_j \kappa_{i,h(c),j}\; y_{i + j - o,\,c}, \qquad x_i' = W^O z_i + b^O,

    where :math:`\operatorname{GLU}([a, b]) = a \odot \sigma(b)` and channel :math:`c` belongs to one of :math:`H` heads
    of equally many channels, :math:`h(c)`. The kernel is centred on :math:`i` in the encoder and ends there in the
    decoder; beyond the ends of the sentence :math:`y = 0`.

    Args:
        sizes: sizes of the system.
        kernel_size: width :math:`k`.

    Shapes: ``(B, T, dim) -> (B, T, dim)``.
    """

    def __init__(self, sizes: Sizes, kernel_size: int):
        super().__init__()
        self.kernel_size, self.num_heads, self.dropout = kernel_size, sizes.num_heads, sizes.dropout
        self.gate = torch.nn.Linear(sizes.dim, 2 * sizes.dim)
        self.kernel = torch.nn.Linear(sizes.dim, sizes.num_heads * kernel_size, bias=False)
        self.out = torch.nn.Linear(sizes.dim, sizes.dim)
        for linear in (self.gate, self.kernel, self.out):
            torch.nn.init.xavier_uniform_(linear.weight)

    def to_itself(self, x: Tensor, padding: Tensor) -> Tensor:
        """Kernels centred on their position."""
        y = F.glu(self.gate(x))
        return self._convolve(y, around(y, padding, self.kernel_size))

    def to_the_past(self, x: Tensor, cache: Cache | None = None) -> Tensor:
        """Kernels that end at their position."""
        y = F.glu(self.gate(x))
        return self._convolve(y, up_to(y, self.kernel_size, cache))

    def _convolve(self, y: Tensor, windows: Tensor) -> Tensor:
        kernel = self.kernel(y).unflatten(-1, (self.num_heads, self.kernel_size)).softmax(-1)
        kernel = F.dropout(kernel, self.dropout, self.training)
        heads = windows.unflatten(2, (self.num_heads, -1)) @ kernel.unsqueeze(-1)
        return self.out(heads.flatten(2))
