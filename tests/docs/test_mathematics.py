"""The table of errors in the page is what the program beside it prints."""

import math
import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
NUMBER = re.compile(r"inf|[-+.\de]+")


def rows_of(text):
    """The lines of a table of errors, each as its numbers; the columns first."""
    header, _, *rows = (line for line in text.splitlines() if line.startswith("| "))
    return header, [[float(number) for cell in row.split("|") for number in NUMBER.findall(cell)] for row in rows]


def test_table_of_errors_is_what_the_program_prints():
    page = (ROOT / "docs" / "mathematics.md").read_text(encoding="utf-8").partition("## Error against radius")[2]
    program = runpy.run_path(str(ROOT / "benchmarks" / "accuracy.py"))
    header, written = rows_of(page)
    printed_header, printed = rows_of(program["table"]())
    assert header == printed_header
    assert [row[0] for row in written] == [row[0] for row in printed] == list(program["RADII"])
    for ours, theirs in zip(written, printed):
        # One digit is written, and other machines round otherwise: a factor of 3 says nothing. Above 1 all is lost.
        for a, b in zip(ours, theirs, strict=True):
            assert a == b or max(a, b) <= 3 * min(a, b) or min(a, b) > 1, (ours, theirs)


def test_own_errors_grow_no_faster_than_the_rounding_of_coordinates():
    program = runpy.run_path(str(ROOT / "benchmarks" / "accuracy.py"))
    for radius in (1.0, 4.0, 8.0):
        for operation, (ours, textbook) in program["errors"](radius).items():
            assert ours < 20 * math.exp(radius) * 2**-24, (operation, radius)
            # Where both have all digits but the last, either may be ahead.
            assert ours <= max(textbook, 2**-22), (operation, radius)
