"""What the files at the root of the project say agrees with what is stored."""

import re
import runpy
import shutil
from pathlib import Path

import yaml
from typer.testing import CliRunner

import hkconv
from hkconv.cli.main import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def rows_of(text: str, marker: str = "") -> dict[str, list[str]]:
    """A Markdown table as cells without bold, by their first; rows without a first cell belong to the one above."""
    if marker:
        text = re.search(rf"<!-- {marker}:begin -->(.*?)<!-- {marker}:end -->", text, re.S)[1]
    found, system = {}, ""
    for line in re.findall(r"^\| (?!---)(.*) \|$", text, re.M):
        first, *cells = line.replace("*", "").split(" | ")
        system = first.strip() or system
        found.setdefault(system, []).append(cells)
    return found


def test_tables_of_the_readme_are_those_of_the_stored_records():
    render = runpy.run_path(str(ROOT / "benchmarks" / "readme.py"))["render"]
    assert render(README) == README, "README.md is out of date: run `python benchmarks/readme.py`"


def test_the_report_is_that_of_the_stored_records(tmp_path):
    stored = ROOT / "results"
    # The report links the pages of the explorer that lie beside it.
    shutil.copytree(stored / "explorer", tmp_path / "explorer")
    result = CliRunner().invoke(app, ["report", "--results", str(stored / "records"), "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    written = [path for path in tmp_path.iterdir() if path.is_file()]
    assert len(written) == 4
    for path in written:
        assert path.read_bytes() == (stored / path.name).read_bytes(), f"{path.name} is old: run `hkconv report`"


def test_results_of_the_readme_are_in_the_report():
    report = (ROOT / "results" / "report.md").read_text(encoding="utf-8")
    table = rows_of(report[report.index("## Node") : report.index("### The paper's HKN")])
    datasets = table["system"][0][1:]
    ours = rows_of(README, "results")
    columns = next(iter(ours.values()))[0]
    compared = 0
    for system in ours.keys() & table.keys():
        (cells,) = ours[system]
        (clean,) = (figures for kind, *figures in table[system] if kind == "clean")
        for dataset, cell in zip(columns, cells):
            if cell != "–":
                seeds = " x 3" if dataset in ("cornell", "texas", "wisconsin") else ""
                assert clean[datasets.index(dataset)] == f"{cell} (10{seeds})", (system, dataset)
                compared += 1
    assert compared >= 30


def test_citation_names_this_version_and_the_paper():
    assert CITATION["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= CITATION.keys()
    assert CITATION["version"] == hkconv.__version__
    (paper,) = CITATION["references"]
    assert f"title  = {{{paper['title']}}}" in README
    authors = " and ".join(f"{author['family-names']}, {author['given-names']}" for author in paper["authors"])
    assert f"author = {{{authors}}}" in README


def test_changelog_begins_with_this_version():
    versions = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    released = [version for version in versions if version != "Unreleased"]
    assert released[0] == hkconv.__version__
