"""Dependency treebanks in CoNLL-U form, every sentence checked to be one tree.

The words of a sentence are its syntactic words. A multiword token (id ``3-4``) is only how two of them are written and
an empty node (id ``8.1``) is in no basic tree: both are passed over. Rows are read by the package ``conllu``, which is
optional and imported when first used; lines are counted here, so that an error can name one.
"""

import functools
import gzip
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hkconv.errors import InputError
from hkconv.opening import read_bytes

PARTS = ("train", "dev", "test")
# What Hewitt and Manning (2019) leave out of their scores: the punctuation tags of the Penn treebank (column XPOS),
# here with those of the German STTS tag set. Hyphens within words (HYPH) and smileys (NFP) are not among them.
PUNCTUATION_TAGS = frozenset(("''", ",", ".", ":", "``", "-LRB-", "-RRB-", "$,", "$.", "$("))


@dataclass(frozen=True, eq=False)
class DependencyTree:
    """The words of a sentence and the tree over them.

    Args:
        forms: the words as written.
        heads: (n,) the position of each word's head, from 0; -1 for the root.
        is_punctuation: (n,) which words are punctuation, by their tag.
    """

    forms: tuple[str, ...]
    heads: np.ndarray
    is_punctuation: np.ndarray

    def __len__(self) -> int:
        return len(self.forms)

    @functools.cached_property
    def depths(self) -> np.ndarray:
        """(n,) number of edges from the root to each word: how often one can go on to the head."""
        depths, at = np.zeros(len(self), dtype=np.int64), self.heads
        while (at >= 0).any():
            depths += at >= 0
            at = _one_up(at, self.heads)
        return depths

    def distances(self) -> np.ndarray:
        """(n, n) number of edges between every two words.

        From the root downwards a word is one edge farther from all words before it than its head is.
        """
        order = np.argsort(self.depths, kind="stable")
        distances = np.zeros((len(self), len(self)), dtype=np.int64)
        for position, word in enumerate(order[1:], start=1):
            before = order[:position]
            distances[word, before] = distances[before, word] = distances[self.heads[word], before] + 1
        return distances


@dataclass(frozen=True)
class _Row:
    line: int
    form: str
    tag: str
    head: int


def read_treebank(path: str | Path) -> list[DependencyTree]:
    """The trees of a CoNLL-U file.

    Args:
        path: the file, plain or compressed (``.gz``).

    Returns:
        One tree for each sentence, in the order of the file.
    """
    path = Path(path)
    trees = [_tree(path, rows) for rows in _sentences(path)]
    if not trees:
        raise InputError(f"treebank {path} holds no sentence")
    return trees


def treebank_files(folder: str | Path) -> dict[str, Path]:
    """The files of a treebank in a folder laid out as Universal Dependencies does.

    Args:
        folder: it holds one file for each of train, dev and test, such as ``en_ewt-ud-train.conllu`` or the same
            with ``.gz``.

    Returns:
        The path of each part.
    """
    folder = Path(folder)
    if not os.path.isdir(folder):
        raise InputError(f"treebank must be a folder with the parts of a treebank, got {folder}")
    found = {}
    for part in PARTS:
        names = sorted(path for end in ("", ".gz") for path in folder.glob(f"*{part}.conllu{end}"))
        if len(names) != 1:
            listed = ", ".join(path.name for path in names) or "none"
            raise InputError(f"treebank {folder} must have one file *{part}.conllu or .conllu.gz, found {listed}")
        found[part] = names[0]
    return found


def _sentences(path: Path) -> Iterator[list[_Row]]:
    rows: list[_Row] = []
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            if rows:
                yield rows
            rows = []
        elif not line.startswith("#"):
            row = _row(path, number, line, expected=len(rows) + 1)
            if row is not None:
                rows.append(row)
    if rows:
        yield rows


def _lines(path: Path) -> list[str]:
    try:
        content = read_bytes(path)
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"treebank {path} cannot be read ({getattr(error, 'strerror', None) or error})") from None
    try:
        # Only at line feeds: words may hold what Python counts as other ends of lines.
        return content.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}, line {line}: not valid UTF-8") from None


def _row(path: Path, number: int, line: str, expected: int) -> _Row | None:
    """The word of a line; None for a multiword token or an empty node."""
    parser, complaint, fields, parsers = _conllu()
    try:
        token = parser(line.rstrip("\r"), fields, parsers)
    # Numbers of thousands of digits are too much for Python, and its complaint is another one.
    except (complaint, ValueError) as error:
        raise InputError(f"{path}, line {number}: {error}") from None
    if len(token) < len(fields):
        raise InputError(f"{path}, line {number}: a row of CoNLL-U has {len(fields)} columns, found {len(token)}")
    if isinstance(token["id"], tuple):
        return None
    if token["id"] != expected:
        raise InputError(f"{path}, line {number}: words are numbered from 1, expected {expected}, got {token['id']}")
    if token["head"] is None:
        raise InputError(f"{path}, line {number}: word {expected} {token['form']!r} has no head: 0 is the root's")
    return _Row(number, token["form"], token["xpos"], token["head"])


@functools.cache
def _conllu() -> tuple[Callable[..., Any], type[Exception], Sequence[str], dict[str, Callable[..., Any]]]:
    """The package's reader of one row, its error, all columns, and how to read the two that hold numbers."""
    try:
        from conllu.exceptions import ParseException
        from conllu.parser import DEFAULT_FIELD_PARSERS, DEFAULT_FIELDS, parse_line
    except ImportError:
        raise InputError("treebanks need the package conllu: install it with pip install 'hkconv[translate]'") from None
    parsers = {name: DEFAULT_FIELD_PARSERS[name] for name in ("id", "head")}
    return parse_line, ParseException, DEFAULT_FIELDS, parsers


def _tree(path: Path, rows: list[_Row]) -> DependencyTree:
    for number, row in enumerate(rows, start=1):
        if not 0 <= row.head <= len(rows):
            raise InputError(
                f"{path}, line {row.line}: word {number} {row.form!r} has head {row.head}, but the sentence has words "
                f"1 to {len(rows)}"
            )
    roots = [number for number, row in enumerate(rows, start=1) if row.head == 0]
    if len(roots) > 1:
        raise InputError(
            f"{path}, line {rows[roots[1] - 1].line}: word {roots[1]} is a second root beside word {roots[0]}: one "
            "word of a sentence has head 0"
        )
    if not roots:
        raise InputError(f"{path}, line {rows[0].line}: the sentence has no root: one of its words must have head 0")
    heads = np.array([row.head - 1 for row in rows])
    cycle = _cycle(heads)
    if cycle:
        shown = " -> ".join(f"{word + 1} {rows[word].form!r}" for word in [*cycle, cycle[0]])
        raise InputError(f"{path}, line {rows[cycle[0]].line}: heads run in a circle, {shown}")
    is_punctuation = np.array([row.tag in PUNCTUATION_TAGS for row in rows])
    return DependencyTree(tuple(row.form for row in rows), heads, is_punctuation)


def _cycle(heads: np.ndarray) -> list[int]:
    """Words that are their own ancestors, each followed by its head, the first in the sentence first; mostly none."""
    at = heads
    for _ in heads:
        at = _one_up(at, heads)
    # After as many steps as there are words, whoever is not above the root goes around.
    if not (at >= 0).any():
        return []
    cycle = [int(at[at >= 0].min())]
    while heads[cycle[-1]] != cycle[0]:
        cycle.append(int(heads[cycle[-1]]))
    return cycle


def _one_up(at: np.ndarray, heads: np.ndarray) -> np.ndarray:
    """The head of each position; -1, above the root, stays."""
    return np.where(at >= 0, heads[at], -1)
