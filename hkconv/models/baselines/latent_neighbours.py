"""Which nodes are near each other in the plane, when only their number is known and not the distance."""

import numpy as np
from numba import njit

# Where many pairs are at the very same distance, at most so many times the wanted number of them is taken.
MOST = 4


def latent_neighbours(places: np.ndarray, wanted: int) -> np.ndarray:
    r"""The pairs :math:`\{u, v\}` of different nodes with :math:`|z_u - z_v| \le \rho`, ``(2, pairs)``.

    :math:`\rho` is the smallest distance for which there are at least ``wanted``. Pairs at the same distance stand or
    fall together, so that there may be more; where that would be more than ``MOST`` times as many, :math:`\rho` is the
    next smaller distance.

    Args:
        places: ``(N, 2)`` whole numbers.
        wanted: number of pairs.
    """
    if wanted < 1:
        return np.empty((2, 0), np.int64)
    order = np.argsort(places[:, 0], kind="stable")
    x, y = places[order].T.copy()
    square = _smallest_square(x, y, wanted)
    if _count(x, y, square, MOST * wanted + 1) > MOST * wanted:
        square -= 1
    pairs = np.empty((2, _count(x, y, square, places.size**2)), np.int64)
    _fill(x, y, square, pairs)
    return order[pairs]


def _smallest_square(x: np.ndarray, y: np.ndarray, wanted: int) -> float:
    """The smallest whole number that ``wanted`` squared distances do not exceed, or one that none exceeds."""
    low, high = -1, int(np.ptp(x) ** 2 + np.ptp(y) ** 2)
    while high - low > 1:
        middle = (low + high) // 2
        if _count(x, y, middle, wanted) >= wanted:
            high = middle
        else:
            low = middle
    return float(high)


@njit(nogil=True, cache=True)
def _count(x: np.ndarray, y: np.ndarray, square: float, enough: int) -> int:
    """How many pairs are no further apart than the root of ``square``; not counted on where they are ``enough``."""
    found = 0
    for i in range(x.size):
        for j in range(i + 1, x.size):
            across = (x[j] - x[i]) ** 2
            if across > square or found >= enough:
                break
            found += across + (y[j] - y[i]) ** 2 <= square
    return found


@njit(nogil=True, cache=True)
def _fill(x: np.ndarray, y: np.ndarray, square: float, pairs: np.ndarray) -> None:
    found = 0
    for i in range(x.size):
        for j in range(i + 1, x.size):
            across = (x[j] - x[i]) ** 2
            if across > square:
                break
            if across + (y[j] - y[i]) ** 2 <= square:
                pairs[0, found] = i
                pairs[1, found] = j
                found += 1
