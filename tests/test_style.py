"""Names, docstrings and sizes of the package, as CONTRIBUTING asks for them."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

import hkconv

PACKAGE = Path(hkconv.__file__).parent
ROOMS = (
    "cli",
    "data",
    "engine",
    "experiments",
    "geometry",
    "language",
    "models",
    "nn",
    "ops",
    "points",
    "report",
    "serving",
    "tasks",
    "testing",
    "viz",
)
FILES = sorted(file for room in ROOMS for file in (PACKAGE / room).rglob("*.py"))
KERNELS = re.compile(r"ops/\w*(cpu|cuda|cuda_kernels)\.py")
BRITISH = re.compile(
    r"neighbour|centre|centring|colour|behaviour|(normal|minim|optim|general|initial|standard)is(e|ed|ing|ation)\b"
)
MOST_LINES = 500

in_every_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(PACKAGE).as_posix())


def nodes_of(file):
    return ast.walk(ast.parse(file.read_text(encoding="utf-8")))


def identifiers(node):
    for field in ("id", "attr", "arg", "name", "asname"):
        value = getattr(node, field, None)
        if isinstance(value, str):
            yield value


@in_every_file
def test_docstrings_begin_with_a_verb_or_a_noun(file):
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = [ast.get_docstring(node) or "" for node in nodes_of(file) if isinstance(node, documented)]
    assert [text for text in found if re.match(r"(What|Whether|How|Where|Which)\b", text)] == []


@in_every_file
def test_identifiers_have_american_spelling(file):
    assert {name for node in nodes_of(file) for name in identifiers(node) if BRITISH.search(name.lower())} == set()


@in_every_file
def test_files_can_be_read_in_one_sitting(file):
    if not KERNELS.fullmatch(file.relative_to(PACKAGE).as_posix()):
        assert len(file.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


def test_a_class_name_names_one_thing():
    names = Counter(node.name for file in FILES for node in nodes_of(file) if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == []
