import gzip
import sys
from collections import deque

import numpy as np
import pytest
from fuzzing import damaged, fuzzed, input_errors_alone
from hypothesis import strategies as st

from hkconv.data import treebanks
from hkconv.data.treebanks import DependencyTree, read_treebank, treebank_files
from hkconv.errors import InputError


def row(number, form, head, tag="NN"):
    return f"{number}\t{form}\t_\tX\t{tag}\t_\t{head}\tdep\t_\t_"


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def literal_distances(heads):
    """Breadth-first search from every word over the undirected edges."""
    neighbors = {word: set() for word in range(len(heads))}
    for word, head in enumerate(heads):
        if head >= 0:
            neighbors[word].add(int(head))
            neighbors[int(head)].add(word)
    rows = []
    for start in neighbors:
        found, waiting = {start: 0}, deque([start])
        while waiting:
            word = waiting.popleft()
            for other in neighbors[word] - found.keys():
                found[other] = found[word] + 1
                waiting.append(other)
        rows.append([found[word] for word in range(len(heads))])
    return np.array(rows)


def plain_parser(path):
    """Sentences as lists of (form, head, tag): no package, no checks."""
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        blocks = file.read().strip("\n").split("\n\n")
    rows = [[line.split("\t") for line in block.split("\n") if line[0].isdigit()] for block in blocks]
    return [[(r[1], int(r[6]), r[4]) for r in block if r[0].isdigit()] for block in rows]


def test_a_small_tree_by_hand(tmp_path):
    lines = (row(1, "She", 2), row(2, "saw", 0), row(3, "it", 2), row(4, "then", 3), row(5, ".", 2, "."))
    (tree,) = read_treebank(write(tmp_path / "a.conllu", "# text = She saw it then.", *lines))
    assert tree.forms == ("She", "saw", "it", "then", ".")
    assert tree.heads.tolist() == [1, -1, 1, 2, 1]
    assert tree.depths.tolist() == [1, 0, 1, 2, 1]
    assert tree.is_punctuation.tolist() == [False] * 4 + [True]
    assert tree.distances()[3].tolist() == [3, 2, 1, 0, 3]


def test_multiword_tokens_and_empty_nodes_are_no_words(tmp_path):
    lines = (
        row("1-2", "Don't", "_"),
        row(1, "Do", 3),
        row(2, "n't", 3),
        row(3, "go", 0),
        row("3.1", "home", "_"),
        row(4, "now", 3),
    )
    first, second = read_treebank(write(tmp_path / "a.conllu", *lines, "", row("0.1", "ghost", "_"), row(1, "Yes", 0)))
    assert first.forms == ("Do", "n't", "go", "now")
    assert first.heads.tolist() == [2, 2, -1, 2]
    assert second.forms == ("Yes",)
    assert second.depths.tolist() == [0] and second.distances().tolist() == [[0]]


def test_ends_of_lines_blank_lines_and_odd_characters(tmp_path):
    text = "\r\n\r\n# a\r\n" + row(1, "a\u2028b", 0) + "\r\n\r\n\r\n" + row(1, "c d", 0)
    path = tmp_path / "a.conllu"
    path.write_bytes(text.encode())
    assert [tree.forms for tree in read_treebank(path)] == [("a\u2028b",), ("c d",)]


@pytest.mark.parametrize("size", [2, 3, 17, 60])
def test_distances_and_depths_of_random_trees(size):
    random = np.random.default_rng(size)
    for _ in range(5):
        order = random.permutation(size)
        heads = np.full(size, -1)
        for place in range(1, size):
            heads[order[place]] = order[random.integers(place)]
        tree = DependencyTree(("x",) * size, heads, np.zeros(size, dtype=bool))
        expected = literal_distances(heads)
        assert (tree.distances() == expected).all()
        assert (tree.depths == expected[order[0]]).all()


GOOD = (row(1, "a", 0), row(2, "b", 1), "")


@pytest.mark.parametrize(
    "lines, words",
    [
        ((row(1, "a", 0), row(2, "b", 7)), "line 5: word 2 'b' has head 7, but the sentence has words 1 to 2"),
        ((row(1, "a", 0), row(2, "b", -1)), "line 5: word 2 'b' has head -1"),
        ((row(1, "a", 2), row(2, "b", 0), row(3, "c", 0)), "line 6: word 3 is a second root beside word 2"),
        ((row(1, "a", 2), row(2, "b", 1)), "line 4: the sentence has no root"),
        ((row(1, "a", 0), row(2, "b", 2)), "line 5: heads run in a circle, 2 'b' -> 2 'b'"),
        (
            (row(1, "a", 3), row(2, "r", 0), row(3, "b", 5), row(4, "c", 3), row(5, "d", 4)),
            "line 6: heads run in a circle, 3 'b' -> 5 'd' -> 4 'c' -> 3 'b'",
        ),
        ((row(1, "a", 0), row(3, "b", 1)), "line 5: words are numbered from 1, expected 2, got 3"),
        ((row(1, "a", "_"),), "line 4: word 1 'a' has no head"),
        ((row(1, "a", "two"),), "line 4: Failed parsing field 'head': 'two'"),
        ((row("one", "a", 0),), "line 4: Failed parsing field 'id': 'one'"),
        (("1\ta\t_\tX\tNN",), "line 4: a row of CoNLL-U has 10 columns, found 5"),
        (("some text",), "line 4: Invalid line format"),
    ],
)
def test_broken_files_are_named_with_their_line(tmp_path, lines, words):
    path = write(tmp_path / "broken.conllu", *GOOD, *lines)
    with pytest.raises(InputError) as caught:
        read_treebank(path)
    assert f"{path}, {words}" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match=r"absent.conllu cannot be read \(No such file"):
        read_treebank(tmp_path / "absent.conllu")
    with pytest.raises(InputError, match="holds no sentence"):
        read_treebank(write(tmp_path / "empty.conllu", "# only a comment", ""))
    (tmp_path / "latin.conllu").write_bytes("\n".join((*GOOD, row(1, "Öl", 0))).encode("latin-1"))
    with pytest.raises(InputError, match="line 4: not valid UTF-8"):
        read_treebank(tmp_path / "latin.conllu")
    (tmp_path / "cut.conllu.gz").write_bytes(gzip.compress(b"1\ta" * 1000)[:-9])
    with pytest.raises(InputError, match=r"cut.conllu.gz cannot be read"):
        read_treebank(tmp_path / "cut.conllu.gz")
    (tmp_path / "plain.conllu.gz").write_bytes(b"1\ta")
    with pytest.raises(InputError, match=r"plain.conllu.gz cannot be read"):
        read_treebank(tmp_path / "plain.conllu.gz")


def test_without_the_package(tmp_path, monkeypatch):
    treebanks._conllu.cache_clear()
    monkeypatch.setitem(sys.modules, "conllu.parser", None)
    with pytest.raises(InputError, match=r"pip install 'hkconv\[translate\]'"):
        read_treebank(write(tmp_path / "a.conllu", *GOOD))
    treebanks._conllu.cache_clear()


def test_the_parts_of_a_folder(tmp_path):
    with pytest.raises(InputError, match="must be a folder"):
        treebank_files(tmp_path / "absent")
    train = write(tmp_path / "x-train.conllu", *GOOD)
    dev = write(tmp_path / "x-dev.conllu.gz")
    with pytest.raises(InputError, match=r"must have one file \*test.conllu or .conllu.gz, found none"):
        treebank_files(tmp_path)
    test = write(tmp_path / "x-test.conllu", *GOOD)
    assert treebank_files(tmp_path) == {"train": train, "dev": dev, "test": test}
    write(tmp_path / "y-test.conllu.gz")
    with pytest.raises(InputError, match=r"found x-test.conllu, y-test.conllu.gz"):
        treebank_files(tmp_path)


@pytest.mark.parametrize(
    "name, sentences, words", [("en_ewt/en_ewt-ud-dev", 2001, 25147), ("de_gsd/de_gsd-ud-dev", 799, 12480)]
)
def test_real_treebanks_as_a_plain_parser_reads_them(real_data, name, sentences, words):
    path = real_data / "ud" / f"{name}.conllu.gz"
    trees = read_treebank(path)
    expected = plain_parser(path)
    assert (len(trees), sum(map(len, trees))) == (len(expected), sum(map(len, expected))) == (sentences, words)
    for tree, rows in zip(trees, expected):
        assert list(tree.forms) == [form for form, _, _ in rows]
        assert (tree.heads + 1).tolist() == [head for _, head, _ in rows]
        assert tree.is_punctuation.tolist() == [
            tag in ("''", ",", ".", ":", "``", "-LRB-", "-RRB-", "$,", "$.", "$(") for _, _, tag in rows
        ]
    for tree in trees[::50]:
        assert (tree.distances() == literal_distances(tree.heads)).all()


CELLS = st.sampled_from(
    ["1", "2", "0", "-1", "1-2", "1.1", "_", "a", "", ".", "9" * 5000, "x=y|z", "\u2028", "1e3", "²"]
)
ROWS = st.lists(CELLS, min_size=8, max_size=11).map("\t".join) | st.sampled_from(
    [row(1, "a", 0), row(2, "b", 1), "", "# x"]
)
SENTENCES = b"\n".join(line.encode() for line in (row(1, "a", 2), row(2, "b", 0), "", row(1, "c", 0)))


@fuzzed(
    content=damaged(SENTENCES) | st.lists(ROWS, max_size=6).map("\n".join).map(str.encode),
    compressed=st.booleans(),
    broken=st.booleans(),
)
def test_whatever_a_file_holds_only_input_errors_come_out(tmp_path, content, compressed, broken):
    path = tmp_path / ("fuzzed.conllu.gz" if compressed else "fuzzed.conllu")
    content = gzip.compress(content) if compressed else content
    path.write_bytes(content[: len(content) // 2] if broken else content)
    with input_errors_alone():
        for tree in read_treebank(path):
            assert sorted(tree.depths)[0] == 0 and tree.distances().max() < len(tree)


@fuzzed(content=damaged(gzip.compress(SENTENCES)))
def test_a_damaged_compressed_file_gives_input_errors_alone(tmp_path, content):
    path = tmp_path / "fuzzed.conllu.gz"
    path.write_bytes(content)
    with input_errors_alone():
        read_treebank(path)
