r"""The search behind :mod:`hkconv.data.hyperbolicity`: Numba kernels over the distances of one finite metric space.

For four nodes of which :math:`d(x,y) + d(v,w)` is the largest of the three pair sums,

.. math::
    2 \tau(x,y;v,w) = d(x,y) + d(v,w) - \max(d(x,v) + d(y,w),\ d(x,w) + d(y,v)).

Let :math:`D = d(x,y) \ge E = d(v,w)`, and ask whether :math:`2\tau \ge t`. With :math:`R = D + E - t` that is
:math:`d(x,v) + d(y,w) \le R` and :math:`d(x,w) + d(y,v) \le R`. From the triangle inequality alone follows:

* :math:`E \ge t`, because :math:`2\tau \le \min(D, E)`.
* Neither :math:`v` nor :math:`w` is nearer than :math:`t/2` to :math:`x` or :math:`y`, because :math:`\tau` is at most
  any of the six distances. Hence neither is farther than :math:`R - \lceil t/2 \rceil`.
* The two inequalities sum to :math:`(d(x,v) + d(y,v)) + (d(x,w) + d(y,w)) \le 2R`, and both brackets are at least
  :math:`D`. So none is above :math:`2R - D`, and that of one of the two nodes, which we call :math:`v`, is at most
  :math:`R`.
* What :math:`w` may be depends on :math:`(d(x,v), d(y,v))` alone, the *type* of :math:`v`. With those nodes in a bit
  set, one pass over the partners of :math:`v` at distance :math:`E`, in bits too, settles all its quadruples with
  :math:`x, y`.

In a graph only *far-apart* pairs need be looked at: those of which neither node has a neighbour farther from the other.
This and the order by descending distance are of Cohen, Coudert and Lancin, "On computing the Gromov hyperbolicity"
(2015); leaving out nodes by their distances to :math:`x` and :math:`y` is the idea of Borassi, Coudert, Crescenzi and
Marino, "On computing the hyperbolicity of real-world graphs" (2015). The types and their bit sets are our own.
"""

import numpy as np

from hkconv.ops.compiling import KERNEL, PART, njit

# Nodes in a word of a bit set.
WORD = 64

# Types are told apart on a grid of so many distances to x and to y; longer ones share a cell with their like.
CELLS = 16

# What _limits returns; and the head of each cell's chain, the members of all chains, and who follows each.
Limits = tuple[int, int, int, int, int]
Cells = tuple[np.ndarray, np.ndarray, np.ndarray]


@njit(**KERNEL)
def walk(
    sources: np.ndarray, pointer: np.ndarray, neighbor: np.ndarray, distance: np.ndarray, ends: np.ndarray
) -> bool:
    """Distances from some nodes, and the nodes that have no neighbour farther away.

    Args:
        sources: S nodes.
        pointer, neighbor: neighbours of node ``i`` are ``neighbor[pointer[i]:pointer[i + 1]]``.
        distance: (S, N) to be filled.
        ends: (S, words) bits to be filled.

    Returns:
        Whether the type of ``distance`` could hold all of them.
    """
    nodes = pointer.size - 1
    queue = np.empty(nodes, np.int32)
    unseen = distance.dtype.type(-1)
    for index, source in enumerate(sources):
        row, end = distance[index], ends[index]
        row[:] = unseen
        end[:] = ~np.uint64(0)
        row[source] = 0
        queue[0] = source
        head, tail = 0, 1
        while head < tail:
            z = queue[head]
            head += 1
            if row[z] == unseen - 1:
                return False
            for place in range(pointer[z], pointer[z + 1]):
                other = neighbor[place]
                if row[other] == unseen:
                    row[other] = row[z] + 1
                    queue[tail] = other
                    tail += 1
                elif row[other] < row[z]:
                    end[other // WORD] &= ~_bit(other)
    return True


@njit(**KERNEL)
def keep_mutual(first: int, last: int, ends: np.ndarray, far: np.ndarray) -> None:
    """Rows ``first`` to ``last`` of the far-apart pairs: each node is an end of the walk from the other."""
    for u in range(first, last):
        far[u] = 0
        for v in range(ends.shape[0]):
            if _has(ends, u, v) and _has(ends, v, u):
                far[u, v // WORD] |= _bit(v)


@njit(**KERNEL)
def has_levels(first: int, last: int, distance: np.ndarray, far: np.ndarray, levels: np.ndarray) -> None:
    """Mark which distances the pairs in ``far`` have, of the nodes ``first`` to ``last`` with all others."""
    for u in range(first, last):
        for v in range(distance.shape[0]):
            if _has(far, u, v):
                levels[distance[u, v]] = True


@njit(**KERNEL)
def keep_level(first: int, last: int, distance: np.ndarray, far: np.ndarray, level: int, partners: np.ndarray) -> None:
    """Rows ``first`` to ``last`` of the pairs in ``far`` at the distance ``level``."""
    nodes = distance.shape[0]
    for u in range(first, last):
        for word in range(far.shape[1]):
            kept = np.uint64(0)
            if far[u, word]:
                for v in range(word * WORD, min((word + 1) * WORD, nodes)):
                    if distance[u, v] == level:
                        kept |= _bit(v)
            partners[u, word] = kept & far[u, word]


@njit(**KERNEL)
def search(
    first: int,
    last: int,
    level: int,
    twice: int,
    distance: np.ndarray,
    far: np.ndarray,
    partners: np.ndarray,
    live: np.ndarray,
    found: np.ndarray,
) -> int:
    """Look for quadruples of a pair in ``far`` and one in ``partners`` that are better than what is known.

    Args:
        first, last: which x of the pairs (x, y), x < y, to take.
        level: the distance of all pairs in ``partners``.
        twice: the largest 2 tau known.
        distance: (N, N).
        far: (N, words) bits of the pairs (x, y); those nearer than ``level`` are left out.
        partners: (N, words) bits of the pairs (v, w).
        live: the nodes that are in a pair of ``partners``, ascending.
        found: (4,) where x, y, v, w of the last improvement go.

    Returns:
        The largest 2 tau known now.
    """
    nodes = distance.shape[0]
    head = np.empty((CELLS, CELLS), np.int32)
    members, follower = np.empty(live.size, np.int32), np.empty(live.size, np.int32)
    wanted = np.empty(far.shape[1], np.uint64)
    for x in range(first, last):
        # Of two pairs at the same distance, x, y is the one with the least node.
        later = live[np.searchsorted(live, x) :]
        for y in range(x + 1, nodes):
            if distance[x, y] < level or not _has(far, x, y):
                continue
            candidates = later if distance[x, y] == level else live
            better = twice
            # An improvement narrows what the same pair may still be part of.
            while better >= twice and better < level:
                twice = better
                limits = _limits(np.int64(distance[x, y]), level, twice + 1)
                _sort(candidates, distance[x], distance[y], limits, head, members, follower)
                better = _compare(x, y, level, limits, distance, partners, (head, members, follower), wanted, found)
            twice = max(twice, better)
            if twice >= level:
                return twice
    return twice


@njit(**PART)
def _limits(longest: int, level: int, goal: int) -> Limits:
    """For 2 tau of at least ``goal``: R, the least distance, the most, the largest sum, and the width of a cell."""
    reach = longest + level - goal
    least = (goal + 1) // 2
    return reach, least, reach - least, 2 * reach - longest, max(0, reach - 2 * least) // CELLS + 1


@njit(**PART)
def _sort(
    candidates: np.ndarray,
    from_x: np.ndarray,
    from_y: np.ndarray,
    limits: Limits,
    head: np.ndarray,
    members: np.ndarray,
    follower: np.ndarray,
) -> None:
    """Chain the nodes that v or w may be, cell by cell: each names the place of the one that follows it, or -1."""
    _, least, most, largest_sum, width = limits
    head[:] = -1
    count = 0
    for z in candidates:
        a, b = np.int64(from_x[z]), np.int64(from_y[z])
        if least <= a <= most and least <= b <= most and a + b <= largest_sum:
            i, j = (a - least) // width, (b - least) // width
            members[count] = z
            follower[count] = head[i, j]
            head[i, j] = count
            count += 1


@njit(**PART)
def _compare(
    x: int,
    y: int,
    level: int,
    limits: Limits,
    distance: np.ndarray,
    partners: np.ndarray,
    cells: Cells,
    wanted: np.ndarray,
    found: np.ndarray,
) -> int:
    """2 tau of the first pair v, w that reaches the goal, else -1."""
    reach, least, _, _, width = limits
    head, members, follower = cells
    for i in range(CELLS):
        for j in range(CELLS):
            a, b = least + i * width, least + j * width
            if head[i, j] < 0 or a + b > reach:
                continue
            if not _collect((reach - b - least) // width, (reach - a - least) // width, cells, wanted):
                continue
            place = head[i, j]
            while place >= 0:
                v = members[place]
                place = follower[place]
                for word in range(wanted.size):
                    both = partners[v, word] & wanted[word]
                    if both:
                        tau = _check(x, y, v, word, both, level, reach, distance, found)
                        if tau >= 0:
                            return tau
    return -1


@njit(**PART)
def _collect(last_row: int, last_column: int, cells: Cells, wanted: np.ndarray) -> bool:
    """Set the bits of the nodes in the cells up to these; False if there are none."""
    head, members, follower = cells
    wanted[:] = 0
    some = False
    for i in range(min(last_row + 1, CELLS)):
        for j in range(min(last_column + 1, CELLS)):
            place = head[i, j]
            while place >= 0:
                wanted[members[place] // WORD] |= _bit(members[place])
                place = follower[place]
                some = True
    return some


@njit(**PART)
def _check(
    x: int,
    y: int,
    v: int,
    word: int,
    both: np.uint64,
    level: int,
    reach: int,
    distance: np.ndarray,
    found: np.ndarray,
) -> int:
    """2 tau of the first w in a word of bits that reaches the goal, else -1; cells wider than 1 hold others too."""
    for w in range(word * WORD, min((word + 1) * WORD, distance.shape[0])):
        if both & _bit(w):
            next_sum = max(np.int64(distance[x, v]) + distance[y, w], np.int64(distance[x, w]) + distance[y, v])
            if next_sum <= reach:
                found[0], found[1], found[2], found[3] = x, y, v, w
                return distance[x, y] + level - next_sum
    return -1


@njit(**PART)
def _bit(node: int) -> np.uint64:
    return np.uint64(1) << np.uint64(node % WORD)


@njit(**PART)
def _has(bits: np.ndarray, row: int, node: int) -> bool:
    return bits[row, node // WORD] & _bit(node) != 0
