"""Puts the result files into the tables of docs/performance.md.

Run: python benchmarks/report.py
"""

import argparse
from pathlib import Path

from hkconv.benchmarking.report import render_page

HERE = Path(__file__).parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--page", type=Path, default=HERE.parent / "docs" / "performance.md")
    options = parser.parse_args()
    render_page(options.page, options.results)
    print(f"written to {options.page}")


if __name__ == "__main__":
    main()
