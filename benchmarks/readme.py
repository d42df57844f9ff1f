"""Puts the results of the node table and the times of an epoch into the tables of README.md.

Run: python benchmarks/readme.py
"""

from pathlib import Path

from report import render_short_epochs, replace_section

from hkconv.engine.files import read_json, write_bytes
from hkconv.report.collect import read_grid
from hkconv.report.render import as_markdown
from hkconv.report.tables import DATASETS, short_table

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
TIMED_MODELS = ("hkn", "hybonet", "gcn")


def render(text: str) -> str:
    """The page with its tables written anew from the stored records and measurements."""
    grid, _ = read_grid(HERE.parent / "results" / "records", "node")
    measured = [read_json(path, "benchmark result") for path in sorted((HERE / "results").glob("*.json"))]
    text = replace_section(text, "results", as_markdown([short_table(grid)]).strip(), README.name)
    return replace_section(text, "speed", render_short_epochs(measured, DATASETS, TIMED_MODELS), README.name)


if __name__ == "__main__":
    write_bytes(README, render(README.read_text(encoding="utf-8")).encode())
    print(f"written to {README}")
