r"""Gromov hyperbolicity of a graph by the four-point condition: how far its distances are from those of a tree.

.. math::
    \delta = \max_{a,b,c,d} \tfrac{1}{2} (S_1 - S_2)

where :math:`S_1 \ge S_2` are the two largest of :math:`d(a,b) + d(c,d)`, :math:`d(a,c) + d(b,d)` and
:math:`d(a,d) + d(b,c)`, and :math:`d` counts edges, whatever their direction. A tree has 0, the cycle of 4 k nodes k.

Between components there is no distance, so that :math:`\delta` of a disconnected graph is the largest of its
components. It is the largest of its biconnected blocks too: seen from one block, the rest of the graph hangs on single
nodes, as in a tree. Blocks are therefore taken one by one, the largest first, and left out where their size alone
bounds them by what is known: two disjoint ways join any two of n nodes, so their distance is at most n / 2, and
:math:`2 \delta` is at most the largest distance. :mod:`hkconv.data.four_points` has the search within a block.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from hkconv.data.checks import check_edges
from hkconv.data.dataset import link_keys, pairs_of_keys
from hkconv.data.splits import seeded_generator
from hkconv.errors import InputError
from hkconv.options import SAMPLE

if TYPE_CHECKING:
    from networkx import Graph

# A block of more nodes is sampled: its distances and bit sets would take more than 3.4 GB.
EXACT_NODES = 50_000
SAMPLED_NODES = 2_000

# Pairs of nodes that one call of a kernel looks at: few enough to interrupt it, enough for the call not to matter.
PAIRS_A_CALL = 1 << 16

# Calls that start from the same bound. Their number is fixed, so that the quadruple does not depend on the threads.
CALLS_A_WAVE = 32

# Distances that are held at a time while a sample is walked from.
DISTANCES_AT_A_TIME = 1 << 26


@dataclass(frozen=True)
class Hyperbolicity:
    """Delta of a graph, or bounds of it.

    Args:
        delta: the value that ``quadruple`` attains: delta itself where ``exact``, else a lower bound.
        upper: an upper bound, equal to ``delta`` where exact.
        quadruple: nodes a, b, c, d with ``d(a,b) + d(c,d)`` the largest sum; empty where ``delta`` is 0, which any
            four nodes attain.
        nodes, edges: of the graph; an undirected edge counts one, repeats and self loops nothing.
        components: number of connected components.
        component: number of nodes of the component with the quadruple; of the largest one where there is none.
    """

    delta: float
    upper: float
    quadruple: tuple[int, ...]
    nodes: int
    edges: int
    components: int
    component: int

    @property
    def exact(self) -> bool:
        """True if delta is known and not only bounded."""
        return self.delta == self.upper


class DeltaProgress(NamedTuple):
    """Bounds of delta so far, what is being looked at, and which share of that is done."""

    lower: float
    upper: float
    stage: str
    share: float


def gromov_delta(
    edge_index: Tensor,
    num_nodes: int,
    *,
    sample: int | None = None,
    seed: int = 0,
    report: Callable[[DeltaProgress], None] = lambda progress: None,
) -> Hyperbolicity:
    """The Gromov hyperbolicity of a graph, exact or between two bounds.

    Takes about 1.4 bytes of memory for each pair of nodes of the largest block, and as many threads as
    ``torch.get_num_threads()`` says, on whose number the result does not depend.

    Args:
        edge_index: (2, E) edges of any direction; repeats and self loops change nothing.
        num_nodes: number of nodes.
        sample: blocks of more nodes than this are not computed but sampled, with so many nodes; by default those of
            more than 50,000, with 2,000. The lower bound is then the exact delta of the sampled nodes, and the upper
            one follows from their distances to all others.
        seed: seed of the sample.
        report: called now and then with the progress.

    Returns:
        Delta or its bounds, and four nodes that attain it.
    """
    check_edges(edge_index, num_nodes, "the graph")
    if num_nodes < 1:
        raise InputError("the graph has no nodes: at least one is needed")
    if sample is not None:
        SAMPLE.check("sample", sample)
    limit, size = (EXACT_NODES, SAMPLED_NODES) if sample is None else (sample, sample)
    graph = _simple_graph(edge_index, num_nodes)
    known = _Known(report)
    with ThreadPoolExecutor(torch.get_num_threads(), thread_name_prefix="hkconv") as pool:
        blocks = sorted(_blocks(graph), key=lambda block: -block.bound)
        for block, following in zip_longest(blocks, blocks[1:]):
            known.block, known.others = block.bound, following.bound if following else 0
            if block.bound <= known.twice:
                break
            if len(block.names) <= limit:
                _search_block(block, known, pool)
            else:
                _sample_block(block, size, seed, known, pool)
    known.block = known.others = 0
    return _result(graph, known)


class _Known:
    """Twice what is known of delta while blocks are searched.

    ``twice`` is attained by ``quadruple``. Upper bounds are ``block`` for the one at hand, ``others`` for those that
    follow and ``sampled`` for those that were only sampled.
    """

    def __init__(self, report: Callable[[DeltaProgress], None]) -> None:
        self.report = report
        self.twice = self.block = self.others = self.sampled = 0
        self.quadruple: tuple[int, ...] = ()

    @property
    def upper(self) -> int:
        return max(self.twice, self.block, self.others, self.sampled)

    def tell(self, stage: str, share: float) -> None:
        self.report(DeltaProgress(self.twice / 2, self.upper / 2, stage, share))


class _Block(NamedTuple):
    """A biconnected block: the nodes' numbers in the graph, and neighbours as positions among them."""

    names: np.ndarray
    pointer: np.ndarray
    neighbor: np.ndarray

    @property
    def bound(self) -> int:
        """Upper bound of 2 delta by size; nothing where all nodes are neighbours."""
        nodes = len(self.names)
        return 0 if len(self.neighbor) == nodes * (nodes - 1) else _bound(nodes // 2)


def _bound(diameter: int) -> int:
    """2 delta is at most the diameter, and below it where that is odd."""
    return diameter // 2 * 2


def _simple_graph(edge_index: Tensor, num_nodes: int) -> "Graph":
    from networkx import Graph

    graph = Graph()
    graph.add_nodes_from(range(num_nodes))
    graph.add_edges_from(pairs_of_keys(link_keys(edge_index, num_nodes), num_nodes).t().tolist())
    return graph


def _blocks(graph: "Graph") -> Iterator[_Block]:
    """The blocks with four edges or more; smaller ones are a triangle or a bridge."""
    from networkx import biconnected_component_edges

    for edges in biconnected_component_edges(graph):
        if len(edges) >= 4:
            names, ends = np.unique(np.array(edges), return_inverse=True)
            first, second = ends.reshape(-1, 2).T
            source, target = np.concatenate([first, second]), np.concatenate([second, first])
            pointer = np.concatenate([[0], np.bincount(source).cumsum()])
            yield _Block(names, pointer, target[np.argsort(source, kind="stable")].astype(np.int32))


def _search_block(block: _Block, known: _Known, pool: ThreadPoolExecutor) -> None:
    from hkconv.data.four_points import keep_mutual

    nodes = len(block.names)
    distance, ends = _walk(block, np.arange(nodes), known, pool)
    far = np.empty_like(ends)
    known.block = min(known.block, _bound(int(distance.max())))
    for calls, share in _waves(nodes, nodes):
        _call(pool, keep_mutual, calls, ends, far)
        known.tell("far-apart pairs", share)
    _search(distance, far, block.names, known, pool)


def _sample_block(block: _Block, size: int, seed: int, known: _Known, pool: ThreadPoolExecutor) -> None:
    """Half of the sample is random, the other half as far from it as possible, since far pairs are what matters."""
    nodes = len(block.names)
    drawn = torch.randperm(nodes, generator=seeded_generator(seed))[: size // 2].numpy()
    farthest = [rows.argmax(axis=1) for rows in _walk_in_parts(block, drawn, known, pool)]
    chosen = np.union1d(drawn, np.concatenate(farthest))
    # No node is farther from z than from any u by way of u.
    reach, columns = np.full(nodes, 2 * nodes), []
    for rows in _walk_in_parts(block, chosen, known, pool):
        for row in rows:
            np.minimum(reach, row.astype(np.int64) + int(row.max()), out=reach)
        columns.append(rows.take(chosen, axis=1))
    known.sampled = max(known.sampled, min(block.bound, _bound(int(reach.max()))))
    distance = np.concatenate(columns)
    every_pair = np.full((len(chosen), _words(len(chosen))), ~np.uint64(0))
    _search(distance, every_pair, block.names[chosen], known, pool)


def _walk_in_parts(block: _Block, sources: np.ndarray, known: _Known, pool: ThreadPoolExecutor) -> Iterator[np.ndarray]:
    rows = max(1, DISTANCES_AT_A_TIME // len(block.names))
    for first in range(0, len(sources), rows):
        yield _walk(block, sources[first : first + rows], known, pool)[0]


def _walk(block: _Block, sources: np.ndarray, known: _Known, pool: ThreadPoolExecutor) -> tuple[np.ndarray, np.ndarray]:
    """Distances (S, N) from the sources, in the narrowest type, and the ends of the ways from them in bits."""
    from hkconv.data.four_points import walk

    nodes = len(block.names)
    ends = np.empty((len(sources), _words(nodes)), np.uint64)

    def fill(first: int, last: int, distance: np.ndarray) -> bool:
        return walk(sources[first:last], block.pointer, block.neighbor, distance[first:last], ends[first:last])

    def fits(distance: np.ndarray) -> bool:
        for calls, share in _waves(len(sources), nodes):
            if not all(_call(pool, fill, calls, distance)):
                return False
            # No two nodes are farther apart than by way of a third.
            known.block = min(known.block, _bound(2 * int(distance[0].max())))
            known.tell(f"distances of {nodes:,} nodes", share)
        return True

    tables = (np.empty((len(sources), nodes), kind) for kind in (np.uint8, np.uint16, np.uint32))
    return next(filter(fits, tables)), ends


def _search(distance: np.ndarray, far: np.ndarray, names: np.ndarray, known: _Known, pool: ThreadPoolExecutor) -> None:
    """Quadruples of two pairs in ``far``, the nearer of which is taken from far to near."""
    from hkconv.data.four_points import has_levels, keep_level, search

    nodes = len(distance)
    partners = np.empty_like(far)

    def look(first: int, last: int, level: int, live: np.ndarray) -> tuple[int, np.ndarray]:
        found = np.empty(4, np.int64)
        return search(first, last, level, known.twice, distance, far, partners, live, found), found

    levels = np.zeros(int(distance.max()) + 1, np.bool_)
    for calls, _ in _waves(nodes, nodes):
        _call(pool, has_levels, calls, distance, far, levels)
    for level in np.flatnonzero(levels)[::-1].tolist():
        known.block = min(known.block, level)
        if level <= known.twice:
            return
        for calls, _ in _waves(nodes, nodes):
            _call(pool, keep_level, calls, distance, far, level, partners)
        live = np.flatnonzero(partners.any(axis=1)).astype(np.int32)
        for calls, share in _waves(nodes, nodes):
            for twice, found in _call(pool, look, calls, level, live):
                if twice > known.twice:
                    known.twice, known.quadruple = twice, tuple(names[found].tolist())
            known.tell(f"pairs {level} apart", share)


def _waves(rows: int, columns: int) -> Iterator[tuple[list[tuple[int, int]], float]]:
    """First and last rows for calls of a kernel, some at a time, and the share of the rows once these are done."""
    step = max(1, PAIRS_A_CALL // columns)
    calls = ((first, min(rows, first + step)) for first in range(0, rows, step))
    while wave := list(islice(calls, CALLS_A_WAVE)):
        yield wave, wave[-1][1] / rows


def _call(pool: ThreadPoolExecutor, function: Callable[..., Any], calls: list[tuple[int, int]], *rest: Any) -> list:
    if len(calls) == 1:
        return [function(*calls[0], *rest)]
    return list(pool.map(lambda call: function(*call, *rest), calls))


def _words(nodes: int) -> int:
    """Words of 64 bits for a bit each node."""
    return -(-nodes // 64)


def _result(graph: "Graph", known: _Known) -> Hyperbolicity:
    from networkx import connected_components

    components = list(connected_components(graph))
    holding = [nodes for nodes in components if known.quadruple and known.quadruple[0] in nodes]
    return Hyperbolicity(
        delta=known.twice / 2,
        upper=known.upper / 2,
        quadruple=known.quadruple,
        nodes=graph.number_of_nodes(),
        edges=graph.number_of_edges(),
        components=len(components),
        component=max(map(len, holding or components)),
    )
