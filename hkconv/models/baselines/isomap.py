"""Isomap (Tenenbaum et al. 2000): the nodes of a graph in the plane, as far apart as the shortest path between them."""

from functools import lru_cache

import numpy as np
from numba import njit

from hkconv.models.baselines.simple_graph import REMEMBERED, SimpleGraph, search

# Up to so many nodes all distances are looked at, beyond it those to so many nodes drawn at random.
LANDMARKS = 1024

# Coordinates are multiples of the largest one divided by this. Nodes that no distance tells apart then have the same
# place, whatever the eigensolver's rounding, and squared distances between places are exact in float64.
STEPS = 10**6


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
    hops = _hops(landmarks, graph.pointer, graph.neighbour)
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
def _hops(starts: np.ndarray, pointer: np.ndarray, neighbour: np.ndarray) -> np.ndarray:
    """Number of hops from each start to each node, -1 where no path leads."""
    num_nodes = pointer.size - 1
    hops = np.full((starts.size, num_nodes), -1, np.int32)
    queue = np.empty(num_nodes, np.int32)
    for i in range(starts.size):
        search(starts[i], num_nodes, pointer, neighbour, hops[i], queue)
    return hops
