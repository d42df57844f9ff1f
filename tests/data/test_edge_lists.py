import pytest
from fuzzing import damaged, fuzzed, input_errors_alone
from hypothesis import strategies as st

from hkconv.data.edge_lists import read_edge_list
from hkconv.errors import InputError


@pytest.fixture
def read(tmp_path):
    def write_and_read(content):
        path = tmp_path / "edges.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_edge_list(path)

    return write_and_read


def edges_by_name(edges):
    return [tuple(edges.names[node] for node in pair) for pair in edges.edge_index.t().tolist()]


@pytest.mark.parametrize(
    "content, expected",
    [
        ("7,3\n3,12\n", [("7", "3"), ("3", "12")]),
        ("anna,bert\nbert,carl\n", [("anna", "bert"), ("bert", "carl")]),
        ("anna , bert\r\n\r\nbert,carl", [("anna", "bert"), ("bert", "carl")]),
        ('"Doe, Jane","a ""b"""\nx,x\n', [("Doe, Jane", 'a "b"'), ("x", "x")]),
        ("é,ü\n", [("é", "ü")]),
        (b"\xef\xbb\xbf1,2\n2,3\n", [("1", "2"), ("2", "3")]),
    ],
    ids=["numbers", "words", "blanks", "quotes", "accents", "signature"],
)
def test_names_of_any_kind(read, content, expected):
    edges = read(content)
    assert edges_by_name(edges) == expected
    assert not edges.heading


@pytest.mark.parametrize(
    "content, heading",
    [
        ("left,right\n1,2\n", True),
        ("left,right\n1,-2\n", True),
        ("Source,Target\nanna,bert\n", True),
        ("left,right\nanna,bert\n", False),
        ("from,to\nto,station\n", False),
        ("1,2\n2,3\n", False),
        ("a,1\n1,2\n", False),
    ],
)
def test_a_heading_is_told_from_an_edge(read, content, heading):
    edges = read(content)
    assert edges.heading == heading
    assert edges.edge_index.size(1) == content.count("\n") - heading
    assert ("left" in edges.names) == (content.startswith("left") and not heading)


@pytest.mark.parametrize(
    "content, words",
    [
        ("1,2\n3\n", "line 2: .* got 1 column"),
        ("1,2\n\n3,4,5\n", "line 3: .* got 3 columns"),
        ("1,2\n3, \n", "line 2: a name is empty"),
        ('1,2\n"3,4\n', "line 2: "),
        ("", "holds no edges"),
        ("source,target\n", "holds no edges"),
        (b"\xff\xfe1\x00", "UTF-8"),
    ],
)
def test_errors_name_the_file_and_the_line(read, content, words):
    with pytest.raises(InputError, match=words) as caught:
        read(content)
    assert "edges.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"no\.csv cannot be read"):
        read_edge_list(tmp_path / "no.csv")
    with pytest.raises(InputError, match="cannot be read"):
        read_edge_list(tmp_path)


@fuzzed(content=damaged(b"a,b\nb,c\n", b'"x, y",1\n2,3\n') | st.text("a1,\"\n\r '\x00-", max_size=40).map(str.encode))
def test_whatever_a_file_holds_only_input_errors_come_out(read, content):
    with input_errors_alone():
        edges = read(content)
        assert int(edges.edge_index.max()) == len(edges.names) - 1
