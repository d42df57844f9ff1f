import re

import numpy as np
import pytest

from hkconv.data.own.arrays import graph_of_arrays, ids_of_array, labels_of_array
from hkconv.errors import InputError

X = np.array([[1, 2], [3, 4], [5, 6]], dtype=np.int16)
EDGES = np.array([[0, 1], [1, 2]], dtype=np.uint8)


def test_graph():
    graph = graph_of_arrays({"x": X, "edge_index": EDGES, "edge_weight": np.array([1, 2])}, "g")
    assert graph.x.tolist() == [[1, 2], [3, 4], [5, 6]] and str(graph.x.dtype) == "torch.float32"
    assert graph.edge_index.tolist() == [[0, 1], [1, 2]] and str(graph.edge_index.dtype) == "torch.int64"
    assert graph.edge_weight.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": None}, "g must hold x, got edge_index"),
        ({"x": np.array(["a"])}, "x of g must be numbers in 2 dimensions, got <U1 of shape (1,)"),
        ({"x": np.zeros((0, 2))}, "x of g must have at least one node and one feature, got shape (0, 2)"),
        ({"x": np.array([[0, 1], [np.nan, 0]])}, "x of g must be finite numbers, but row 1, column 0 is nan"),
        ({"x": np.array([[0, 1e300]])}, "x of g must be finite numbers, but row 0, column 1 is 1e+300"),
        ({"edge_index": np.zeros((2, 1))}, "edge_index of g must be whole numbers of shape (2, edges), got float64"),
        ({"edge_index": EDGES.T[:1]}, "edge_index of g must be whole numbers of shape (2, edges)"),
        ({"edge_index": np.array([[0], [3]])}, "edge_index of g must stay within [0, 3), but column 0 is (0, 3)"),
        ({"edge_index": np.array([[0], [2**64 - 1]], dtype=np.uint64)}, "but column 0 is (0, 18446744073709551615)"),
        ({"edge_weight": np.ones(3)}, "edge_weight of g must have a weight for each of 2 edges, got 3"),
        ({"edge_weight": np.array([1, -2])}, "edge_weight of g must be at least 0, but row 1 is -2"),
        ({"edge_weight": np.array([1, np.inf])}, "edge_weight of g must be finite numbers, but row 1 is inf"),
    ],
)
def test_faulty_graphs(changes, message):
    arrays = {"x": X, "edge_index": EDGES, **changes}
    with pytest.raises(InputError, match=re.escape(message)):
        graph_of_arrays({name: array for name, array in arrays.items() if array is not None}, "g")


def test_labels_and_ids():
    assert labels_of_array(np.array([3, -1, 0]), 3, "g") == ["3", "", "0"]
    assert labels_of_array(np.array(["a", " ", "b "]), 3, "g") == ["a", "", "b"]
    assert ids_of_array(np.array([2.0, 2.5, 7]), 3, "g") == ["2", "2.5", "7"]
    assert ids_of_array(np.array([b"a", b"b"]), 2, "g") == ["a", "b"]
    with pytest.raises(InputError, match="y of g must be 3 whole numbers or names, got float64"):
        labels_of_array(np.zeros(3), 3, "g")
    with pytest.raises(InputError, match="ids of g: 'a' of row 2 was already in row 0"):
        ids_of_array(np.array(["a", "b", "a"]), 3, "g")
    with pytest.raises(InputError, match="ids of g: that of row 1 is empty"):
        ids_of_array(np.array([1, np.nan]), 2, "g")
