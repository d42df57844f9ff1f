"""What the files at the root of the project say agrees with what is stored."""

import re
import runpy
import tomllib
from pathlib import Path

import yaml
from typer.testing import CliRunner

import hkconv
from hkconv.cli.main import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Tests of several modules together, or of the command line as a process.
OF_SEVERAL_MODULES = {
    "cli/test_full_disk.py",
    "cli/test_kills.py",
    "cli/test_locks.py",
    "cli/test_memory.py",
    "cli/test_new_user.py",
    "cli/test_process.py",
    "cli/test_signals.py",
    "cli/test_startup.py",
    "models/baselines/test_searched_graphs.py",
    "models/translation/test_systems.py",
    "ops/test_elementary.py",
    "ops/test_memory.py",
    "ops/test_stored_results.py",
    "tasks/test_accuracy.py",
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# The names that conda-forge has for packages.
CONDA_NAMES = {"torch": "pytorch", "torch-geometric": "pytorch_geometric"}
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


def test_the_table_of_the_results_page_is_that_of_the_report():
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    render = runpy.run_path(str(ROOT / "benchmarks" / "readme.py"))["render_summary"]
    assert render(page) == page, "docs/results.md is out of date: run `python benchmarks/readme.py`"
    assert "| cora |" in page.partition("<!-- summary:begin -->")[2]


def test_the_report_is_that_of_the_stored_records(tmp_path):
    stored = ROOT / "results"
    result = CliRunner().invoke(app, ["report", "--results", str(stored / "records"), "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert {path.name for path in tmp_path.iterdir()} == {
        "report.md",
        "report.html",
        "kernels-node.svg",
        "kernels-graph.svg",
    }
    assert (tmp_path / "report.md").read_bytes() == (stored / "report.md").read_bytes(), "run `hkconv report`"


def test_the_standing_in_the_readme_is_that_of_the_report():
    report = (ROOT / "results" / "report.md").read_text(encoding="utf-8")
    summary = report[report.index("\n## HKN against its baselines") : report.index("\n## Node")]
    differences = [float(found) for found in re.findall(r": ([+-][0-9.]+) \(", summary)]
    standing = rows_of(README, "results")
    shown = [float(found) for ((*_, last),) in standing.values() for found in re.findall(r" ([+-][0-9.]+)", last)]
    assert len(shown) >= 20
    # Both are rounded from the same number, the report's to two digits.
    assert all(min(abs(one - other) for other in differences) < 0.0551 for one in shown)


def test_citation_names_this_version_and_the_paper():
    assert CITATION["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= CITATION.keys()
    assert CITATION["version"] == hkconv.__version__
    (paper,) = CITATION["references"]
    assert f"title  = {{{paper['title']}}}" in README
    authors = " and ".join(f"{author['family-names']}, {author['given-names']}" for author in paper["authors"])
    assert f"author = {{{authors}}}" in README


def workflow(name: str) -> dict:
    return yaml.safe_load((ROOT / ".github" / "workflows" / f"{name}.yml").read_text(encoding="utf-8"))["jobs"]


def test_every_python_that_the_package_names_is_tested_and_gets_the_wheel():
    named = re.findall(r"Python :: (3\.\d+)$", "\n".join(PROJECT["project"]["classifiers"]), re.M)
    assert PROJECT["project"]["requires-python"] == f">={named[0]}"
    assert workflow("test")["test"]["strategy"]["matrix"]["python"] == named
    built = re.findall(r"cp3(\d+)-", PROJECT["tool"]["cibuildwheel"]["build"])
    assert [f"3.{minor}" for minor in built] == named
    images = re.findall(r"^FROM python:(3\.\d+)", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.M)
    assert {*images} <= {*named}


def test_only_what_was_tested_is_published_and_by_nobodys_password():
    jobs, waits = workflow("release"), ["publish"]
    for name in waits:
        needed = jobs[name].get("needs", [])
        waits += [needed] if isinstance(needed, str) else needed
    assert {"build", "test"} <= {*waits}
    # Trusted publishing: that job alone gets a token, and is given no other.
    assert [name for name, job in jobs.items() if "id-token" in job.get("permissions", {})] == ["publish"]
    assert not any("password" in step.get("with", {}) for step in jobs["publish"]["steps"])


def test_conda_recipe_has_this_version_and_what_pip_would_install():
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8"))
    assert recipe["context"]["version"] == hkconv.__version__
    wanted = {"python": PROJECT["project"]["requires-python"]}
    for requirement in PROJECT["project"]["dependencies"]:
        name, version = re.fullmatch(r"([\w-]+)(>=.+)", requirement).groups()
        wanted[CONDA_NAMES.get(name, name)] = version
    assert dict(entry.split() for entry in recipe["requirements"]["run"]) == wanted
    assert {entry.replace(" ", "") for entry in recipe["requirements"]["host"]} >= {
        *PROJECT["build-system"]["requires"]
    }


def test_the_image_is_built_from_what_it_is_given():
    given = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--)(.+) \S+$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.M)
    assert {name for names in copied for name in names.split()} == given
    assert {
        PROJECT["project"]["readme"],
        *PROJECT["project"]["license-files"],
        *PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"],
    } <= given


def test_changelog_begins_with_this_version():
    versions = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.M)
    released = [version for version in versions if version != "Unreleased"]
    assert released[0] == hkconv.__version__


def test_every_test_of_a_room_has_its_module():
    alone = set()
    for path in (ROOT / "tests").glob("*/**/test_*.py"):
        test = path.relative_to(ROOT / "tests")
        owner = ROOT if test.parts[0] == "benchmarks" else ROOT / "hkconv"
        module = owner / test.parent / test.stem.removeprefix("test_")
        if (owner / test.parts[0]).is_dir() and not (module.is_dir() or module.with_suffix(".py").is_file()):
            alone.add(test.as_posix())
    assert alone == OF_SEVERAL_MODULES
