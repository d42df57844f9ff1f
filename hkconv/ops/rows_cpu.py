r"""The maps of :mod:`hkconv.ops.rows` on the CPU: Numba kernels that take a chunk of rows each.

A row is computed in double precision whatever it is stored in, which costs little beside reading it. Each chunk has its
own sums for what the rows share, which are then added in order. The chunks depend on the number of rows and their width
alone, and so do all bits of the result, for any number of threads.
"""

# Kernels have no hints, as in the modules that pyproject.toml names.

import math
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hkconv.ops.compiling import njit
from hkconv.ops.cpu import CHUNKS, KERNEL, PART, _in_threads

# Rows taken together: the vector units compute all their exponentials at once.
BLOCK = 32

# Numbers of a chunk: fewer are done before another thread has begun.
WORTH_A_THREAD = 1 << 16

LOG2_E = math.log2(math.e)
# ln 2 in two parts, the first short enough that its multiples are exact.
LN2_HIGH, LN2_LOW = float.fromhex("0x1.62e42fee00000p-1"), float.fromhex("0x1.a39ef35793c76p-33")
# The last bits of a sum with this are the nearest whole number.
WHOLE = 1.5 * 2.0**52
EXP_LOW, EXP_HIGH = -708.0, 709.0
TAYLOR = tuple(1 / math.factorial(i) for i in range(2, 14))

# Sums of squares that have neither overflown nor lost digits.
SQUARES_FROM, SQUARES_TO = 1e-280, 1e280


@njit(**{**PART, "fastmath": {"contract"}})  # sums in the order in which they stand
def _exp(x):
    """exp(x) between exp(-708) and exp(709) without a call, see :mod:`hkconv.ops.elementary`."""
    x = EXP_LOW if x < EXP_LOW else x
    x = EXP_HIGH if x > EXP_HIGH else x
    shifted = x * LOG2_E + WHOLE
    power = shifted - WHOLE
    rest = (x - power * LN2_HIGH) - power * LN2_LOW
    tail = TAYLOR[11]
    tail = TAYLOR[10] + rest * tail
    tail = TAYLOR[9] + rest * tail
    tail = TAYLOR[8] + rest * tail
    tail = TAYLOR[7] + rest * tail
    tail = TAYLOR[6] + rest * tail
    tail = TAYLOR[5] + rest * tail
    tail = TAYLOR[4] + rest * tail
    tail = TAYLOR[3] + rest * tail
    tail = TAYLOR[2] + rest * tail
    tail = TAYLOR[1] + rest * tail
    tail = TAYLOR[0] + rest * tail
    scale = np.int64((np.float64(shifted).view(np.int64) + 1023) << 52).view(np.float64)
    return scale * (1.0 + (rest + rest * rest * tail))


@njit(**PART)
def _exponentials(values):
    for i in range(values.size):
        values[i] = _exp(values[i])


@njit(**PART)
def _sigmoids(values):
    for i in range(values.size):
        values[i] = 1.0 / (1.0 + _exp(-values[i]))


# As in hkconv.ops.cpu, functions with loops over a row see few arrays each, so that these use the vector units.


@njit(**PART)
def _rows(views, strides, row, width):
    x, y, z = views
    at_x, at_y, at_z = row * strides[0], row * strides[1], row * strides[2]
    return x[at_x : at_x + width], y[at_y : at_y + width], z[at_z : at_z + width]


@njit(**PART)
def _weigh(row, weight):
    total = 0.0
    for j in range(weight.size):
        total += row[j] * weight[j]
    return total


@njit(**PART)
def _square(row, other):
    """The Lorentz square of the gap between two points."""
    total = 0.0
    for j in range(1, row.size):
        gap = np.float64(row[j]) - np.float64(other[j])
        total += gap * gap
    gap = np.float64(row[0]) - np.float64(other[0])
    return total - gap * gap


@njit(**PART)
def _choose(count, mix, opening, share):
    """From v_c · y_c to the openings o_c and the shares g_c of the views of ``count`` rows."""
    _sigmoids(opening[: 3 * count])
    for b in range(0, 3 * count, 3):
        highest = -np.inf
        for c in range(3):
            value = opening[b + c]
            for other in range(3):
                value += opening[b + other] * mix[other, c]
            share[b + c] = 3.0 * value
            highest = max(highest, share[b + c])
        for c in range(3):
            share[b + c] -= highest
    _exponentials(share[: 3 * count])
    for b in range(0, 3 * count, 3):
        total = share[b] + share[b + 1] + share[b + 2]
        for c in range(3):
            share[b + c] /= total


@njit(**PART)
def _look(views, strides, start, count, weights, mix, opening, share, square):
    """Openings and shares of a block of rows, and the Lorentz squares of the gaps between their views."""
    for b in range(count):
        x, y, z = _rows(views, strides, start + b, weights.shape[1])
        opening[3 * b] = _weigh(x, weights[0])
        opening[3 * b + 1] = _weigh(y, weights[1])
        opening[3 * b + 2] = _weigh(z, weights[2])
        square[3 * b], square[3 * b + 1], square[3 * b + 2] = _square(y, z), _square(x, z), _square(x, y)
    _choose(count, mix, opening, share)


@njit(**PART)
def _variance(share, square):
    """Σ_c g_c |y_c - mean|² = Σ_{c < c'} g_c g_c' |y_c - y_c'|²: below 0 only by rounding."""
    return share[0] * share[1] * square[2] + share[2] * (share[0] * square[1] + share[1] * square[0])


@njit(**PART)
def _mass(variance, R):
    return math.sqrt(1.0 + variance / (R * R)) if not variance < 0.0 else 1.0


@njit(**PART)
def _average(x, y, z, share, scale, out):
    """Fill ``out`` with the scaled mean; the square of its space."""
    of_x, of_y, of_z = scale * share[0], scale * share[1], scale * share[2]
    total = 0.0
    for j in range(1, out.size):
        value = of_x * x[j] + of_y * y[j] + of_z * z[j]
        out[j] = value
        total += value * value
    out[0] = of_x * x[0] + of_y * y[0] + of_z * z[0]
    return total


@njit(**KERNEL)
def mix_rows(first, last, views, strides, gate_weight, gate_mix, R, out):
    """The rows ``first`` to ``last`` of :func:`mixed_views`."""
    weights, mix = gate_weight.astype(np.float64), gate_mix.astype(np.float64)
    opening, share, square = np.empty(3 * BLOCK), np.empty(3 * BLOCK), np.empty(3 * BLOCK)
    for start in range(first, last, BLOCK):
        count = min(BLOCK, last - start)
        _look(views, strides, start, count, weights, mix, opening, share, square)
        for b in range(count):
            x, y, z = _rows(views, strides, start + b, out.shape[1])
            own, gaps = share[3 * b : 3 * b + 3], square[3 * b : 3 * b + 3]
            mass = _mass(_variance(own, gaps), R)
            total = _average(x, y, z, own, 1.0 / mass, out[start + b])
            out[start + b, 0] = math.sqrt(R * R + total)


@njit(**PART)
def _pull(grad, mean, slope, mass, by_mean):
    """Fill ``by_mean``, and give its product with the mean."""
    along, inverse = 0.0, 1.0 / mass
    by_mean[0] = 0.0
    for j in range(1, mean.size):
        value = inverse * (grad[j] + slope * mean[j])
        by_mean[j] = value
        along += value * mean[j]
    return along


@njit(**PART)
def _along_gap(row, mean, by_mean):
    total = 0.0
    for j in range(1, mean.size):
        total += by_mean[j] * (row[j] - mean[j])
    return total


@njit(**PART)
def _to_view(row, mean, by_mean, weight, share, spread, by_opening, out):
    """g_c mean' + 2 g_c Var' (y_c - mean) + a_c' v_c, the second with the sign of time."""
    for j in range(1, mean.size):
        out[j] = share * (by_mean[j] + spread * (row[j] - mean[j])) + by_opening * weight[j]
    out[0] = by_opening * weight[0] - share * spread * (row[0] - mean[0])


@njit(**PART)
def _add(factor, row, total):
    for j in range(total.size):
        total[j] += factor * row[j]


@njit(**PART)
def _to_openings(opening, share, square, variance, along, by_variance, mix, by_mix):
    """From products of the gaps with the mean's gradient, in ``along``, to gradients of v_c · y_c, in their place.

    The softmax takes from the gradient of g_c what all have in common, which leaves mean'·(y_c - mean) and
    Var' (|y_c - mean|² - Var), where |y_c - mean|² = Σ_c' g_c' |y_c - y_c'|² - Var.
    """
    near = share[1] * square[2] + share[2] * square[1]
    along[0] = share[0] * (along[0] + by_variance * (near - 2.0 * variance))
    near = share[0] * square[2] + share[2] * square[0]
    along[1] = share[1] * (along[1] + by_variance * (near - 2.0 * variance))
    near = share[0] * square[1] + share[1] * square[0]
    along[2] = share[2] * (along[2] + by_variance * (near - 2.0 * variance))
    x, y, z = 3.0 * along[0], 3.0 * along[1], 3.0 * along[2]
    for c in range(3):
        by_mix[c, 0] += opening[c] * x
        by_mix[c, 1] += opening[c] * y
        by_mix[c, 2] += opening[c] * z
        own = x if c == 0 else (y if c == 1 else z)
        by_opening = own + mix[c, 0] * x + mix[c, 1] * y + mix[c, 2] * z
        along[c] = by_opening * opening[c] * (1.0 - opening[c])


@njit(**KERNEL)
def pull_rows(first, last, views, strides, gate_weight, gate_mix, R, grad, by_views, by_weight, by_mix):
    """The rows ``first`` to ``last`` of the views' gradients, and what these add to those of the gates.

    With the mean m, the mass M = sqrt(1 + Var/R²) and the space h = m_s/M of the result:
    m_s' = h'/M, M' = -h'·h/M and Var' = M'/(2 M R²).
    """
    width = grad.shape[1]
    weights, mix = gate_weight.astype(np.float64), gate_mix.astype(np.float64)
    opening, share, square = np.empty(3 * BLOCK), np.empty(3 * BLOCK), np.empty(3 * BLOCK)
    mean, by_mean, along = np.empty(width), np.empty(width), np.empty(3)
    by_x, by_y, by_z = by_views
    for start in range(first, last, BLOCK):
        count = min(BLOCK, last - start)
        _look(views, strides, start, count, weights, mix, opening, share, square)
        for b in range(count):
            i = start + b
            x, y, z = _rows(views, strides, i, width)
            own, gaps = share[3 * b : 3 * b + 3], square[3 * b : 3 * b + 3]
            variance = _variance(own, gaps)
            mass = _mass(variance, R)
            total = _average(x, y, z, own, 1.0, mean)
            slope = grad[i, 0] / (mass * math.sqrt(R * R + total / (mass * mass)))
            by_variance = -_pull(grad[i], mean, slope, mass, by_mean) / (2.0 * mass * mass * R * R)
            by_variance = 0.0 if variance < 0.0 else by_variance
            along[0], along[1] = _along_gap(x, mean, by_mean), _along_gap(y, mean, by_mean)
            along[2] = _along_gap(z, mean, by_mean)
            _to_openings(opening[3 * b : 3 * b + 3], own, gaps, variance, along, by_variance, mix, by_mix)
            spread = 2.0 * by_variance
            _to_view(x, mean, by_mean, weights[0], own[0], spread, along[0], by_x[i])
            _to_view(y, mean, by_mean, weights[1], own[1], spread, along[1], by_y[i])
            _to_view(z, mean, by_mean, weights[2], own[2], spread, along[2], by_z[i])
            _add(along[0], x, by_weight[0])
            _add(along[1], y, by_weight[1])
            _add(along[2], z, by_weight[2])


@njit(**PART)
def _shift(products, bias, direction):
    """Fill ``direction`` with a map's products and its bias; their norm."""
    total = 0.0
    for j in range(bias.size):
        value = np.float64(products[j]) + np.float64(bias[j])
        direction[j] = value
        total += value * value
    if SQUARES_FROM < total < SQUARES_TO:
        return math.sqrt(total)
    largest = 0.0
    for j in range(bias.size):
        largest = max(largest, abs(direction[j]))
    if largest == 0.0:
        return total  # 0, or NaN
    total = 0.0
    for j in range(bias.size):
        total += (direction[j] / largest) * (direction[j] / largest)
    return largest * math.sqrt(total)


@njit(**PART)
def _open(products, start, count, gate_bias, opening):
    K = gate_bias.size
    for b in range(count):
        row = products[start + b]
        for k in range(K):
            opening[b * K + k] = row[row.size - K + k] + gate_bias[k]
    _sigmoids(opening[: count * K])


@njit(**PART)
def _reach(norm, length, tiny):
    """1/|z|, and how far out the point is: 1 and 0 where there is no direction."""
    if norm < tiny:
        return 1.0, 0.0
    return 1.0 / norm, length * (norm / norm)  # not a number where the norm is none


@njit(**PART)
def _stretch(direction, factor, out):
    for j in range(direction.size):
        out[1 + j] = factor * direction[j]


@njit(**KERNEL)
def gate_rows(first, last, products, bias, gate_bias, scale, R, tiny, out):
    """The rows ``first`` to ``last`` of :func:`gated_points`."""
    K, n = bias.shape
    opening, direction = np.empty(BLOCK * K), np.empty(n)
    for start in range(first, last, BLOCK):
        count = min(BLOCK, last - start)
        _open(products, start, count, gate_bias, opening)
        for b in range(count):
            for k in range(K):
                norm = _shift(products[start + b, k * n : k * n + n], bias[k], direction)
                length = scale[k] * opening[b * K + k]
                inverse, reach = _reach(norm, length, tiny)
                point = out[start + b, k]
                _stretch(direction, length * inverse, point)
                point[0] = math.sqrt(R * R + reach * reach)


@njit(**PART)
def _along(direction, grad):
    total = 0.0
    for j in range(direction.size):
        total += direction[j] * grad[1 + j]
    return total


@njit(**PART)
def _across(direction, grad, factor, back, out):
    """Put the gradient of the direction into its place, and into ``out``."""
    for j in range(direction.size):
        value = factor * grad[1 + j] - back * direction[j]
        direction[j] = value
        out[j] = value


@njit(**KERNEL)
def pull_gated_rows(first, last, products, bias, gate_bias, scale, R, tiny, grad, by_products, by_bias, by_gate):
    """The rows ``first`` to ``last`` of the products' gradient, and what these add to those of the parameters.

    With u = z/|z|: z' = (ℓ/|z|)(s' - (s'·u) u) and ℓ' = s'·u + t' ℓ/t. ``by_gate`` has a row for the biases of the
    gates and one for the logarithms of the scales.
    """
    K, n = bias.shape
    opening, direction = np.empty(BLOCK * K), np.empty(n)
    for start in range(first, last, BLOCK):
        count = min(BLOCK, last - start)
        _open(products, start, count, gate_bias, opening)
        for b in range(count):
            found = by_products[start + b]
            for k in range(K):
                norm = _shift(products[start + b, k * n : k * n + n], bias[k], direction)
                own = grad[start + b, k]
                length = scale[k] * opening[b * K + k]
                inverse, reach = _reach(norm, length, tiny)
                along = inverse * _along(direction, own)
                by_length = along + own[0] * (reach / math.sqrt(R * R + reach * reach))
                by_opening = by_length * length * (1.0 - opening[b * K + k])
                _across(
                    direction, own, length * inverse, length * inverse * (along * inverse), found[k * n : k * n + n]
                )
                found[K * n + k] = by_opening
                _add(1.0, direction, by_bias[k])
                by_gate[0, k] += by_opening
                by_gate[1, k] += by_length * length


def mixed_views(
    differences: Tensor, neighbors: Tensor, node: Tensor, gate_weight: Tensor, gate_mix: Tensor, R: float
) -> Tensor:
    """Centroids of three points each, ``(N, n+1)``."""
    out = differences.new_empty(differences.shape)
    given = _given(differences, neighbors, node, gate_weight, gate_mix)
    result = out.numpy()
    chunks = _chunks(*out.shape)
    _in_threads(_threads(chunks), lambda first, last: mix_rows(first, last, *given, R, result), chunks)
    return out


def mixed_views_gradients(
    grad: Tensor, differences: Tensor, neighbors: Tensor, node: Tensor, gate_weight: Tensor, gate_mix: Tensor, R: float
) -> list[Tensor]:
    """The gradients of :func:`mixed_views`, in the order of its tensors."""
    by_views = [torch.empty_like(grad) for _ in range(3)]
    given = _given(differences, neighbors, node, gate_weight, gate_mix)
    arrays = grad.numpy(), tuple(found.numpy() for found in by_views)
    chunks = _chunks(*grad.shape)
    by_weight, by_mix = np.zeros((len(chunks), *gate_weight.shape)), np.zeros((len(chunks), *gate_mix.shape))

    def walk(chunk: int) -> None:
        pull_rows(*chunks[chunk], *given, R, *arrays, by_weight[chunk], by_mix[chunk])

    _in_threads(_threads(chunks), walk, [(chunk,) for chunk in range(len(chunks))])
    return [*by_views, _total(by_weight, gate_weight), _total(by_mix, gate_mix)]


def _given(
    differences: Tensor, neighbors: Tensor, node: Tensor, gate_weight: Tensor, gate_mix: Tensor
) -> tuple[Any, ...]:
    (x, at_x), (y, at_y), (z, at_z) = _flat(differences), _flat(neighbors), _flat(node)
    return (x, y, z), (at_x, at_y, at_z), gate_weight.contiguous().numpy(), gate_mix.contiguous().numpy()


def gated_points(products: Tensor, bias: Tensor, gate_bias: Tensor, log_scale: Tensor, R: float) -> Tensor:
    """Points out of the products of HLinear, ``(N, K, n+1)``."""
    K, n = bias.shape
    out = products.new_empty(len(products), K, n + 1)
    given, result = _given_products(products, bias, gate_bias, log_scale, R), out.numpy()
    chunks = _chunks(*products.shape)
    _in_threads(_threads(chunks), lambda first, last: gate_rows(first, last, *given, result), chunks)
    return out


def gated_points_gradients(
    grad: Tensor, products: Tensor, bias: Tensor, gate_bias: Tensor, log_scale: Tensor, R: float
) -> list[Tensor]:
    """The gradients of :func:`gated_points`, in the order of its tensors."""
    by_products = torch.empty_like(products, memory_format=torch.contiguous_format)
    given = _given_products(products, bias, gate_bias, log_scale, R)
    arrays = grad.numpy(), by_products.numpy()
    chunks = _chunks(*products.shape)
    by_bias, by_gate = np.zeros((len(chunks), *bias.shape)), np.zeros((len(chunks), 2, len(bias)))

    def walk(chunk: int) -> None:
        pull_gated_rows(*chunks[chunk], *given, *arrays, by_bias[chunk], by_gate[chunk])

    _in_threads(_threads(chunks), walk, [(chunk,) for chunk in range(len(chunks))])
    return [by_products, _total(by_bias, bias), *_total(by_gate, bias)]


def _given_products(products: Tensor, bias: Tensor, gate_bias: Tensor, log_scale: Tensor, R: float) -> tuple[Any, ...]:
    arrays = (tensor.contiguous().numpy() for tensor in (products, bias, gate_bias))
    return *arrays, log_scale.double().exp().numpy(), R, torch.finfo(products.dtype).tiny


def _flat(matrix: Tensor) -> tuple[np.ndarray, int]:
    """All numbers from a matrix's first to its last one in memory, and how far apart its rows are.

    Numba would compile a kernel for each way in which matrices lie.
    """
    if matrix.stride(1) != 1:
        matrix = matrix.contiguous()
    rows, width = matrix.shape
    stride = matrix.stride(0)
    return matrix.as_strided(((rows - 1) * stride + width if rows else 0,), (1,)).numpy(), stride


def _chunks(rows: int, width: int) -> list[tuple[int, int]]:
    """First and last rows of chunks, at least one."""
    count = min(CHUNKS, 1 << max(0, (rows * width // WORTH_A_THREAD).bit_length() - 1))
    return list(pairwise(rows * i // count for i in range(count + 1)))


def _threads(chunks: list[tuple[int, int]]) -> int:
    return min(torch.get_num_threads(), len(chunks))


def _total(sums: np.ndarray, like: Tensor) -> Tensor:
    return torch.from_numpy(sums.sum(0) if len(sums) > 1 else sums[0]).to(like.dtype)
