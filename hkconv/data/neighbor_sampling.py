r"""Samples of the neighbours of a few nodes, so that a network can be trained on a graph that is too large for it.

PyG samples with ``pyg-lib`` or ``torch-sparse``. Where neither is installed, :class:`NumbaNeighborSampler` takes their
place. It draws from the same distribution: of the :math:`d` edges into a node, at most :math:`k` without replacement,
all subsets of :math:`\min(k, d)` edges being equally probable,

.. math:: P(S) = \binom{d}{\min(k, d)}^{-1}, \qquad P(e \in S) = \min(k/d, 1),

and every node of a batch once, independently of the others, when the walk from the batch first comes to it. With
:math:`k_1, \dots, k_L` for the layers, from the last to the first, a node that is :math:`l` steps away draws
:math:`k_{l+1}` edges.

What is drawn for a node follows from the seed of the batch and the number of the node alone. So it does not depend on
what else is in the batch, except for how many steps away the node is.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
import torch_geometric.typing as pyg
from torch import Tensor
from torch.utils.data import get_worker_info
from torch_geometric.data import Data
from torch_geometric.loader import LinkLoader, LinkNeighborLoader, NeighborLoader, NodeLoader
from torch_geometric.sampler import BaseSampler, EdgeSamplerInput, NegativeSampling, NodeSamplerInput, SamplerOutput
from torch_geometric.sampler.neighbor_sampler import edge_sample

from hkconv.errors import InputError
from hkconv.ops.compiling import KERNEL, PART, njit
from hkconv.ops.neighbors import find_neighbors

#: In place of a number of neighbours: all of them.
ALL = -1


class InNeighbors:
    """The edges into each node of a graph, and walks against them. One thread at a time may walk.

    Args:
        edge_index: ``(2, E)``, source to target, on the CPU. It is sorted, unless HKConv has seen the same tensor.
        num_nodes: number of nodes.
    """

    def __init__(self, edge_index: Tensor, num_nodes: int):
        found, _ = find_neighbors(edge_index, None, (num_nodes, num_nodes))
        self.num_nodes = num_nodes
        self._pointer, self._source, self._order = (
            tensor.numpy() for tensor in (found.target_pointer, found.source, found.order)
        )
        # Where a walk keeps the numbers that it gives to nodes; between two walks there are none.
        self._number = np.full(num_nodes, -1, np.int32)

    def degree(self, nodes: Tensor | None = None) -> Tensor:
        """(n,) how many edges lead into some nodes, or into each."""
        degree = torch.from_numpy(self._pointer).diff()
        return degree if nodes is None else degree[nodes]

    def walk(self, nodes: Tensor, num_neighbors: Sequence[int], seed: int = 0) -> SamplerOutput:
        """The nodes that are reached from some nodes against the edges, a step for each entry of ``num_neighbors``.

        Args:
            nodes: (n,) where to start.
            num_neighbors: the most edges drawn for a node in each step, ``ALL`` for all.
            seed: what is drawn follows from it, zero or larger.

        Returns:
            PyG's description of a part of a graph: ``nodes`` first, then others in the order in which they were
            reached; edges between the new numbers ``row`` and ``col``, step by step and in a step by target; and
            which edges they are.
        """
        if nodes.numel() and not 0 <= int(nodes.min()) <= int(nodes.max()) < self.num_nodes:
            span = f"{int(nodes.min())} to {int(nodes.max())}"
            raise InputError(f"nodes must lie in [0, {self.num_nodes}), got {span}")
        limits = np.array(num_neighbors, np.int64)
        node, row, col, edge, *sizes = _walk(
            nodes.long().contiguous().numpy(), limits, np.uint64(seed), self._pointer, self._source, self._number
        )
        return SamplerOutput(
            torch.from_numpy(node),
            torch.from_numpy(row),
            torch.from_numpy(col),
            torch.from_numpy(self._order[edge].astype(np.int64)),
            num_sampled_nodes=sizes[0].tolist(),
            num_sampled_edges=sizes[1].tolist(),
        )

    def pieces(self, nodes: Tensor, most_nodes: int, most_edges: int) -> Iterator[Tensor]:
        """Nodes in pieces that have no more than so many members and edges; one with more edges goes alone."""
        total = self.degree(nodes).long().cumsum(0)
        start = 0
        while start < len(nodes):
            before = total[start - 1] if start else 0
            fit = int(torch.searchsorted(total, before + most_edges, right=True))
            stop = min(max(fit, start + 1), start + most_nodes)
            yield nodes[start:stop]
            start = stop


class NumbaNeighborSampler(BaseSampler):
    """PyG's neighbour sampler for one kind of nodes and edges, without its compiled packages.

    Args:
        neighbors: the edges of the graph.
        num_neighbors: the most neighbours of a node in each layer, from the last layer to the first, ``ALL`` for all.
        generator: what the seed of each batch is drawn with; by default, and in the workers of a loader, torch's own.
    """

    def __init__(self, neighbors: InNeighbors, num_neighbors: Sequence[int], generator: torch.Generator | None = None):
        self.neighbors, self.num_neighbors, self.generator = neighbors, check_num_neighbors(num_neighbors), generator

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> SamplerOutput:
        """The nodes of a batch with a sample of their neighbours, of the neighbours of these, and so on."""
        found = self._walk(index.node)
        found.metadata = (index.input_id, index.time)
        return found

    def sample_from_edges(self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None) -> SamplerOutput:
        """The ends of the links of a batch, of pairs drawn beside them where these are asked for, and their samples."""
        return edge_sample(
            index,
            lambda nodes, _: self._walk(nodes),
            self.neighbors.num_nodes,
            disjoint=False,
            neg_sampling=neg_sampling,
        )

    def _walk(self, nodes: Tensor) -> SamplerOutput:
        # Each worker would start with the same copy of the generator; torch seeds its own differently in each.
        generator = self.generator if get_worker_info() is None else None
        return self.neighbors.walk(nodes, self.num_neighbors, int(torch.randint(2**63 - 1, (), generator=generator)))


def sampler_name() -> str:
    """Name of the sampler that the loaders below use here: ``"pyg-lib"``, ``"torch-sparse"`` or ``"numba"``."""
    if pyg.WITH_PYG_LIB:
        return "pyg-lib"
    return "torch-sparse" if pyg.WITH_TORCH_SPARSE else "numba"


def neighbor_loader(
    graph: Data,
    num_neighbors: Sequence[int],
    nodes: Tensor,
    *,
    neighbors: InNeighbors | None = None,
    generator: torch.Generator | None = None,
    **options: Any,
) -> NodeLoader:
    """A loader of mini-batches of nodes with samples of their neighbours: PyG's, where its packages are installed.

    Args:
        graph: with ``edge_index``, on the CPU.
        num_neighbors: as :class:`NumbaNeighborSampler` takes them.
        nodes: (n,) the nodes that batches are made of.
        neighbors: the edges of the graph, if they are sorted already.
        generator: as of :class:`NumbaNeighborSampler`; PyG's samplers take torch's own.
        options: of PyG's ``NodeLoader`` and torch's ``DataLoader``, such as ``batch_size`` and ``shuffle``.

    Returns:
        The loader. Its batches have ``batch_size`` of the ``nodes`` first, then those that were reached from there.
    """
    check_num_neighbors(num_neighbors)
    if sampler_name() != "numba":
        return NeighborLoader(graph, list(num_neighbors), nodes, generator=generator, **options)
    neighbors = neighbors or InNeighbors(graph.edge_index, graph.num_nodes)
    sampler = NumbaNeighborSampler(neighbors, num_neighbors, generator)
    return NodeLoader(graph, sampler, nodes, generator=generator, **options)


def link_neighbor_loader(
    graph: Data,
    num_neighbors: Sequence[int],
    links: Tensor,
    *,
    neighbors: InNeighbors | None = None,
    generator: torch.Generator | None = None,
    **options: Any,
) -> LinkLoader:
    """A loader of mini-batches of links with samples of the neighbours of their ends.

    Args:
        graph: with ``edge_index``, on the CPU.
        num_neighbors, neighbors, generator: as of :func:`neighbor_loader`.
        links: (2, n) the pairs of nodes that batches are made of.
        options: of PyG's ``LinkLoader`` and torch's ``DataLoader``, such as ``edge_label``, ``neg_sampling`` and
            ``batch_size``.

    Returns:
        The loader: PyG's ``LinkNeighborLoader`` where its packages are installed. The pairs of a batch are its
        ``edge_label_index``, between the new numbers of the nodes.
    """
    check_num_neighbors(num_neighbors)
    if sampler_name() != "numba":
        return LinkNeighborLoader(graph, list(num_neighbors), links, generator=generator, **options)
    neighbors = neighbors or InNeighbors(graph.edge_index, graph.num_nodes)
    sampler = NumbaNeighborSampler(neighbors, num_neighbors, generator)
    return LinkLoader(graph, sampler, links, generator=generator, **options)


def check_num_neighbors(num_neighbors: Sequence[int]) -> tuple[int, ...]:
    """The numbers of neighbours, refused unless each is at least 1 or ``ALL``."""
    if not num_neighbors or any(limit < 1 and limit != ALL for limit in num_neighbors):
        raise InputError(f"neighbors must be whole numbers of at least 1, or {ALL} for all, got {num_neighbors}")
    return tuple(num_neighbors)


@njit(**KERNEL)
def _walk(
    start: np.ndarray,
    limits: np.ndarray,
    seed: np.uint64,
    pointer: np.ndarray,
    source: np.ndarray,
    number: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """All steps of a walk. It is one call, which Ctrl-C cannot end with numbers left behind.

    Args:
        start: (n,) int64 nodes.
        limits: (L,) the most edges of a node in each step, negative for all.
        seed, pointer, source, number: as of :func:`_step`; all numbers are taken back.

    Returns:
        Nodes; of each edge the numbers of its source and of its target, and its place in ``source``; how many nodes
        were new in each step, those of the start first; and how many edges.
    """
    node = start.copy()
    row, col, edge = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    node_sizes, edge_sizes = np.empty(limits.size + 1, np.int64), np.empty(limits.size, np.int64)
    node_sizes[0] = start.size
    for index, member in enumerate(start):
        number[member] = index
    first = 0
    for step, limit in enumerate(limits):
        known = node.size
        more_row, more_col, more_edge, new = _step(node[first:], first, known, limit, seed, pointer, source, number)
        row, col = np.concatenate((row, more_row)), np.concatenate((col, more_col))
        edge, node = np.concatenate((edge, more_edge)), np.concatenate((node, new))
        node_sizes[step + 1], edge_sizes[step] = new.size, more_edge.size
        first = known
    for member in node:
        number[member] = -1
    return node, row, col, edge, node_sizes, edge_sizes


@njit(**KERNEL)
def _step(
    nodes: np.ndarray,
    first: int,
    known: int,
    limit: int,
    seed: np.uint64,
    pointer: np.ndarray,
    source: np.ndarray,
    number: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Draw edges into some nodes and give numbers to the sources that have none.

    Args:
        nodes: (n,) whose numbers are ``first``, ``first + 1`` and so on.
        first: see there.
        known: how many nodes have a number.
        limit: the most edges of a node, negative for all.
        seed: uint64.
        pointer, source: the edges into node ``i`` come from ``source[pointer[i]:pointer[i + 1]]``.
        number: (N,) the number of each node, -1 where there is none; new ones are written here.

    Returns:
        Numbers of the source and of the target of each edge, the place of each edge in ``source``, the new nodes.
    """
    total = 0
    for node in nodes:
        degree = pointer[node + 1] - pointer[node]
        total += degree if limit < 0 else min(degree, limit)
    row, col = np.empty(total, np.int64), np.empty(total, np.int64)
    edge, new = np.empty(total, np.int64), np.empty(total, np.int64)
    at = found = 0
    for index, node in enumerate(nodes):
        end = at + _draw(node, limit, seed, pointer, edge[at:])
        for place in range(at, end):
            origin = source[edge[place]]
            if number[origin] < 0:
                number[origin] = known + found
                new[found] = origin
                found += 1
            row[place] = number[origin]
            col[place] = first + index
        at = end
    return row, col, edge, new[:found]


@njit(**PART)
def _draw(node: int, limit: int, seed: np.uint64, pointer: np.ndarray, out: np.ndarray) -> int:
    """Write the places of the edges that are drawn for a node to ``out`` and return how many there are.

    By Floyd's algorithm (Bentley and Floyd, "A sample of brilliance", 1987): to a subset of size i of the first m edges
    comes one of the first m + 1, or the last of these if that one is there already.
    """
    start = pointer[node]
    degree = pointer[node + 1] - start
    if limit < 0 or degree <= limit:
        for place in range(degree):
            out[place] = start + place
        return degree
    state = _scramble(seed + np.uint64(node) * STEP)
    for chosen in range(limit):
        last = degree - limit + chosen
        state += STEP
        # 53 bits: a place is wrong by at most degree / 2^53 of its probability.
        share = np.float64(_scramble(state) >> np.uint64(11)) / 9007199254740992.0
        pick = start + np.int64(share * (last + 1))
        for earlier in range(chosen):
            if out[earlier] == pick:
                pick = start + last
                break
        out[chosen] = pick
    return limit


# SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
STEP = np.uint64(0x9E3779B97F4A7C15)


@njit(**PART)
def _scramble(state: np.uint64) -> np.uint64:
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))
