import re

import pytest
import torch
from fuzzing import fuzzed, input_errors_alone
from hypothesis import strategies as st

from hkconv.data.own.features import Feature
from hkconv.data.own.tu_folders import read_tu_folder
from hkconv.data.preparation import direct_edges
from hkconv.errors import InputError

FILES = {
    "A": "1, 2\n2, 1\n4, 3\n3, 4\n",
    "graph_indicator": "1\n1\n2\n2\n2\n",
    "graph_labels": "1\n-1\n",
    "node_labels": "7\n0\n7\n7\n10\n",
    "node_attributes": "0.5, 1\n1, 1\n2, 1\n3, 1\n4, -1\n",
}


@pytest.fixture
def folder(tmp_path):
    for name, content in FILES.items():
        (tmp_path / f"TOY_{name}.txt").write_text(content)
    return tmp_path


def test_graphs_labels_and_features(folder):
    own = read_tu_folder(folder)
    first, second = own.graphs
    assert (own.task, own.ids, own.labels) == ("graph", ["1", "2"], ["1", "-1"])
    assert own.features == (
        Feature("node label", ("0", "7", "10")),
        Feature("node attribute 1"),
        Feature("node attribute 2"),
    )
    assert first.x.tolist() == [[0, 1, 0, 0.5, 1], [1, 0, 0, 1, 1]]
    assert second.x.tolist() == [[0, 1, 0, 2, 1], [0, 1, 0, 3, 1], [0, 0, 1, 4, -1]]
    assert first.edge_index.tolist() == [[0, 1], [1, 0]] and second.edge_index.tolist() == [[1, 0], [0, 1]]


def test_without_labels_and_attributes_the_degree_is_the_feature(folder):
    for name in ("node_labels", "node_attributes", "graph_labels"):
        (folder / f"TOY_{name}.txt").unlink()
    own = read_tu_folder(folder)
    assert own.features == (Feature("degree", ("0", "1")),) and own.labels == ["", ""]
    assert own.graphs[1].x.tolist() == [[0, 1], [0, 1], [1, 0]]
    (folder / "TOY_A.txt").write_text(FILES["A"] + "1,2\n")
    with pytest.raises(InputError, match="line 1, column degree: category '2' was not there in training; known: 0, 1"):
        read_tu_folder(folder, own.features)


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("A", "1,2\n2,3\n", "TOY_A.txt, line 2: the edge joins two different graphs"),
        ("A", "1,6\n", "TOY_A.txt, line 1, column node 2 must be a node's number, from 1 to 5, got '6'"),
        ("A", "1,0\n", "column node 2 must be a node's number, from 1 to 5, got '0'"),
        ("A", "1,1.5\n", "column node 2 must be a node's number, from 1 to 5, got '1.5'"),
        ("A", "1\n", "TOY_A.txt, line 1 must have 2 columns, got 1"),
        ("graph_indicator", "1\n3\n", "TOY_graph_indicator.txt, line 2, column graph: graphs must follow one another"),
        ("graph_indicator", "1\n2\n1\n", "TOY_graph_indicator.txt, line 3, column graph: graphs must follow"),
        ("graph_indicator", "", "TOY_graph_indicator.txt is empty"),
        ("graph_indicator", None, "TOY_graph_indicator.txt cannot be read"),
        ("graph_labels", "1\n", "TOY_graph_labels.txt has 1 lines, but there are 2 graphs"),
        ("node_labels", "1\n", "TOY_node_labels.txt has 1 lines, but there are 5 nodes"),
        (
            "node_attributes",
            FILES["node_attributes"].replace("2, 1", "x, 1"),
            "line 3, column node attribute 1: 'x' is",
        ),
    ],
)
def test_faults_are_named_by_file_and_line(folder, file, content, message):
    path = folder / f"TOY_{file}.txt"
    if content is None:
        path.unlink()
    else:
        path.write_text(content)
    with pytest.raises(InputError, match=re.escape(message)):
        read_tu_folder(folder)


@pytest.mark.parametrize(("name", "num_labels"), [("PTC", 19), ("ENZYMES", 3)])
def test_a_published_set_is_what_pyg_makes_of_it(real_data, load_real, name, num_labels):
    """PyG has the attributes before the labels."""
    own = read_tu_folder(real_data / "tu" / name)
    published = load_real(name.lower(), num_splits=1)
    assert len(own.graphs) == len(published.graphs)
    for ours, theirs in zip(own.graphs, published.graphs):
        assert torch.equal(ours.x, theirs.x.roll(num_labels, dims=1))
        assert torch.equal(direct_edges(ours, "both").edge_index, theirs.edge_index)
    numbers = {name: number for number, name in enumerate(sorted(set(own.labels), key=float))}
    assert [numbers[label] for label in own.labels] == published.labels.tolist()


LINES = st.lists(st.sampled_from(["1", "2", "1, 2", "0", "-1", "x", "", "1,", "1e300", "nan", "9" * 30, '"', "\x00"]))


@fuzzed(contents=st.fixed_dictionaries({name: LINES.map("\n".join) | st.just(text) for name, text in FILES.items()}))
def test_whatever_the_files_hold_only_input_errors_come_out(folder, contents):
    for name, content in contents.items():
        (folder / f"TOY_{name}.txt").write_text(content)
    with input_errors_alone():
        read_tu_folder(folder)


def test_no_name_leads_out_of_the_folder(tmp_path):
    """The names of the other files follow from one in the folder, which holds no way out."""
    (tmp_path / "evil_A.txt").write_text("1, 2\n")
    inside = tmp_path / "inside"
    inside.mkdir()
    with pytest.raises(InputError, match=r"has no file NAME_A\.txt"):
        read_tu_folder(inside)
    (inside / "TOY_A.txt").symlink_to(tmp_path / "evil_A.txt")
    with pytest.raises(InputError, match=re.escape(f"{inside / 'TOY_graph_indicator.txt'} cannot be read")):
        read_tu_folder(inside)
