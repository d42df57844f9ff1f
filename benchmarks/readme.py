"""Puts HKN's standing and times of an epoch into README.md, and the report's summary into docs/results.md.

Run: hkconv report && python benchmarks/readme.py
"""

from pathlib import Path

from report import render_short_epochs, replace_section

from hkconv.engine.files import read_json, write_bytes
from hkconv.report.contest import SUMMARY, read_contests, standing
from hkconv.report.render import as_markdown

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
RESULTS = HERE.parent / "docs" / "results.md"
CONTESTS = ("links", "node", "graph", "molecules")
BESIDE = ("GCN",)
TIMED = ("cornell", "texas", "wisconsin", "chameleon", "squirrel", "actor")
TIMED_MODELS = ("hkn", "hybonet", "gcn")


def render(text: str) -> str:
    """The page with its tables written anew from the stored records and measurements."""
    table = standing(read_contests(HERE.parent / "results" / "records", CONTESTS), BESIDE)
    measured = [read_json(path, "benchmark result") for path in sorted((HERE / "results").glob("*.json"))]
    text = replace_section(text, "results", as_markdown([table]).strip().replace("---:", "---"), README.name)
    return replace_section(text, "speed", render_short_epochs(measured, TIMED, TIMED_MODELS), README.name)


def render_summary(text: str) -> str:
    """The page of results with the summary that ``hkconv report`` wrote."""
    report = (HERE.parent / "results" / "report.md").read_text(encoding="utf-8")
    found = report.partition(f"\n## {SUMMARY}\n")[2].partition("\n## ")[0]
    return replace_section(text, "summary", found.strip(), RESULTS.name)


if __name__ == "__main__":
    for page, renew in ((README, render), (RESULTS, render_summary)):
        write_bytes(page, renew(page.read_text(encoding="utf-8")).encode())
        print(f"written to {page}")
