"""Isomap (Tenenbaum et al. 2000): the nodes of a graph in the plane, as far apart as the shortest path between them."""

from functools import lru_cache

import numpy as np

from hkconv.models.baselines.simple_graph import REMEMBERED, SimpleGraph, search
from hkconv.ops.compiling import njit

# Up to so many nodes all distances are looked at, beyond it those to so many nodes drawn at random.
LANDMARKS = 1024

# Coordinates are multiples of the largest one divided by this. Nodes that no distance tells apart then have the same
# place, whatever the eigensolver's rounding, and squared distances between places are exact in float64.
STEPS = 10**6
# Where many pairs are at the very same distance, at most so many times the wanted number of them is taken.
MOST = 4


@lru_cache(maxsize=REMEMBERED)
def isomap(graph: SimpleGraph) -> np.ndarray:
    r"""Places of the nodes in the plane, ``(N, 2)`` of whole numbers in float64.

    Classical scaling of the shortest paths :math:`d`, from all nodes as in Isomap or from at most ``LANDMARKS`` of them
    as in landmark Isomap (de Silva and Tenenbaum 2003). With :math:`\Delta_{ab} = d_{ab}^2` between landmarks,
    :math:`J = I - \frac1m 1 1^\top`, the two largest eigenvalues :math:`\lambda` of
    :math:`-\frac12 J \Delta J` and their eigenvectors :math:`v`, a node at the distances :math:`d_a` has the
    coordinates

    .. math:: z_k = -\frac{1}{2 \sqrt{\lambda_k}} \sum_a v_{ka} \big(d_a^2 - \tfrac1m \textstyle\sum_b \Delta_{ab}\big),

    for a landmark :math:`\sqrt{\lambda_k} v_{ka}`. Chosen here: between nodes that no path joins the distance is one
    more than the longest path; a coordinate whose eigenvalue vanishes is 0; its sign is that of a positive skewness.
    """
    landmarks = _landmarks(graph.degree.size)
    hops = _hops(landmarks, graph.pointer, graph.neighbor)
    squares = np.where(hops < 0, hops.max() + 1, hops).astype(np.float64) ** 2
    among = squares[:, landmarks]
    mean = among.mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(-(among - mean - mean.T + among.mean()) / 2)
    values, vectors = values[:-3:-1], vectors[:, :-3:-1]
    # Rounding makes so much of an eigenvalue 0, and as much is not divided by.
    real = values > values[0] * landmarks.size * np.finfo(np.float64).eps
    places = (squares - mean).T @ vectors / (-2 * np.sqrt(np.where(real, values, np.inf)))
    return _rounded(np.pad(places, ((0, 0), (0, 2 - places.shape[1]))))


def _landmarks(num_nodes: int) -> np.ndarray:
    if num_nodes <= LANDMARKS:
        return np.arange(num_nodes)
    return np.sort(np.random.default_rng(0).choice(num_nodes, LANDMARKS, replace=False))


def _rounded(places: np.ndarray) -> np.ndarray:
    largest = np.abs(places).max()
    places = np.rint(places * (STEPS / largest)) if largest > 0 else places
    return places * np.where((places**3).sum(axis=0) < 0, -1, 1)


@njit(nogil=True, cache=True)
def _hops(starts: np.ndarray, pointer: np.ndarray, neighbor: np.ndarray) -> np.ndarray:
    """Number of hops from each start to each node, -1 where no path leads."""
    num_nodes = pointer.size - 1
    hops = np.full((starts.size, num_nodes), -1, np.int32)
    queue = np.empty(num_nodes, np.int32)
    for i in range(starts.size):
        search(starts[i], num_nodes, pointer, neighbor, hops[i], queue)
    return hops


def latent_neighbors(places: np.ndarray, wanted: int) -> np.ndarray:
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
    """Number of pairs no further apart than the root of ``square``; counting stops at ``enough``."""
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
