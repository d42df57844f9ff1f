import gc
import warnings
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric import EdgeIndex
from torch_geometric.utils import to_edge_index, to_torch_csc_tensor, to_torch_csr_tensor

import hkconv
from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.models import HGCNConv, HyboNetConv
from hkconv.nn import HKConv
from hkconv.ops import chunks
from hkconv.ops import neighbors as module
from hkconv.ops.neighbors import flip, neighbors_with_loops, read_edges, read_neighbors, unfold, with_loops

# Repeated edges, a self loop, a hub; 0 has no incoming edge, 6 neither kind, and no order is sorted already.
SOURCE = [5, 0, 2, 3, 2, 4, 2, 1, 2, 3, 2]
TARGET = [4, 1, 1, 3, 1, 1, 4, 5, 1, 2, 4]
NODES = 7
SPARSE = {
    "coo": lambda matrix: matrix.to_sparse_coo(),
    "csr": lambda matrix: matrix.to_sparse_csr(),
    "csc": lambda matrix: matrix.to_sparse_csc(),
}
ignore_beta_warnings = pytest.mark.filterwarnings("ignore:Sparse")


@pytest.fixture
def sorts(monkeypatch) -> list[int]:
    """One entry, the number of edges, each time a graph is sorted."""
    done, sort = [], module.sort_edges
    monkeypatch.setattr(module, "sort_edges", lambda source, *rest: done.append(source.numel()) or sort(source, *rest))
    return done


def example() -> torch.Tensor:
    return torch.tensor([SOURCE, TARGET])


def cloud(nodes=NODES, dim=3):
    return lorentz.lift(torch.randn(nodes, dim, dtype=torch.float64))


def layer(backend="auto", **options):
    torch.manual_seed(1)
    return HKConv(3, 2, 3, backend=backend, **options).double()


def adjacency() -> torch.Tensor:
    """A dense matrix (targets, sources) of positive weights; (0, 3) and row 2 are empty."""
    matrix = torch.rand(4, 4, dtype=torch.float64) + 0.1
    matrix[0, 3] = 0
    matrix[2] = 0
    return matrix


def assert_structure(found, source, target, size):
    """The compressed form, said again by going over all edges for every node."""
    edges = range(len(source))
    assert found.size == size
    assert all(part.dtype == torch.int32 for part in found)
    assert sorted(found.order.tolist()) == list(edges)
    assert sorted(found.by_source.tolist()) == list(edges)
    first, order = found.target_pointer.tolist(), found.order.tolist()
    assert (first[0], first[-1], len(first)) == (0, len(edges), size[1] + 1)
    for node in range(size[1]):
        into = [e for e in edges if target[e] == node]
        assert order[first[node] : first[node + 1]] == into
        assert found.source[first[node] : first[node + 1]].tolist() == [source[e] for e in into]
        assert found.target[first[node] : first[node + 1]].tolist() == [node] * len(into)
    first, place = found.source_pointer.tolist(), found.by_source.tolist()
    assert (first[0], first[-1], len(first)) == (0, len(edges), size[0] + 1)
    for node in range(size[0]):
        out = sorted((e for e in edges if source[e] == node), key=lambda e: (target[e], e))
        assert [order[p] for p in place[first[node] : first[node + 1]]] == out
        assert found.target_by_source[first[node] : first[node + 1]].tolist() == [target[e] for e in out]


@st.composite
def graphs(draw):
    sources, targets = draw(st.integers(1, 7)), draw(st.integers(1, 7))
    edge = st.tuples(st.integers(0, sources - 1), st.integers(0, targets - 1))
    return draw(st.lists(edge, max_size=30)), (sources, targets)


@given(graphs())
@settings(deadline=None, max_examples=100, derandomize=True)
def test_structure_of_any_graph(graph):
    edges, size = graph
    source, target = [s for s, _ in edges], [t for _, t in edges]
    assert_structure(hkconv.neighbors(torch.tensor([source, target]).long(), size), source, target, size)


@pytest.mark.parametrize("seed", range(3))
def test_structure_of_a_large_bipartite_graph(seed):
    random = torch.Generator().manual_seed(seed)
    source, target = (torch.randint(n, (3000,), generator=random) for n in (40, 90))
    assert_structure(
        hkconv.neighbors(torch.stack([source, target]), (50, 100)), source.tolist(), target.tolist(), (50, 100)
    )


@pytest.mark.parametrize("size", [(7, 7), (6, 9), (20, 6)])
def test_structure_of_repeated_edges_self_loops_and_isolated_nodes(size):
    assert_structure(hkconv.neighbors(example(), size), SOURCE, TARGET, size)


@pytest.mark.parametrize("size", [(4, 4), (3, 0), (0, 3), (0, 0)])
def test_structure_without_edges(size):
    assert_structure(hkconv.neighbors(torch.empty(2, 0, dtype=torch.long), size), [], [], size)


def test_one_number_is_the_size_of_both_sides():
    found = hkconv.neighbors(torch.tensor([[0, 3], [1, 1]]), 5)
    assert found.size == (5, 5)
    torch.testing.assert_close(tuple(found), tuple(hkconv.neighbors(torch.tensor([[0, 3], [1, 1]]), (5, 5))))


@pytest.mark.parametrize("integer", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8])
def test_structure_from_any_integer_type(integer):
    assert_structure(hkconv.neighbors(example().to(integer), NODES), SOURCE, TARGET, (NODES, NODES))


def test_uint8_is_not_signed():
    edge_index = torch.tensor([[255, 200, 255], [128, 0, 127]], dtype=torch.uint8)
    assert_structure(hkconv.neighbors(edge_index, 256), [255, 200, 255], [128, 0, 127], (256, 256))


def test_structure_from_edge_index_of_pyg():
    assert_structure(hkconv.neighbors(EdgeIndex(example()), NODES), SOURCE, TARGET, (NODES, NODES))


@ignore_beta_warnings
@pytest.mark.parametrize("layout", SPARSE)
def test_rows_of_a_sparse_matrix_are_targets(layout):
    dense = torch.zeros(3, 4)
    dense[0, 3] = dense[2, 0] = dense[2, 1] = 1
    matrix = SPARSE[layout](dense)
    found = hkconv.neighbors(matrix, (4, 3))
    user = to_edge_index(matrix)[0].flip(0).tolist()
    assert sorted(zip(*user)) == [(0, 2), (1, 2), (3, 0)]
    assert_structure(found, *user, (4, 3))


@ignore_beta_warnings
@pytest.mark.parametrize("layout", SPARSE)
def test_values_of_a_sparse_matrix_are_weights(layout):
    dense = adjacency()
    found, weight = read_neighbors(SPARSE[layout](dense), None, (4, 4))
    torch.testing.assert_close(weight, dense[found.target.long(), found.source.long()], rtol=0, atol=0)


@ignore_beta_warnings
@pytest.mark.parametrize("remembered", [False, True])
@pytest.mark.parametrize("layout", SPARSE)
def test_edge_weight_overrides_the_values_of_a_sparse_matrix(layout, remembered):
    matrix = SPARSE[layout](adjacency())
    if remembered:
        read_neighbors(matrix, None, (4, 4))
    given_weight = torch.rand(11, dtype=torch.float64)
    found, weight = read_neighbors(matrix, given_weight, (4, 4))
    torch.testing.assert_close(weight, given_weight[found.order], rtol=0, atol=0)


@ignore_beta_warnings
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_repeated_entries_of_a_sparse_matrix_count_as_their_sum(backend):
    index, value = torch.tensor([[1, 0, 1, 1], [0, 1, 2, 0]]), torch.tensor([1.0, 2.0, 2.0, 3.0], dtype=torch.float64)
    x, conv = cloud(3), layer(backend)
    summed = conv(x, torch.sparse_coo_tensor(index, value, (3, 3)).coalesce())
    repeated = torch.sparse_coo_tensor(index, value, (3, 3))
    for _ in range(2):
        torch.testing.assert_close(conv(x, repeated), summed)


def test_edges_of_a_structure_are_the_users_edges_by_target():
    weight = torch.rand(len(SOURCE))
    found = hkconv.neighbors(example(), NODES)
    source, target, sorted_weight = found.edges(weight)
    order = sorted(range(len(SOURCE)), key=lambda e: TARGET[e])
    assert source.tolist() == [SOURCE[e] for e in order]
    assert target.tolist() == found.target.tolist() == sorted(TARGET)
    assert torch.equal(sorted_weight, weight[order])
    assert found.edges().weight is None


@pytest.mark.parametrize(
    ("edge_index", "size", "message"),
    [
        ([[0, 5], [1, 1]], 5, r"sources.*\[0, 5\).*from 0 to 5"),
        ([[0, 1], [1, 7]], 5, r"targets.*\[0, 5\).*from 1 to 7"),
        ([[-1, 1], [1, 1]], 5, r"sources.*\[0, 5\).*from -1 to 1"),
        ([[3, 1], [-2, 1]], 5, r"targets.*\[0, 5\).*from -2 to 1"),
        ([[4, 1], [2, 1]], (5, 2), r"targets.*\[0, 2\).*from 1 to 2"),
        ([[2, 1], [4, 1]], (2, 5), r"sources.*\[0, 2\).*from 1 to 2"),
        ([[0], [0]], 0, r"sources.*\[0, 0\)"),
    ],
)
def test_edges_out_of_range(edge_index, size, message):
    with pytest.raises(InputError, match=message):
        hkconv.neighbors(torch.tensor(edge_index), size)


@pytest.mark.parametrize(
    ("edge_index", "message"),
    [
        (torch.zeros(3, 4, dtype=torch.long), r"\(2, edges\).*\(3, 4\)"),
        (torch.zeros(2, dtype=torch.long), r"\(2, edges\).*\(2,\)"),
        (torch.zeros(2, 4), "integers.*float32"),
        (torch.zeros(2, 4, dtype=torch.bool), "integers.*bool"),
    ],
)
def test_edges_of_a_wrong_shape_or_type(edge_index, message):
    with pytest.raises(InputError, match=message):
        hkconv.neighbors(edge_index, 5)


@ignore_beta_warnings
@pytest.mark.parametrize("layout", SPARSE)
def test_sparse_matrix_of_a_wrong_shape(layout):
    with pytest.raises(InputError, match=r"\(targets, sources\) = \(3, 4\), got \(4, 3\)"):
        hkconv.neighbors(SPARSE[layout](torch.ones(4, 3)), (4, 3))


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("size", [NODES + 1, NODES - 1, (NODES, NODES + 1), (NODES + 1, NODES)])
def test_structure_of_another_size_is_refused(backend, size):
    found = hkconv.neighbors(torch.tensor([[0, 1], [2, 3]]), size)
    with pytest.raises(InputError, match=rf"{NODES}, {NODES}"):
        layer(backend)(cloud(), found)


@pytest.mark.parametrize("remembered", [False, True])
@pytest.mark.parametrize("weight", [[1.0] * 10, [[1.0] * 11], [-1.0] * 11, [float("nan")] * 11])
def test_bad_weights_are_refused(weight, remembered):
    edge_index = example()
    if remembered:
        read_neighbors(edge_index, None, (NODES, NODES))
    for read in (read_neighbors, read_edges):
        for edges in (edge_index, hkconv.neighbors(edge_index, NODES)):
            with pytest.raises(InputError, match="edge_weight"):
                read(edges, torch.tensor(weight), (NODES, NODES))


def test_same_edge_index_is_sorted_once_over_calls_and_layers(sorts):
    x, edge_index = cloud(), example()
    for conv in (layer("cpu"), layer("cpu", relative=False), layer("cpu", attention="distance")):
        for weight in (None, torch.rand(len(SOURCE), dtype=torch.float64)):
            conv(x, edge_index, weight)
    assert sorts == [len(SOURCE)]


@ignore_beta_warnings
@pytest.mark.parametrize("make", [EdgeIndex, to_torch_csr_tensor, to_torch_csc_tensor, lambda e: e.int()])
def test_every_kind_of_neighborhood_is_sorted_once(make, sorts):
    edge_index = make(torch.tensor([[0, 1, 2], [1, 2, 0]]))
    for _ in range(3):
        read_neighbors(edge_index, None, (3, 3))
    assert sorts == [3]


def test_structure_made_beforehand_is_never_sorted_again(sorts):
    found = hkconv.neighbors(example(), NODES)
    sorts.clear()
    layer("cpu")(cloud(), found)
    assert sorts == []


def test_equal_tensor_is_sorted_again(sorts):
    edge_index = example()
    for same in (edge_index, edge_index.clone(), edge_index):
        read_neighbors(same, None, (NODES, NODES))
    assert len(sorts) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda edges: edges[0].copy_(torch.tensor(TARGET)),
        lambda edges: edges.copy_(edges.flip(0)),
        lambda edges: edges.__setitem__((1, 0), 0),
        lambda edges: edges.clamp_(max=3),
    ],
)
@pytest.mark.parametrize("kind", [torch.clone, EdgeIndex])
def test_change_in_place_is_noticed(change, kind):
    edge_index = kind(example())
    read_neighbors(edge_index, None, (NODES, NODES))
    change(edge_index)
    found, _ = read_neighbors(edge_index, None, (NODES, NODES))
    assert_structure(found, *edge_index.tolist(), (NODES, NODES))


def test_change_in_place_out_of_range_is_noticed():
    edge_index = example()
    read_neighbors(edge_index, None, (NODES, NODES))
    edge_index[0, 3] = NODES
    with pytest.raises(InputError, match="sources"):
        read_neighbors(edge_index, None, (NODES, NODES))


def test_another_size_is_noticed():
    edge_index = example()
    for size in ((7, 7), (8, 7), (7, 9), (7, 7)):
        assert_structure(read_neighbors(edge_index, None, size)[0], SOURCE, TARGET, size)
    with pytest.raises(InputError, match="targets"):
        read_neighbors(edge_index, None, (7, 5))


@ignore_beta_warnings
@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("layout", SPARSE)
def test_changed_values_of_a_sparse_matrix_are_respected(layout, backend):
    x, dense = cloud(4), adjacency()
    matrix = SPARSE[layout](dense).coalesce() if layout == "coo" else SPARSE[layout](dense)
    conv = layer(backend)
    before = conv(x, matrix)
    matrix.values().copy_(matrix.values().flip(0))
    after = conv(x, matrix)
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, conv(x, SPARSE[layout](matrix.to_dense())))


@ignore_beta_warnings
@pytest.mark.parametrize("layout", SPARSE)
def test_negative_values_of_a_remembered_sparse_matrix_are_refused(layout):
    matrix = SPARSE[layout](adjacency())
    read_neighbors(matrix, None, (4, 4))
    matrix = matrix.mul_(-1)
    with pytest.raises(InputError, match="non-negative"):
        read_neighbors(matrix, None, (4, 4))


@pytest.mark.parametrize("kind", [torch.clone, EdgeIndex])
def test_remembering_keeps_no_tensor_alive(kind):
    edge_index = kind(example())
    found = weakref.ref(edge_index)
    read_neighbors(edge_index, None, (NODES, NODES))
    del edge_index
    gc.collect()
    assert found() is None


def test_new_tensor_in_the_place_of_a_dead_one_is_not_mistaken_for_it():
    for node in range(100):
        edge_index = torch.tensor([[node], [99 - node]])
        found, _ = read_neighbors(edge_index, None, (100, 100))
        assert_structure(found, [node], [99 - node], (100, 100))
        del edge_index, found


def test_a_structure_lives_where_it_is_as_long_as_its_graph(sorts):
    """A CUDA graph of one batch reads it after any number of other batches."""
    graphs = [example() for _ in range(100)]
    for _ in range(2):
        structures = [weakref.ref(read_neighbors(graph, None, (NODES, NODES))[0].source) for graph in graphs]
    assert len(sorts) == len(graphs)
    del graphs[:90]
    gc.collect()
    assert [structure() is not None for structure in structures] == [False] * 90 + [True] * 10


@pytest.mark.parametrize("kind", [torch.clone, EdgeIndex, lambda e: hkconv.neighbors(e, NODES)])
@pytest.mark.parametrize("options", [{}, {"attention": "distance"}], ids=["weights", "attention"])
def test_weights_of_a_remembered_structure_follow_their_edges(kind, options):
    x, edge_index = cloud(), kind(example())
    fused, reference = layer("cpu", **options), layer("reference", **options)
    for _ in range(3):
        weight = torch.rand(len(SOURCE), dtype=torch.float64, requires_grad=True)
        ours, expected = fused(x, edge_index, weight), reference(x, edge_index, weight)
        torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)
        slope = torch.randn_like(ours)
        ours, expected = (torch.autograd.grad((out * slope).sum(), weight)[0] for out in (ours, expected))
        torch.testing.assert_close(ours, expected, rtol=1e-8, atol=1e-8)


@ignore_beta_warnings
@pytest.mark.parametrize("layout", SPARSE)
def test_sparse_weights_of_a_remembered_structure_follow_their_edges(layout):
    x, matrix = cloud(4), SPARSE[layout](adjacency())
    fused, reference = layer("cpu"), layer("reference")
    for weight in (None, torch.rand(11, dtype=torch.float64), None):
        torch.testing.assert_close(fused(x, matrix, weight), reference(x, matrix, weight), rtol=1e-9, atol=1e-9)


def test_structure_remembered_in_inference_mode_serves_training():
    x, edge_index, conv = cloud(), example(), layer("cpu")
    with torch.inference_mode():
        conv(x, edge_index)
    conv(x, edge_index).sum().backward()
    assert conv.linear.weight.grad is not None


@pytest.mark.parametrize("kind", [torch.clone, EdgeIndex])
def test_edges_made_in_inference_mode(kind):
    with torch.inference_mode():
        x, edge_index = cloud(), kind(example())
        torch.testing.assert_close(layer("cpu")(x, edge_index), layer("reference")(x, edge_index))


@ignore_beta_warnings
@pytest.mark.parametrize("layout", SPARSE)
def test_sparse_matrix_is_sorted_once(layout, sorts):
    matrix = SPARSE[layout](adjacency())
    for _ in range(5):
        read_neighbors(matrix, None, (4, 4))
    assert sorts == [11]


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_uncoalesced_matrix_is_left_as_it_was(backend):
    matrix = torch.sparse_coo_tensor([[1, 0, 1], [0, 1, 0]], [1.0, 2.0, 3.0], (2, 2), dtype=torch.float64)
    layer(backend)(cloud(2), matrix)
    assert not matrix.is_coalesced()
    assert matrix.coalesce().values().tolist() == [2.0, 4.0]


@ignore_beta_warnings
@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("layout", SPARSE)
def test_gradients_reach_the_values_of_a_sparse_matrix(layout, backend):
    dense = adjacency().requires_grad_()
    (gradient,) = torch.autograd.grad(layer(backend)(cloud(4), SPARSE[layout](dense))[:, 1].sum(), dense)
    assert gradient.abs().max() > 0


@given(graphs())
@settings(deadline=None, max_examples=50, derandomize=True)
def test_flipped_structure_has_every_edge_the_other_way(graph):
    edges, size = graph
    edge_index = torch.tensor([[s for s, _ in edges], [t for _, t in edges]]).long()
    found = flip(hkconv.neighbors(edge_index, size))
    assert found.size == size[::-1]
    assert all(part.dtype == torch.int32 for part in found)
    source, target, order = found.edges(torch.arange(len(edges)))
    assert torch.equal(torch.stack([target, source]), edge_index[:, order])
    # The way from the order by target to the order by source.
    assert torch.equal(source[found.by_source.long()], source.sort(stable=True).values)
    assert torch.equal(target[found.by_source.long()], found.target_by_source.long())
    assert torch.equal(found.source_pointer.diff().long(), torch.bincount(source, minlength=size[1]))


def test_flipped_twice_is_the_same_graph_and_is_kept_as_long_as_its_structure():
    edge_index = example()
    found = hkconv.neighbors(edge_index, NODES)
    flipped = flip(found)
    assert flip(found) is flipped
    assert all(torch.equal(*parts) for parts in zip(flip(flipped), found))
    gone = weakref.ref(flipped.by_source)
    del found, flipped
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_layers_take_a_flipped_structure(backend):
    x, weight = cloud(), torch.rand(len(SOURCE), dtype=torch.float64)
    found = flip(hkconv.neighbors(example(), NODES))
    conv = layer(backend)
    torch.testing.assert_close(conv(x, found, weight), conv(x, example().flip(0), weight))


@pytest.mark.parametrize("weighted", [False, True])
def test_loops_are_added_beside_the_edges_that_are_there(weighted):
    edge_index, weight = torch.tensor([[0, 1, 2], [1, 1, 0]]), torch.tensor([0.5, 2.0, 3.0]) if weighted else None
    loops = [(node, node, 1.0) for node in range(3)]
    edges = [(0, 1, 0.5), (1, 1, 2.0), (2, 0, 3.0)] if weighted else [(0, 1, 1.0), (1, 1, 1.0), (2, 0, 1.0)]
    for form in (edge_index, hkconv.neighbors(edge_index, 3)):
        found, weights = with_loops(form, weight, 3)
        listed = [1.0] * 6 if weights is None else weights.tolist()
        assert sorted(zip(*found.tolist(), listed)) == sorted(edges + loops)
    assert with_loops(edge_index, weight, 3)[0] is with_loops(edge_index, weight, 3)[0]
    sparse = torch.sparse_coo_tensor(edge_index.flip(0), torch.tensor([0.5, 2.0, 3.0]), (3, 3))
    found, weights = with_loops(sparse, None, 3)
    assert sorted(zip(*found.tolist(), weights.tolist())) == sorted([(0, 1, 0.5), (1, 1, 2.0), (2, 0, 3.0), *loops])


def test_structure_with_loops_is_sorted_once_while_the_tensor_is_the_same():
    edge_index = example()
    first, _ = neighbors_with_loops(edge_index, None, NODES, torch.float32)
    assert neighbors_with_loops(edge_index, None, NODES, torch.float64)[0] is first
    assert neighbors_with_loops(edge_index.clone(), None, NODES, torch.float32)[0] is not first
    assert neighbors_with_loops(edge_index, None, NODES + 1, torch.float32)[0] is not first


def test_structure_with_loops_has_one_more_edge_a_node_which_weighs_1():
    edge_index, weight = torch.tensor([[2, 0, 0], [1, 2, 0]]), torch.tensor([5.0, 6.0, 7.0])
    found, sorted_weight = neighbors_with_loops(edge_index, weight, 3, torch.float64)
    assert_structure(found, [2, 0, 0, 0, 1, 2], [1, 2, 0, 0, 1, 2], (3, 3))
    assert sorted_weight.dtype == torch.float64 and sorted_weight.tolist() == [7, 1, 5, 1, 6, 1]
    assert neighbors_with_loops(edge_index, weight, 3, torch.float64)[1] is sorted_weight
    assert neighbors_with_loops(edge_index, None, 3, torch.float64)[1] is None


@pytest.mark.parametrize("weight", [torch.ones(4), torch.tensor([1.0, -1.0, 1.0])])
def test_weights_of_a_structure_with_loops_are_checked(weight):
    with pytest.raises(InputError, match="edge_weight must"):
        neighbors_with_loops(torch.tensor([[2, 0, 0], [1, 2, 0]]), weight, 3, torch.float32)


@pytest.mark.parametrize("kind", [HyboNetConv, HGCNConv])
def test_edges_and_weights_written_in_place_are_seen(kind, generator):
    conv = kind(2, 2)
    x = torch.nn.functional.pad(torch.randn(3, 2, generator=generator), (1, 0))
    x[:, 0] = (1 + x[:, 1:].square().sum(-1)).sqrt()
    edge_index, weight = torch.tensor([[0, 1], [1, 2]]), torch.rand(2, generator=generator)
    conv(x, edge_index, weight)
    edge_index[0, 0], weight[1] = 2, 0.9
    assert torch.equal(conv(x, edge_index, weight), conv(x, edge_index.clone(), weight.clone()))


@pytest.mark.parametrize("kind", [HyboNetConv, HGCNConv])
def test_takes_every_form_of_edges(kind, generator):
    conv = kind(2, 2)
    x = torch.nn.functional.pad(torch.zeros(3, 2), (1, 0), value=1.0)
    edge_index, weight = torch.tensor([[0, 1], [1, 2]]), torch.rand(2, generator=generator)
    matrix = to_torch_csr_tensor(edge_index, weight, (3, 3)).t().to_sparse_csr()
    expected = conv(x, edge_index, weight)
    torch.testing.assert_close(conv(x, edge_index.int(), weight), expected)
    torch.testing.assert_close(conv(x, matrix), expected)
    with torch.inference_mode():
        torch.testing.assert_close(conv(x, edge_index.clone(), weight.clone()), expected)


BAD_INDICES = [25, -1, 10**8, 2**32 + 3]


@pytest.mark.parametrize(("backend", "compiler"), [("cpu", "inductor"), ("reference", "aot_eager")])
def test_compiled_layers_refuse_indices_outside_of_the_graph_and_weights_that_no_centroid_has(backend, compiler):
    x, edge_index, weight = cloud(20), torch.randint(0, 20, (2, 60)), torch.rand(60)
    conv = layer(backend)
    compiled = torch.compile(conv, fullgraph=True, dynamic=False, backend=compiler)
    torch.testing.assert_close(compiled(x, edge_index, weight), conv(x, edge_index, weight))
    for row in (0, 1):
        for bad in BAD_INDICES:
            spoiled = edge_index.clone()
            spoiled[row, 3] = bad
            with pytest.raises(RuntimeError, match=rf"edge_index\[{row}\]"):
                compiled(x, spoiled, weight)
            with pytest.raises(InputError, match=rf"edge_index\[{row}\].*\[0, 20\).*{bad}"):
                conv(x, spoiled, weight)
    for bad in (-1.0, torch.inf, torch.nan):
        with pytest.raises(RuntimeError, match="edge_weight"):
            compiled(x, edge_index, weight.index_fill(0, torch.tensor([4]), bad))


@pytest.mark.parametrize("size", [(1, 1), (5, 3), (1, 4)], ids=str)
def test_until_a_late_refusal_is_heard_no_index_reaches_out_of_the_graph(size, monkeypatch):
    """What is recorded, compiled or captured, may read the structure before its assertion is looked at."""
    refused = []
    monkeypatch.setattr(module, "_is_deferred", lambda values: True)
    monkeypatch.setattr(torch, "_assert_async", lambda holds, words: refused.append(not holds))
    found = hkconv.neighbors(torch.tensor([[0, -1, 7, 0, 1], [0, 0, 1, -1, 7]]), size)
    assert refused == [True, True]
    expected = [[0, 0, 7, 0, 1], [0, 0, 1, 0, 7]]
    source, target = ([min(index, count - 1) for index in row] for row, count in zip(expected, size))
    assert_structure(found, source, target, size)


def test_a_structure_lists_every_hub_and_no_room_for_others(monkeypatch):
    """As on a GPU, where neighborhoods are cut into chunks."""
    monkeypatch.setattr(module, "_chunks", chunks.chunks_of)
    monkeypatch.setattr(chunks, "SHORTEST", 4)
    monkeypatch.setattr(chunks, "LONGEST", 4)
    target = [0] * 9 + [1] * 4 + [3] * 5
    source = list(range(18))
    found = hkconv.neighbors(torch.tensor([source, target]), (18, 5))
    assert found.target_hubs.tolist() == [[0, 0, 3], [3, 3, 5]]
    assert found.source_hubs.tolist() == []


@ignore_beta_warnings
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_sparse_matrices_with_columns_outside_of_them_are_refused(backend):
    pointer, columns = torch.tensor([0, 1, 2, 2]), torch.tensor([0, 30])
    matrix = torch.sparse_csr_tensor(pointer, columns, torch.ones(2), (3, 3), check_invariants=False)
    with pytest.raises(InputError, match=r"sources.*30"):
        layer(backend)(cloud(3), matrix)


@pytest.mark.parametrize("bad", [-1.0, torch.inf, -torch.inf, torch.nan])
@pytest.mark.parametrize("learned", [False, True])
def test_weights_that_no_centroid_has_are_refused(bad, learned, dtype):
    weight = torch.ones(len(SOURCE), dtype=dtype)
    weight[4] = bad
    with pytest.raises(InputError, match="edge_weight must be non-negative and finite"):
        layer()(cloud(), example(), weight.requires_grad_(learned))


def test_writing_a_bad_weight_into_one_that_was_good_is_noticed():
    weight = torch.ones(len(SOURCE))
    layer()(cloud(), example(), weight)
    weight[0] = -1
    with pytest.raises(InputError, match="edge_weight"):
        layer()(cloud(), example(), weight)


@pytest.mark.parametrize("edges", [11, 10_000])
@pytest.mark.parametrize("writer", [lambda t: t.data, lambda t: torch.from_numpy(t.numpy())], ids=["data", "numpy"])
def test_edges_rewritten_behind_pytorch_are_read_anew(edges, writer):
    conv, x = layer(), cloud(50)
    edge_index, other = torch.randint(0, 50, (2, edges)), torch.randint(0, 50, (2, edges))
    before = conv(x, edge_index)
    writer(edge_index).copy_(other)
    with warnings.catch_warnings():
        warnings.simplefilter("error" if edges <= 4096 else "ignore")
        after = conv(x, edge_index)
    assert not torch.allclose(before, after)
    assert torch.equal(after, conv(x, other))


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_coo])
def test_the_values_of_a_sparse_matrix_are_checked_once_and_the_matrix_is_let_go(layout, monkeypatch):
    matrix = torch.eye(NODES, dtype=torch.float64).to_sparse(layout=layout)
    looked_at, check = [], module._check_range
    monkeypatch.setattr(module, "_check_range", lambda values, *rest: (looked_at.append(rest), check(values, *rest)))
    for _ in range(3):
        module.find_neighbors(matrix, None, (NODES, NODES))
    assert sum("edge_weight" in wanted for _, wanted in looked_at) == 1
    neighbors_with_loops(matrix, None, NODES, torch.float64)
    gone = weakref.ref(matrix)
    del matrix
    gc.collect()
    assert gone() is None


@given(graphs())
@settings(deadline=None, max_examples=50, derandomize=True)
def test_unfolded_structure_is_that_of_the_same_edges_with_a_source_each(graph):
    edges, size = graph
    edge_index = torch.tensor([[s for s, _ in edges], [t for _, t in edges]]).long()
    found = hkconv.neighbors(edge_index, size)
    own_sources = torch.stack([torch.arange(len(edges)), found.target.long()])
    expected = hkconv.neighbors(own_sources, (len(edges), size[1]))
    assert all(torch.equal(*parts) and parts[0].dtype == torch.int32 for parts in zip(unfold(found), expected))
    assert unfold(found) is unfold(found)


@pytest.mark.parametrize("read", [read_edges, read_neighbors])
def test_edges_that_are_no_tensor_are_named(read):
    with pytest.raises(InputError, match=r"^edge_index is a NumPy array; pass torch.from_numpy\(edge_index\)$"):
        read(np.zeros((2, 3), np.int64), None, (3, 3))
    with pytest.raises(InputError, match=r"^edge_index must be a tensor, got a list$"):
        read([[0, 1], [1, 0]], None, (3, 3))
