import re
import sys

import numpy as np
import pyarrow
import pytest
from fuzzing import damaged, fuzzed
from hypothesis import strategies as st
from pyarrow import parquet

from hkconv.data.own.tables import cell_text, find_table, read_bare_table, read_table
from hkconv.errors import InputError


def written(folder, content, name="table.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def refused(path, message):
    return pytest.raises(InputError, match="^" + re.escape(f"{path}{message}"))


def test_cells_keep_their_text_and_their_lines(tmp_path):
    """A signature, spaces, a quoted comma, a quoted line break, a blank line and text of other alphabets."""
    content = '\ufeffid , name\r\n1, "a, b"\r\n\r\n 2 ,"c\nd"\r\nü,\t日本 \r\n'
    table = read_table(written(tmp_path, content))
    assert table.columns == {"id": ["1", "2", "ü"], "name": ["a, b", "c\nd", "日本"]}
    assert [table.place(index, "id") for index in range(3)] == [
        f"{table.path}, line {number}, column id" for number in (2, 5, 6)
    ]


def test_spreadsheets_of_other_countries(tmp_path):
    """Semicolons with decimal commas, and tabs; a comma is no decimal point where it separates."""
    table = read_table(written(tmp_path, '\ufeffid;"a,b";c\r\n007;1,5;-,25e1\r\n8;2;"x; y"\r\n'))
    assert table.columns == {"id": ["007", "8"], "a,b": ["1,5", "2"], "c": ["-,25e1", "x; y"]}
    assert table.numbers("a,b").tolist() == [1.5, 2] and table.parsed_numbers("c")[0] == -2.5
    assert read_table(written(tmp_path, "id\ta;b\n1\t2,5\n")).columns == {"id": ["1"], "a;b": ["2,5"]}
    for content in ('a,b\n1,"2,5"\n', 'a\tb\n1\t"2,5"\n'):
        with refused(tmp_path / "table.csv", ", line 2, column b must be a finite number, got '2,5'"):
            read_table(written(tmp_path, content)).numbers("b")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", " is empty: its first line should name the columns"),
        ("a,b\n", " has no rows: at least one is needed"),
        ("a,a\n1,2\n", ", line 1, column a is there twice"),
        ("a,\n1,2\n", ", line 1: column 2 has no name"),
        ("a,b\n1,2\n1\n", ", line 3 has 1 columns, but the first line has 2"),
        ('a,b\n1,"2"3\n', ", line 2: "),
        (b"a\n\xff\n", " is not text in UTF-8"),
        ("a\n" + "x" * 200_000 + "\n", ", line 2: field larger than field limit"),
    ],
)
def test_faulty_csv_is_refused_by_file_and_line(tmp_path, content, message):
    path = written(tmp_path, content)
    with refused(path, message):
        read_table(path)


def test_numbers(tmp_path):
    table = read_table(written(tmp_path, "a,b,c,d,e\n1,1e3,-.5,1_0,1e39\n2, 7 ,0x1,,nan\n"))
    assert table.numbers("a").tolist() == [1, 2] and table.numbers("b").tolist() == [1000, 7]
    for column, line, fault in (
        ("c", 3, "got '0x1'"),
        ("d", 2, "got '1_0'"),
        # Finite in float64, but not for a model.
        ("e", 2, "got '1e39'"),
    ):
        with refused(table.path, f", line {line}, column {column} must be a finite number, {fault}"):
            table.numbers(column)
    with refused(table.path, ", line 3, column a must be below 2, got '2'"):
        table.numbers("a", lambda value: value < 2, "below 2")


def test_names_must_be_there_once(tmp_path):
    table = read_table(written(tmp_path, "a,b\nx,1\ny,\nx,2\n"))
    with refused(table.path, ", line 4, column a: 'x' was already in line 2"):
        table.unique_texts("a")
    with refused(table.path, ", line 3, column b is empty"):
        table.unique_texts("b")
    with refused(table.path, ", line 1, column c is missing; there are a, b"):
        table.require("c")
    with refused(table.path, ", line 1, column b is unknown; columns are a, z"):
        table.refuse_others("a", "z")


def test_two_hundred_thousand_columns_are_compared_once_each(tmp_path):
    names = [f"c{number}" for number in range(200_000)]
    assert len(read_table(written(tmp_path, ",".join(names) + "\n" + ",".join(["1"] * len(names)))).columns) == len(
        names
    )
    path = written(tmp_path, ",".join([*names, "c7"]) + "\n")
    with refused(path, ", line 1, column c7 is there twice"):
        read_table(path)


def test_parquet_gives_what_csv_gives(tmp_path):
    parquet.write_table(
        pyarrow.table(
            {
                "id": pyarrow.array([10**15 + 1, 2, 3]),
                "float": pyarrow.array([1.0, 2.5, None]),
                "some": pyarrow.array([1, None, 3]),
                "text": pyarrow.array([" a ", None, "c"]),
                "category": pyarrow.array(["x", "y", "x"]).dictionary_encode(),
                "flag": pyarrow.array([True, False, None]),
            }
        ),
        tmp_path / "table.parquet",
    )
    table = read_table(tmp_path / "table.parquet")
    assert {name: table.texts(name) for name in table.columns} == {
        "id": ["1000000000000001", "2", "3"],
        "float": ["1", "2.5", ""],
        "some": ["1", "", "3"],
        "text": ["a", "", "c"],
        "category": ["x", "y", "x"],
        "flag": ["True", "False", ""],
    }
    with refused(table.path, ", row 3, column float must be a finite number, the cell is empty"):
        table.numbers("float")
    with refused(table.path, ", row 2, column some must be a finite number, the cell is empty"):
        table.numbers("some")
    with refused(table.path, ", column c is missing"):
        table.require("c")


def test_faulty_parquet(tmp_path, monkeypatch):
    path = written(tmp_path, "id\n1\n", "table.parquet")
    with refused(path, ""):
        read_table(path)
    parquet.write_table(pyarrow.table({"a": [[1, 2], [3]]}), path)
    with refused(path, ", column a holds lists or structures"):
        read_table(path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with refused(path, " needs PyArrow"):
        read_table(path)


def test_a_table_is_there_once(tmp_path):
    assert find_table(tmp_path, "nodes") is None
    assert find_table(tmp_path, "nodes") is None
    csv = written(tmp_path, "a\n1\n", "nodes.csv")
    assert find_table(tmp_path, "nodes") == csv
    written(tmp_path, "", "nodes.parquet")
    with pytest.raises(InputError, match=r"has nodes\.csv and nodes\.parquet: leave one of them there"):
        find_table(tmp_path, "nodes")


def test_bare_tables(tmp_path):
    path = written(tmp_path, "1, 2\n\n3,4\n")
    table = read_bare_table(path, "node", 2)
    assert table.columns == {"node 1": ["1", "3"], "node 2": ["2", "4"]}
    assert list(table.rows) == [1, 3]
    with refused(path, ", line 1 must have 1 columns, got 2"):
        read_bare_table(path, "node", 1)
    assert len(read_bare_table(written(tmp_path, ""), "node", 2)) == 0


def test_values_as_text():
    values = [None, float("nan"), 3.0, 2.5, 7, np.float64(4.0), b"\x01\xff", " a ", "\ud800"]
    assert list(map(cell_text, values)) == ["", "", "3", "2.5", "7", "4", "01ff", "a", "?"]


def columns_as_parquet(**columns):
    buffer = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue().to_pybytes()


TEXT = st.text("ab,\"\n\r '1.-\x00", max_size=60).map(str.encode)
SOUND = {
    "fuzzed.csv": b'id,age,"a, b"\n1,2.5,x\n2,-1,\n',
    "fuzzed.parquet": columns_as_parquet(id=["a", "b"], age=[1.5, None], when=[1, 2]),
}


@fuzzed(file=st.sampled_from(list(SOUND)).flatmap(lambda name: st.tuples(st.just(name), TEXT | damaged(SOUND[name]))))
def test_whatever_a_file_holds_only_input_errors_come_out(tmp_path, file):
    name, content = file
    path = written(tmp_path, content, name)
    try:
        table = read_table(path)
    except InputError as error:
        assert str(path) in str(error) and "\n" not in str(error)
        return
    for name in table.columns:
        assert len(table.texts(name)) == len(table)
        try:
            assert np.isfinite(table.numbers(name)).all()
        except InputError as error:
            assert f"column {name}" in str(error)
