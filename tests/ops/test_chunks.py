import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hkconv.ops import chunks as module
from hkconv.ops.chunks import LONGEST, SHORTEST, chunks_of, slots_for, usual_degree


@pytest.fixture
def small(monkeypatch):
    """Chunks of 4 to 8 edges, so that small graphs have hubs."""
    monkeypatch.setattr(module, "SHORTEST", 4)
    monkeypatch.setattr(module, "LONGEST", 8)


def cut(degree):
    pointer = torch.tensor([0, *degree]).cumsum(0).int()
    return chunks_of(pointer, sum(degree))


def used_rows(rows, width):
    """Rows with a node; the others must come last and say -1."""
    assert rows.dtype == torch.int32
    assert rows.shape[1:] == (width,)
    rows = rows.tolist()
    used = [row for row in rows if row[0] != -1]
    assert used == rows[: len(used)]
    return used


def assert_cut(degree, length):
    """Chunks of at most ``length`` edges, said again by walking through every neighborhood."""
    nodes, edges = len(degree), sum(degree)
    chunks, hubs = cut(degree)
    expected, expected_hubs, edge, slot = [], [], 0, 0
    for node, d in enumerate(degree):
        end, first_slot, split = edge + d, slot, d > length
        while True:
            last = min(edge + length, end)
            expected.append([node, edge, last, slot if split else -1])
            slot += split
            edge = last
            if edge == end:
                break
        if split:
            expected_hubs.append([node, first_slot, slot])
    assert used_rows(chunks, 4) == expected
    assert used_rows(hubs, 3) == expected_hubs
    assert slot <= slots_for(nodes, edges)
    assert chunks.size(0) <= nodes + edges // length


ADVERSARIAL = {
    "no edges": [0, 0, 0],
    "one node": [5],
    "one empty node": [0],
    "one hub alone": [1000],
    "one hub first": [100] + [0] * 9,
    "one hub last": [0] * 9 + [100],
    "exactly a chunk": [4] * 30,
    "one more than a chunk": [5] * 30 + [0] * 30,
    "one less than two chunks": [7] * 30 + [0] * 60,
    "exactly two chunks": [8] * 30 + [0] * 120,
    "one more than two chunks": [9] * 30 + [0] * 120,
    "mixed": [0, 4, 5, 0, 8, 9, 1, 3, 12, 13, 0] + [0] * 40,
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ADVERSARIAL)
def test_chunks_of_adversarial_degrees(name):
    degree = ADVERSARIAL[name]
    assert_cut(degree, module._chunk_length(len(degree), sum(degree)))


@pytest.mark.usefixtures("small")
def test_chunks_of_four():
    """The example written out: nodes of 0, 4, 5 and 9 edges among empty ones."""
    chunks, hubs = cut([0, 4, 5, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    assert chunks.tolist()[:8] == [
        [0, 0, 0, -1],
        [1, 0, 4, -1],
        [2, 4, 8, 0],
        [2, 8, 9, 1],
        [3, 9, 13, 2],
        [3, 13, 17, 3],
        [3, 17, 18, 4],
        [4, 18, 18, -1],
    ]
    assert hubs.tolist()[:2] == [[2, 0, 2], [3, 2, 5]]
    assert all(node == -1 for node, _, _ in hubs.tolist()[2:])


@given(st.lists(st.sampled_from([0, 0, 0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 17, 40]), min_size=1, max_size=40))
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
def test_chunks_of_any_degrees(degree):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SHORTEST", 4)
        patch.setattr(module, "LONGEST", 8)
        assert_cut(degree, module._chunk_length(len(degree), sum(degree)))


@pytest.mark.parametrize(
    "degree",
    [
        [SHORTEST] * 20 + [SHORTEST + 1] * 20 + [0] * 400,
        [2 * SHORTEST - 1, 2 * SHORTEST, 2 * SHORTEST + 1] * 5 + [0] * 400,
        [100_000] + [0] * 50_000,
        [LONGEST, LONGEST + 1, 5 * LONGEST, 0, 1],
    ],
    ids=["around a chunk", "around two", "one hub", "dense"],
)
def test_chunks_of_real_lengths(degree):
    length = SHORTEST if len(degree) > 10 else LONGEST
    assert_cut(degree, length)


def test_no_nodes():
    chunks, hubs = cut([])
    assert (chunks.shape, hubs.shape) == ((0, 4), (0, 3))


def test_shape_does_not_depend_on_who_has_the_edges():
    """What a captured CUDA graph needs: sizes follow from the number of nodes and edges alone."""
    shapes = {tuple(part.shape for part in cut(degree)) for degree in ([600] * 4, [2400, 0, 0, 0], [0, 1, 2000, 399])}
    assert len(shapes) == 1


@pytest.mark.parametrize("nodes", [0, 1, 3, 1000])
def test_chunk_length_stays_within_bounds_and_never_shrinks_with_edges(nodes):
    lengths = [module._chunk_length(nodes, edges) for edges in range(0, 2_000_000, 997)]
    assert lengths == sorted(lengths)
    assert lengths[0] == SHORTEST
    assert lengths[-1] == LONGEST


@pytest.mark.parametrize(
    ("nodes", "edges", "degree"),
    [(10, 0, 1), (10, 10, 1), (10, 20, 2), (10, 30, 4), (10, 40, 4), (10, 50, 8), (0, 0, 1), (1000, 1, 1)],
)
def test_usual_degree_is_a_power_of_two_not_below_the_mean(nodes, edges, degree):
    assert usual_degree(nodes, edges) == degree
