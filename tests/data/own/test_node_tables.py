import math
import re
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from fuzzing import fuzzed
from hypothesis import strategies as st
from pyarrow import parquet

from hkconv.data.own.features import Feature
from hkconv.data.own.loading import load_own
from hkconv.data.own.node_tables import read_node_tables
from hkconv.errors import InputError

NODES = "id,label,age,split,colour\nana,cat,1,train,red\nbob,,2.5,,blue\n7,dog,-3,test,red\n"
EDGES = "source,target,weight\nana,bob,0.5\n7,ana,2\n7,7,0\n"


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "nodes.csv").write_text(NODES)
    (tmp_path / "edges.csv").write_text(EDGES)
    return tmp_path


def check_literally(own):
    (graph,) = own.graphs
    assert (own.task, own.ids, own.labels) == ("node", ["ana", "bob", "7"], ["cat", "", "dog"])
    assert graph.x.tolist() == [[1, 0, 1], [2.5, 1, 0], [-3, 0, 1]]
    assert graph.edge_index.tolist() == [[0, 2, 2], [1, 0, 2]]
    assert graph.edge_weight.tolist() == [0.5, 2, 0]
    assert own.features == (Feature("age"), Feature("colour", ("blue", "red")))
    assert {name: members.tolist() for name, members in own.splits[0].items()} == {"train": [0], "val": [], "test": [2]}


def test_features_edges_labels_and_split(folder):
    check_literally(read_node_tables(folder))


def test_a_renamed_column_of_labels_is_missed_by_its_name(folder):
    (folder / "nodes.csv").write_text(NODES.replace("id,label,", "id,class,"))
    with pytest.raises(InputError, match=r"have no labels in a column label \(there are class, age, colour\)"):
        load_own(folder)


def test_parquet(folder):
    columns = {
        "id": ["ana", "bob", "7"],
        "label": ["cat", None, "dog"],
        "age": [1, 2.5, -3],
        "split": ["train", None, "test"],
        "colour": pyarrow.array(["red", "blue", "red"]).dictionary_encode(),
    }
    parquet.write_table(pyarrow.table(columns), folder / "nodes.parquet")
    (folder / "nodes.csv").unlink()
    check_literally(read_node_tables(folder))


def test_ids_of_any_type(tmp_path):
    """Whole numbers in one file and, as pandas writes a column with a gap, floats in the other; and UUIDs."""
    parquet.write_table(pyarrow.table({"id": [2**60 + 1, 5], "f": [0.5, 1.5]}), tmp_path / "nodes.parquet")
    parquet.write_table(pyarrow.table({"source": [5.0, 5.0], "target": [5.0, 5.0]}), tmp_path / "edges.parquet")
    own = read_node_tables(tmp_path)
    assert own.ids == [str(2**60 + 1), "5"] and own.graphs[0].edge_index.tolist() == [[1, 1], [1, 1]]
    for path in tmp_path.iterdir():
        path.unlink()
    uuid = "123e4567-e89b-12d3-a456-426614174000"
    (tmp_path / "nodes.csv").write_text(f"id,f\n{uuid},1\n1.0,2\n1,3\n01,4\n")
    (tmp_path / "edges.csv").write_text(f"source,target\n1,{uuid}\n01,1.0\n")
    assert read_node_tables(tmp_path).graphs[0].edge_index.tolist() == [[2, 3], [0, 1]]


def test_a_graph_without_edges_labels_and_weights(folder):
    (folder / "nodes.csv").write_text("id,age\na,1\nb,2\n")
    (folder / "edges.csv").write_text("source,target\n")
    own = read_node_tables(folder)
    assert own.graphs[0].edge_index.shape == (2, 0) and not own.is_weighted
    assert own.labels == ["", ""] and own.splits is None


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("nodes.csv", "name,age\na,1\n", "nodes.csv, line 1, column id is missing; there are name, age"),
        (
            "nodes.csv",
            "id,label\na,1\n",
            "nodes.csv has no features: at least one column beside id, label, target, split",
        ),
        ("nodes.csv", "id,age\na,1\na,2\n", "nodes.csv, line 3, column id: 'a' was already in line 2"),
        (
            "nodes.csv",
            NODES.replace("test", "tset"),
            "nodes.csv, line 4, column split must be train, val, test or empty",
        ),
        ("nodes.csv", NODES.replace("5,,", "5,val,"), "nodes.csv, line 3, column split is val, but the label is empty"),
        ("edges.csv", "source\nana\n", "edges.csv, line 1, column target is missing"),
        (
            "edges.csv",
            "source,target,years\nana,bob,1\nana,7,long\n",
            "edges.csv, line 3, column years: 'long' is no number, but other cells of the column are",
        ),
        ("edges.csv", EDGES + "ana,eve,1\n", "edges.csv, line 5, column target: no node has the id 'eve'"),
        ("edges.csv", EDGES + ",ana,1\n", "edges.csv, line 5, column source is empty"),
        ("edges.csv", EDGES + "ana,ana,-1\n", "edges.csv, line 5, column weight must be a finite number of at least 0"),
        ("edges.csv", EDGES + "ana,ana,\n", "of at least 0, the cell is empty"),
        ("edges.csv", None, "has no edges.csv or edges.parquet"),
    ],
)
def test_faults_are_named_by_file_line_and_column(folder, file, content, message):
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content)
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        read_node_tables(folder)
    assert "\n" not in str(caught.value)


def test_other_columns_than_those_trained_on_are_refused(folder):
    features = read_node_tables(folder).features
    assert read_node_tables(folder, features).graphs[0].x.tolist() == [[1, 0, 1], [2.5, 1, 0], [-3, 0, 1]]
    (folder / "nodes.csv").write_text("id,age,colour,height\nana,1,red,3\n")
    with pytest.raises(
        InputError, match="line 1, column height is unknown; columns are id, label, target, split, age, colour"
    ):
        read_node_tables(folder, features)


CELLS = st.sampled_from(["ana", "7", "", "red", "train", "1e400", "-1", "0.5", "nan", '"', "\x00", "x\ny", "1" * 5000])


def lines_of(*columns):
    rows = st.lists(st.lists(CELLS, min_size=len(columns), max_size=len(columns)), max_size=3)
    heading = st.permutations(columns)
    return st.builds(lambda names, cells: "\n".join(map(",".join, [names, *cells])), heading, rows)


@fuzzed(nodes=st.just(NODES) | lines_of("id", "label", "split", "age"), edges=lines_of("source", "target", "weight"))
def test_whatever_the_cells_hold_only_input_errors_come_out(tmp_path, nodes, edges):
    folder = tmp_path
    (folder / "nodes.csv").write_text(nodes)
    (folder / "edges.csv").write_text(edges)
    try:
        (graph,) = read_node_tables(folder).graphs
    except InputError as error:
        assert str(folder) in str(error)
        return
    assert graph.x.isfinite().all() and bool((graph.edge_index < len(graph.x)).all())


KNOWN = "source,target,kind,years,weight\nana,bob,friend,2.5,1\n7,ana,rival,,2\n7,bob,friend,4,0.5\nbob,7,friend,1,1\n"


def test_other_columns_of_edges_are_their_attributes(folder):
    (folder / "edges.csv").write_text(KNOWN)
    own = read_node_tables(folder)
    assert own.edge_features == (Feature("kind", ("friend", "rival")), Feature("years"))
    expected = [[1, 0, 2.5], [0, 1, math.nan], [1, 0, 4], [1, 0, 1]]
    np.testing.assert_array_equal(own.graphs[0].edge_attr, np.array(expected, dtype=np.float32))
    assert own.graphs[0].edge_weight.tolist() == [1, 2, 0.5, 1] and own.num_edge_features == 3
    assert own.notes == ("edges: missing values: years 1; they count as the mean of all edges",)
    with pytest.raises(InputError, match=r"edges\.csv: values are missing in years 1"):
        read_node_tables(folder, missing="error")
    told = read_node_tables(folder, missing="category").graphs[0].edge_attr
    assert told.shape == (4, 4) and told[:, -1].tolist() == [0, 1, 0, 0]


def test_attributes_of_edges_are_read_as_those_that_were_trained_on(folder):
    (folder / "edges.csv").write_text(KNOWN)
    own = read_node_tables(folder)
    (folder / "edges.csv").write_text("years,source,kind,target\n1,ana,rival,7\n")
    again = read_node_tables(folder, own.features, edge_features=own.edge_features)
    assert again.graphs[0].edge_attr.tolist() == [[0, 1, 1]]
    for content, message in (
        ("years,source,target\n1,ana,7\n", "edges.csv, line 1, column kind is missing"),
        ("years,source,target,kind\n1,ana,7,foe\n", "line 2, column kind: category 'foe' was not there in training"),
        ("source,target,kind,years,hue\nana,7,rival,1,red\n", "edges.csv, line 1, column hue is unknown"),
    ):
        (folder / "edges.csv").write_text(content)
        with pytest.raises(InputError, match=message):
            read_node_tables(folder, own.features, edge_features=own.edge_features)
    with pytest.raises(InputError, match=r"edges\.csv, line 1, column kind is unknown"):
        read_node_tables(folder, own.features)


def test_a_column_of_names_of_edges_is_no_attribute(folder):
    (folder / "edges.csv").write_text("source,target,comment\nana,bob,met in Rome\n7,ana,a cousin\n")
    own = read_node_tables(folder)
    assert own.graphs[0].edge_attr is None and own.num_edge_features is None
    assert own.notes == ("edges: taken as names, different in nearly every row, not as features: comment",)


def test_a_table_of_edges_alone_leaves_their_attributes_out(folder):
    (folder / "edges.csv").write_text(KNOWN)
    (folder / "nodes.csv").unlink()
    own = read_node_tables(folder)
    assert own.task == "link" and own.graphs[0].edge_attr is None
    assert own.notes == ("links have no attributes, not used: kind, years",)
