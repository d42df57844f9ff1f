"""The table of compatibility says what comes out when its rows are tried."""

from pyg_compatibility import MARK, PAGE, ROWS, render


def test_the_table_of_compatibility_is_what_the_tests_find():
    page = PAGE.read_text(encoding="utf-8")
    assert render(page) == page, "docs/howto/hkconv-in-pyg.md is out of date: run `python tests/pyg_compatibility.py`"
    assert MARK.search(page)[0].count("\n") == len(ROWS) + 2
