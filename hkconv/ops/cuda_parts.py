"""Elementary functions of Triton's kernels, and points seen from each other: what those of every operation share."""

import triton
import triton.language as tl

# Elements of the largest tile, and how many of them a warp takes: what keeps a program within its registers.
TILE, TILE_PER_WARP = 512, 512


@triton.jit
def _sigmoid(x):
    return 1 / (1 + tl.exp(-x))


@triton.jit
def _arcosh1p(delta, root):
    """log(1 + y) by Kahan's form, y = δ + sqrt(δ(δ+2))."""
    y = delta + root
    w = 1 + y
    return tl.where(w == 1, y, tl.log(w) * (y / tl.where(w == 1, 1, w - 1)))


@triton.jit
def _time(space):
    return tl.sqrt(1 + tl.sum(space * space, 1))


@triton.jit
def _relate(u, x, u_time, x_time):
    """δ, c - 1 and u_t - x_t of each edge, as ``relate_lanes`` of ``ops/native/block.hpp``."""
    shorter_is_u = u_time < x_time
    gap = tl.where(shorter_is_u[:, None], u - x, x - u)
    shorter = tl.where(shorter_is_u[:, None], u, x)
    square, along = tl.sum(gap * gap, 1), tl.sum(shorter * gap, 1)
    shorter_time = tl.where(shorter_is_u, u_time, x_time)
    product = (shorter_time - 1) * (shorter_time + 1) - along
    together = square == 0
    across = shorter - (along / tl.where(together, 1, square))[:, None] * gap
    facing = square / (1 + u_time * x_time + tl.maximum(product, -1)) * (1 + tl.sum(across * across, 1))
    delta = tl.where(together, 0, tl.where(product > -1, facing, u_time * x_time - product - 1))
    time_gap = (2 * along - square) / (u_time + x_time)
    time_gap = tl.where(shorter_is_u, time_gap, -time_gap)
    return delta, (time_gap + delta) / (1 + x_time), time_gap


@triton.jit
def _points(pointer, index, m: tl.constexpr, column, valid):
    """Spatial parts of points as a tile (edges, m)."""
    inside = valid[:, None] & (column < m)[None, :]
    return tl.load(pointer + index.to(tl.int64)[:, None] * (m + 1) + 1 + column[None, :], mask=inside, other=0)


def _power_of_two(size: int) -> int:
    """The next power of two; Triton's own takes ten times as long."""
    return 1 << (size - 1).bit_length()
