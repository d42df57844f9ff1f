import io

import numpy as np
import pytest
from fuzzing import damaged, fuzzed, input_errors_alone
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays, scalar_dtypes

from hkconv.errors import InputError
from hkconv.viz.explorer.page import render_page
from hkconv.viz.explorer.scene import read_npz_scene


def lifted(space, curvature=-1.0):
    return np.concatenate([np.sqrt(-1 / curvature + (space**2).sum(1, keepdims=True)), space], 1)


@pytest.fixture
def space() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(6, 3))


@pytest.fixture
def save(tmp_path):
    def write(**arrays):
        np.savez(tmp_path / "mine.npz", **arrays)
        return tmp_path / "mine.npz"

    return write


def test_everything_that_a_file_can_hold(save, space):
    scene = read_npz_scene(
        save(
            **{"points/first": lifted(space, -2.0).astype(np.float32), "points/second": lifted(space[:, :2], -2.0)},
            **{"centers/second": lifted(space[:2, :2], -2.0), "kernel/first": lifted(space[:4], -2.0)},
            curvature=-2.0,
            labels=np.array([0, 1, 1, 0, -1, 0], np.int8),
            predictions=np.arange(6, dtype=np.uint32) % 2,
            edges=np.array([[0, 1], [1, 2]]),
            names=np.array(list("abcdef")),
            class_names=np.array(["no", "yes"]),
        )
    )
    first, second = scene.layers
    assert scene.title == "mine"
    assert [first.name, second.name] == ["first", "second"]
    assert first.curvature == second.curvature == -2.0
    assert first.centers is None and second.kernel is None
    assert np.allclose(first.points, lifted(space, -2.0), atol=1e-6)
    assert np.allclose(second.centers, lifted(space[:2, :2], -2.0))
    assert np.allclose(first.kernel, lifted(space[:4], -2.0))
    assert scene.labels.tolist() == [0, 1, 1, 0, -1, 0]
    assert scene.predictions.tolist() == [0, 1] * 3
    assert scene.edges.tolist() == [[0, 1], [1, 2]]
    assert scene.names == tuple("abcdef")
    assert scene.class_names == ("no", "yes")


def test_points_alone(save, space):
    scene = read_npz_scene(save(points=lifted(space)))
    assert scene.num_nodes == 6
    assert scene.class_names == ()
    assert scene.labels is scene.edges is scene.names is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"points": np.zeros(3)}, r"points of layer 'points' must have shape \(N, n\+1\), time first, got \(3,\)"),
        ({"points": np.ones((6, 4))}, "points of layer 'points' is off the manifold of curvature -1 .* row 0"),
        ({"points": np.full((6, 4), np.nan)}, "points of layer 'points' contains NaN or Inf, first in row 0"),
        ({"points": np.array(["a"])}, "points in .* must be numbers, got an array of <U1"),
        ({"centers": lifted(np.ones((2, 2)))}, "centers of layer 'points' must have 4 coordinates .* got 3"),
        ({"kernel": np.ones(3)}, r"kernel of layer 'points' must have two dimensions, got shape \(3,\)"),
        ({"labels": np.zeros(5, int)}, r"labels must be 6 whole numbers, one a node, got int64 of shape \(5,\)"),
        ({"labels": np.zeros(6)}, r"labels must be 6 whole numbers, one a node, got float64"),
        ({"labels": np.full(6, -2)}, "labels must be numbers of classes from 0 on, or -1, got -2"),
        ({"predictions": np.zeros((6, 1), int)}, r"predictions must be .* got int64 of shape \(6, 1\)"),
        (
            {"edges": np.zeros((3, 2), int)},
            r"edges must be whole numbers of shape \(2, E\), got int64 of shape \(3, 2\)",
        ),
        ({"edges": np.array([[0], [6]])}, "edges must join nodes 0 to 5, got 6"),
        ({"edges": np.array([[0], [-1]])}, "edges must join nodes 0 to 5, got -1"),
        ({"names": np.array(["a"])}, "names must be one for each of 6 nodes, got 1"),
        ({"names": np.array([["a"]])}, "names in .* must be a list of texts"),
        ({"labels": np.arange(6), "class_names": np.array(["a"])}, "class_names must name all 6 classes, got 1"),
        ({"curvature": np.float64(1)}, "curvature in .* must be one negative number, got 1.0"),
        ({"label": np.zeros(6, int)}, "has an unknown key 'label'; did you mean 'labels'?"),
        ({"centers/last": np.ones((1, 4))}, "has a key 'centers/last' but no 'points/last'"),
        ({"points/b": lifted(np.ones((2, 3)))}, "must have the points of the same nodes: 'points' has 6, 'b' has 2"),
        (
            {"names": np.array([{}], object)},
            "is not a valid .npz file of plain arrays: it holds Python objects",
        ),
    ],
)
def test_what_is_wrong_with_a_file(save, space, change, message):
    with pytest.raises(InputError, match=message):
        read_npz_scene(save(**{"points": lifted(space), **change}))


def test_files_that_are_something_else(save, space, tmp_path):
    with pytest.raises(InputError, match="has no embeddings: it needs a key 'points'"):
        read_npz_scene(save(labels=np.zeros(3, int)))
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(InputError, match=r"is not a valid \.npz file"):
        read_npz_scene(tmp_path / "text.npz")
    np.save(tmp_path / "single.npy", space)
    with pytest.raises(InputError, match=r"must be an \.npz file of named arrays, got a single array"):
        read_npz_scene(tmp_path / "single.npy")
    whole = save(points=lifted(space)).read_bytes()
    (tmp_path / "half.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"is not a valid \.npz file"):
        read_npz_scene(tmp_path / "half.npz")


KEYS = (
    "points",
    "points/a",
    "centers",
    "kernel",
    "curvature",
    "labels",
    "predictions",
    "edges",
    "names",
    "class_names",
)
KINDS = scalar_dtypes().filter(lambda dtype: dtype.kind in "biufcUSmM")
SHAPES = st.sampled_from([(), (1,), (3,), (3, 2), (2, 3), (0, 2), (3, 1), (1, 2, 3)])
SOUND = st.sampled_from([lifted(np.eye(3)), np.array([0, 1, 2]), np.array([[0, 1], [1, 2]]), np.float32(-2)])


@fuzzed(found=st.dictionaries(st.sampled_from(KEYS), SOUND | KINDS.flatmap(lambda dtype: arrays(dtype, SHAPES))))
def test_arrays_of_any_kind_give_input_errors_alone(save, found):
    with input_errors_alone():
        render_page(read_npz_scene(save(**{"points": lifted(np.eye(3)), **found})))


def archived():
    buffer = io.BytesIO()
    np.savez(buffer, points=lifted(np.eye(3)), labels=np.array([0, 1, 2]))
    return buffer.getvalue()


@fuzzed(content=damaged(archived()))
def test_a_damaged_file_gives_input_errors_alone(tmp_path, content):
    (tmp_path / "mine.npz").write_bytes(content)
    with input_errors_alone():
        read_npz_scene(tmp_path / "mine.npz")
