"""Hostile input for every reader, drawn by hypothesis: for five seconds in each run of the tests, nightly for a minute.

A reader has its test file, and where that has several such tests they share the time.
"""

import inspect
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from hkconv.errors import InputError

SECONDS, NIGHTLY_SECONDS = 5, 60
# Few, because the time is looked at between batches, and one example may take a second.
BATCH = 10
TESTS_OF_FILE: Counter[str] = Counter()
KEYWORD = inspect.Parameter.KEYWORD_ONLY
QUIET = settings(
    max_examples=BATCH,
    deadline=None,
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)


def fuzzed(**drawn: st.SearchStrategy) -> Callable:
    """Call a test with drawn arguments, and with fixtures for its others, until its share of the time is over.

    Fixtures are the same each time. What is drawn follows from the number of the batch alone, so that a failure comes
    again.
    """

    def decorate(test: Callable) -> Callable:
        TESTS_OF_FILE[test.__module__] += 1

        def timed(seconds: int, **fixtures: object) -> None:
            end = time.monotonic() + seconds / TESTS_OF_FILE[test.__module__]
            for number in itertools.count():
                seed(number)(QUIET(given(**drawn)(lambda **found: test(**fixtures, **found))))()
                if time.monotonic() > end:
                    return

        timed.__name__, timed.__doc__, timed.__module__ = test.__name__, test.__doc__, test.__module__
        names = ["seconds", *(name for name in inspect.signature(test).parameters if name not in drawn)]
        timed.__signature__ = inspect.Signature([inspect.Parameter(name, KEYWORD) for name in names])
        lengths = [SECONDS, pytest.param(NIGHTLY_SECONDS, marks=pytest.mark.nightly)]
        return pytest.mark.parametrize("seconds", lengths, ids=["short", "long"])(timed)

    return decorate


@contextmanager
def input_errors_alone() -> Iterator[None]:
    """Within this block an :class:`InputError` may come, and nothing else."""
    try:
        yield
    except InputError as error:
        assert str(error), "an error without words"


def damaged(*originals: bytes) -> st.SearchStrategy[bytes]:
    """Bytes that were sound once: cut off, with pieces written over, left out, repeated or put in; or any bytes at all.

    Args:
        originals: sound ones.
    """
    pieces = st.binary(max_size=12) | st.sampled_from(
        [b"\x00" * 8, b"\xff" * 8, b"-1", b"9" * 30, b"9" * 5000, b"[" * 20_000, b"\n"]
    )

    @st.composite
    def draw(draw: Callable) -> bytes:
        content = draw(st.sampled_from(originals))
        for _ in range(draw(st.integers(1, 4))):
            start = draw(st.integers(0, len(content)))
            length = draw(st.sampled_from([0, 1, 2, 8, 64, len(content)]))
            kind = draw(st.sampled_from(["over", "out", "in", "twice", "cut"]))
            piece = draw(pieces)
            rest = content[start + (len(piece) if kind == "over" else length if kind == "out" else 0) :]
            middles = {"over": piece, "out": b"", "in": piece, "twice": content[start : start + length], "cut": b""}
            content = content[:start] + middles[kind] + (b"" if kind == "cut" else rest)
        return content

    return draw() | st.binary(max_size=100)


# Whatever JSON or YAML can say, the awkward first.
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 10**9, 2**63, 10**400, "", "none", "../../x", "/etc/passwd", "\x00", "\ud800", "a\nb"]),
    st.floats(),
    st.text(max_size=8),
)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


@st.composite
def changed(draw: Callable, sound: object) -> object:
    """Plain data that were sound once, with a few values, at any depth, replaced, left out or put in."""
    value = sound
    for _ in range(draw(st.integers(1, 3))):
        value = _change(draw, value)
    return value


def _change(draw: Callable, value: object) -> object:
    if isinstance(value, dict) and value and draw(st.integers(0, 3)):
        key = draw(st.sampled_from(sorted(value, key=str)))
        kind = draw(st.integers(0, 5))
        if kind == 0:
            return {name: inner for name, inner in value.items() if name != key}
        if kind == 1:
            return {**value, draw(st.text(max_size=6)): draw(ANYTHING)}
        return {**value, key: _change(draw, value[key])}
    if isinstance(value, list) and value and draw(st.integers(0, 3)):
        place = draw(st.integers(0, len(value) - 1))
        kind = draw(st.integers(0, 3))
        replacement = [[], [value[place]] * 2, [_change(draw, value[place])], [draw(ANYTHING)]][kind]
        return [*value[:place], *replacement, *value[place + 1 :]]
    return draw(ANYTHING)
