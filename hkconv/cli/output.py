"""Output of the commands: tables that fit a terminal of 80 columns and stay plain text in a pipe."""

import sys

from rich import box
from rich.console import Console
from rich.table import Table


def make_table(*columns: str, gap: int = 2) -> Table:
    """A table whose first column is text; the others are numbers.

    Args:
        columns: the headings.
        gap: spaces between columns.

    Returns:
        The table, without rows.
    """
    # The box brings one of the spaces.
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, gap - 1, 0, 0), header_style="bold")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    return table


def print_table(table: Table) -> None:
    """Print a table to standard output."""
    # Made anew each time, because a test or a caller may have replaced the stream.
    Console(file=sys.stdout, highlight=False).print(table)


def percent(share: float) -> str:
    """A share from 0 to 1 as a percentage with one decimal."""
    return f"{100 * share:.1f}"


def count(number: int, noun: str) -> str:
    """``1 split``, ``3 splits``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
