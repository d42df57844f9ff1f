import io
import re
import zipfile

import numpy as np
import pytest
from fuzzing import damaged, fuzzed
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays, scalar_dtypes

from hkconv.data.own.arrays import KNOWN, graph_of_arrays, ids_of_array, labels_of_array, read_archive
from hkconv.data.own.labels import Labels, label_numbers
from hkconv.errors import InputError

X = np.array([[1, 2], [3, 4], [5, 6]], dtype=np.int16)
EDGES = np.array([[0, 1], [1, 2]], dtype=np.uint8)
FLOATS = np.array([[1.0, 2], [3, 4], [5, 6]])
ARCHIVED_EDGES = np.array([[0, 1], [1, 2]])


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
        ({"edge_attr": np.ones((3, 2))}, "edge_attr of g must have a row of numbers for each of 2 edges, got float64"),
        ({"edge_attr": np.ones((2, 0))}, "edge_attr of g must have a row of numbers for each of 2 edges, got float64"),
        ({"edge_attr": np.array([[1], [np.nan]])}, "edge_attr of g must be finite numbers, but row 1, column 0 is nan"),
        ({"edge_weight": np.array([1, np.inf])}, "edge_weight of g must be finite numbers, but row 1 is inf"),
    ],
)
def test_faulty_graphs(changes, message):
    arrays = {"x": X, "edge_index": EDGES, **changes}
    with pytest.raises(InputError, match=re.escape(message)):
        graph_of_arrays({name: array for name, array in arrays.items() if array is not None}, "g")


def test_labels_and_ids():
    assert labels_of_array(np.array([3, -1, 0]), 3, "g") == Labels(["3", "", "0"])
    assert labels_of_array(np.array(["a", " ", "b "]), 3, "g") == Labels(["a", "", "b"])
    assert labels_of_array(np.array([[1], [0], [1]]), 3, "g") == Labels(["1", "0", "1"])
    assert ids_of_array(np.array([2.0, 2.5, 7]), 3, "g") == ["2", "2.5", "7"]
    assert ids_of_array(np.array([b"a", b"b"]), 2, "g") == ["a", "b"]
    with pytest.raises(InputError, match="y of g must be 3 numbers or names, got float64"):
        labels_of_array(np.zeros(4), 3, "g")
    with pytest.raises(InputError, match="ids of g: 'a' of row 2 was already in row 0"):
        ids_of_array(np.array(["a", "b", "a"]), 3, "g")
    with pytest.raises(InputError, match="ids of g: that of row 1 is empty"):
        ids_of_array(np.array([1, np.nan]), 2, "g")


def saved(folder, **found):
    np.savez(folder / "graph.npz", **found)
    return folder / "graph.npz"


def test_a_graph_with_all_there_can_be(tmp_path):
    masks = {f"{name}_mask": np.eye(3, dtype=bool)[place] for place, name in enumerate(("train", "val", "test"))}
    own = read_archive(
        saved(
            tmp_path,
            x=FLOATS,
            edge_index=ARCHIVED_EDGES,
            y=np.array([4, 9, -1]),
            edge_weight=[0.5, 1],
            ids=["a", "b", "c"],
            other=[1],
            **masks,
        )
    )
    (graph,) = own.graphs
    assert graph.x.tolist() == FLOATS.tolist() and graph.edge_index.tolist() == ARCHIVED_EDGES.tolist()
    assert graph.edge_weight.tolist() == [0.5, 1]
    assert (own.task, own.ids, own.labels) == ("node", ["a", "b", "c"], ["4", "9", ""])
    assert [{name: part.tolist() for name, part in split.items()} for split in own.splits] == [
        {"train": [0], "val": [1], "test": [2]}
    ]


def test_the_names_of_published_archives(tmp_path):
    masks = {f"{name}_masks": np.eye(3, dtype=bool)[[place, 2 - place]] for place, name in enumerate(("train", "val"))}
    masks["test_masks"] = np.zeros((2, 3), dtype=bool)
    own = read_archive(saved(tmp_path, node_features=FLOATS, edges=ARCHIVED_EDGES.T, node_labels=[0, 1, 0], **masks))
    assert own.graphs[0].edge_index.tolist() == ARCHIVED_EDGES.tolist() and own.labels == ["0", "1", "0"]
    assert own.ids == ["0", "1", "2"]
    assert [split["train"].tolist() for split in own.splits] == [[0], [2]]


def test_pickles_are_not_opened(tmp_path):
    class Bomb:
        def __reduce__(self):
            return open, (str(tmp_path / "exploded"), "w")

    np.savez(tmp_path / "graph.npz", x=np.array([[Bomb()]], dtype=object), edge_index=ARCHIVED_EDGES)
    with pytest.raises(InputError, match=r"graph.npz is not a valid \.npz file of plain arrays"):
        read_archive(tmp_path / "graph.npz")
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ({"x": FLOATS}, "graph.npz must hold edge_index, got x"),
        ({"x": FLOATS, "edge_index": ARCHIVED_EDGES, "y": [0, 1]}, "y of "),
        (
            {"x": FLOATS, "edge_index": ARCHIVED_EDGES, "train_mask": [True, False, False]},
            "graph.npz must hold val_mask",
        ),
    ],
)
def test_faulty_archives(tmp_path, found, message):
    with pytest.raises(InputError, match=re.escape(message)):
        read_archive(saved(tmp_path, **found))


def read_or_refuse(path):
    try:
        own = read_archive(path)
    except InputError as error:
        assert str(path) in str(error)
        return
    assert own.graphs[0].x.isfinite().all() and len(own.labels) == len(own.ids) == own.graphs[0].x.size(0)


def archived(**found):
    buffer = io.BytesIO()
    np.savez(buffer, **found)
    return buffer.getvalue()


@fuzzed(content=damaged(archived(x=FLOATS, edge_index=ARCHIVED_EDGES)))
def test_damaged_archives_give_input_errors_alone(tmp_path, content):
    path = tmp_path / "fuzzed.npz"
    path.write_bytes(content)
    read_or_refuse(path)


NUMBERS = scalar_dtypes().filter(lambda dtype: dtype.kind in "biufU")


@fuzzed(
    found=st.dictionaries(
        st.sampled_from(KNOWN),
        NUMBERS.flatmap(lambda dtype: arrays(dtype, st.sampled_from([(), (2,), (2, 2), (0, 2)]))),
    )
)
def test_arrays_of_any_kind_give_input_errors_alone(tmp_path, found):
    path = tmp_path / "fuzzed.npz"
    np.savez(path, **found)
    read_or_refuse(path)


def test_a_header_that_lies_about_its_size(tmp_path):
    header = b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little")
    text = b"{'descr': '<f8', 'fortran_order': False, 'shape': (999999999999999, 99), }"
    with zipfile.ZipFile(tmp_path / "graph.npz", "w") as archive:
        archive.writestr("x.npy", header + text.ljust(117) + b"\n" + b"1234")
    read_or_refuse(tmp_path / "graph.npz")


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_floats_are_numbers_to_predict(shape, dtype):
    y = np.array([1.5, np.nan, -2], dtype=str(dtype).removeprefix("torch.")).reshape(shape)
    found = labels_of_array(y, 3, "g")
    assert (found.metric, found.names) == ("R2", ("target",))
    np.testing.assert_array_equal(label_numbers(*found), np.array([[1.5], [np.nan], [-2]], dtype=np.float32))


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, bool])
def test_columns_of_zeros_and_ones_are_answers(kind):
    y = np.array([[0, 1], [1, 1], [1, 0]], dtype=kind)
    expected = y.astype(np.float32)
    if kind in (np.float32, np.float64):
        y[1, 0] = expected[1, 0] = np.nan
    found = labels_of_array(y, 3, "g")
    assert (found.metric, found.names) == ("ROC-AUC", ("0", "1"))
    np.testing.assert_array_equal(label_numbers(*found), expected)
    one = labels_of_array(np.array([[0.0], [1.0], [np.nan]]), 3, "g")
    assert (one.metric, one.words) == ("ROC-AUC", ["0", "1", ""])


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.array([0.0, 1.0, 1.0]), "y of g are floats of 0 and 1 alone: make them whole numbers, which are classes"),
        (np.array([0.5, np.inf, 1.0]), "y of g must be finite numbers, but row 1 is inf"),
        (np.array([0.5, 1e300, 1.0]), "y of g must be finite numbers, but row 1 is 1e+300"),
        (np.array([[0.5, 1], [1, 1], [0, 0]]), "y of g has 2 columns: they must be answers to questions, 0, 1 or nan"),
        (np.zeros((3, 0)), "y of g must be 3 numbers or names, got float64 of shape (3, 0)"),
    ],
)
def test_faulty_numbers_and_answers(y, message):
    with pytest.raises(InputError, match=f"^{re.escape(message)}"):
        labels_of_array(y, 3, "g")
