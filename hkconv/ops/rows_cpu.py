"""The maps of :mod:`hkconv.ops.rows` on the CPU, by the kernels of :mod:`hkconv.ops.native`.

Each chunk of rows has its own sums for what the rows share, which are then added in order. The chunks depend on the
number of rows and their width alone, and so do all bits of the result, for any number of threads.
"""

import torch
from torch import Tensor

from hkconv.ops import native

# More chunks than threads even out their loads. Few, because each holds its own sums.
CHUNKS = 64

# Numbers of a chunk: fewer are done before another thread has begun.
WORTH_A_THREAD = 1 << 16


def mixed_views(
    differences: Tensor, neighbors: Tensor, node: Tensor, gate_weight: Tensor, gate_mix: Tensor, R: float
) -> Tensor:
    """Centroids of three points each, ``(N, n+1)``."""
    out = differences.new_empty(differences.shape)
    given = _given(differences, neighbors, node, gate_weight, gate_mix, R)
    native.call_typed("mixed_views", out.dtype, torch.get_num_threads(), _chunks(*out.shape), *given, out)
    return out


def mixed_views_gradients(
    grad: Tensor, differences: Tensor, neighbors: Tensor, node: Tensor, gate_weight: Tensor, gate_mix: Tensor, R: float
) -> list[Tensor]:
    """The gradients of :func:`mixed_views`, in the order of its tensors."""
    chunks = _chunks(*grad.shape)
    by_views = [torch.empty_like(grad) for _ in range(3)]
    shared = [_sums(chunks, parameter.shape) for parameter in (gate_weight, gate_mix)]
    given = _given(differences, neighbors, node, gate_weight, gate_mix, R)
    native.call_typed("pull_mixed_views", grad.dtype, torch.get_num_threads(), chunks, *given, grad, *by_views, *shared)
    return [*by_views, *(sums.sum(0).to(grad.dtype) for sums in shared)]


def _given(
    differences: Tensor, neighbors: Tensor, node: Tensor, gate_weight: Tensor, gate_mix: Tensor, R: float
) -> list[native.Argument]:
    rows, width = differences.shape
    # The first coordinates of rows may lie apart, as in a slice of a matrix.
    views = [view if view.stride(1) == 1 else view.contiguous() for view in (differences, neighbors, node)]
    placed: list[native.Argument] = [number for view in views for number in (native.Strided(view), view.stride(0))]
    return [rows, width, *placed, gate_weight.double().contiguous(), gate_mix.double().contiguous(), R]


def gated_points(products: Tensor, bias: Tensor, gate_bias: Tensor, log_scale: Tensor, R: float) -> Tensor:
    """Points out of the products of HLinear, ``(N, K, n+1)``."""
    K, n = bias.shape
    out = products.new_empty(len(products), K, n + 1)
    given = _given_products(products, bias, gate_bias, log_scale, R)
    native.call_typed("gated_points", out.dtype, torch.get_num_threads(), _chunks(*products.shape), *given, out)
    return out


def gated_points_gradients(
    grad: Tensor, products: Tensor, bias: Tensor, gate_bias: Tensor, log_scale: Tensor, R: float
) -> list[Tensor]:
    """The gradients of :func:`gated_points`, in the order of its tensors."""
    chunks = _chunks(*products.shape)
    by_products = torch.empty_like(products, memory_format=torch.contiguous_format)
    by_bias, by_gate = _sums(chunks, bias.shape), _sums(chunks, (2, len(bias)))
    given = _given_products(products, bias, gate_bias, log_scale, R)
    arguments = torch.get_num_threads(), chunks, *given, grad, by_products, by_bias, by_gate
    native.call_typed("pull_gated_points", grad.dtype, *arguments)
    return [by_products, by_bias.sum(0).to(bias.dtype), *by_gate.sum(0).to(bias.dtype)]


def _given_products(
    products: Tensor, bias: Tensor, gate_bias: Tensor, log_scale: Tensor, R: float
) -> list[Tensor | float]:
    parameters = bias.double().contiguous(), gate_bias.double().contiguous(), log_scale.double().exp()
    return [len(products), *bias.shape, products.contiguous(), *parameters, R, torch.finfo(products.dtype).tiny]


def _chunks(rows: int, width: int) -> int:
    return min(CHUNKS, 1 << max(0, (rows * width // WORTH_A_THREAD).bit_length() - 1))


def _sums(chunks: int, shape: tuple[int, ...]) -> Tensor:
    return torch.zeros(chunks, *shape, dtype=torch.float64)
