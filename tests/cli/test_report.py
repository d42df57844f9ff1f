import os
import sys
from pathlib import Path

import pytest
from made_records import made_cell, made_record

from hkconv.experiments.store import append
from hkconv.tasks.recipe import make_recipe

RECORDS = made_cell([0.8, 0.7, 0.9]) + made_cell([0.6, 0.7, 0.5], variant="GCN", model="gcn")


def write_records(records, folder="results/records"):
    for record in records:
        append(Path(folder), record)


def test_the_report_of_a_folder_and_again(hkconv, in_empty_folder):
    write_records(RECORDS)
    result = hkconv("report")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[:2] == ["written: results/report.md", "written: results/report.html"]
    assert lines[-1] == "6 records, 0 damaged lines"
    text = Path("results/report.md").read_text()
    assert "| HKN | paper |" in text and "80.00 ± 10.00 (3 of 30)" in text
    before = {path: path.read_bytes() for path in Path("results").iterdir() if path.is_file()}
    assert len(before) == 4
    assert hkconv("report").exit_code == 0
    assert {path: path.read_bytes() for path in before} == before


def test_trials_are_told_of_and_are_no_results(hkconv, in_empty_folder):
    trials = [made_record(table="tuning-node", test=None, val=0.123, variant="GCN", model="gcn")]
    write_records([*RECORDS, *trials])
    path = Path("results/records/tuning-node/clean.csv")
    path.write_text(path.read_text() + "{}\n")
    result = hkconv("report")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1] == "6 records, 1 damaged line"
    text = Path("results/report.md").read_text()
    assert "### Trials of each system" in text and "| GCN | 1 x 1 |" in text and "12.30" not in text


def test_folders_of_choice(hkconv, in_empty_folder):
    write_records(RECORDS, "mine")
    assert hkconv("report", "--results", "mine", "--out", "deep/report").exit_code == 0
    assert sorted(os.listdir(in_empty_folder)) == ["deep", "mine"]
    assert "report.html" in os.listdir("deep/report")


def test_without_matplotlib_the_pages_have_no_plots(hkconv, in_empty_folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    write_records(made_cell([0.5], table="kernels-node", variant="K=2"))
    result = hkconv("report")
    assert result.exit_code == 0, result.output
    assert "figures need Matplotlib" in result.stderr and "pip install 'hkconv[viz]'" in result.stderr
    assert sorted(os.listdir("results")) == ["records", "report.html", "report.md"]


def test_a_damaged_line_is_named_left_out_and_kept(hkconv):
    write_records(RECORDS[:1])
    path = Path("results/records/node/clean.csv")
    header, row = path.read_text().splitlines()
    path.write_text(
        "\n".join((header, row, row[:30], row.replace(",0.8,", ",0.123,").replace("HKN,0", "HKN,one"))) + "\n"
    )
    content = path.read_bytes()
    result = hkconv("report")
    assert result.exit_code == 0, result.output
    assert "clean.csv, line 3: " in result.stderr and "clean.csv, line 4: " in result.stderr
    assert result.stdout.splitlines()[-1] == "1 record, 2 damaged lines"
    text = Path("results/report.md").read_text()
    assert "line 3: " in text and "12.30" not in text
    assert path.read_bytes() == content


def leave_nothing():
    pass


def leave_empty_folder():
    Path("results/records").mkdir(parents=True)


def leave_unknown_table():
    write_records([made_record(table="edges")])


def leave_damage_alone():
    leave_empty_folder()
    Path("results/records/node.jsonl").write_text("nothing\n")  # the form of hkconv 0.1


def leave_a_file_in_the_way():
    write_records(RECORDS)
    Path("results/records").rename("records")
    Path("results").rmdir()
    Path("results").write_text("in the way")


@pytest.mark.parametrize(
    "prepare, arguments, words",
    [
        (leave_nothing, (), "results must be a folder with records"),
        (leave_empty_folder, (), "results must be a folder with records"),
        (
            leave_unknown_table,
            (),
            "unknown table 'edges' of file results/records/edges/clean.csv; accepted: node",
        ),
        (leave_damage_alone, (), "has no record that can be read (1 damaged line)"),
        (leave_a_file_in_the_way, ("--results", "records"), "out must be a folder that can be written to"),
    ],
)
def test_bad_input_is_one_line_and_overwrites_nothing(hkconv, prepare, arguments, words):
    prepare()
    if Path("results").is_dir():
        Path("results/report.md").write_text("earlier")
    before = sorted(map(str, Path().rglob("*")))
    assert words in hkconv.fails("report", *arguments)
    assert sorted(map(str, Path().rglob("*"))) == before
    if Path("results").is_dir():
        assert Path("results/report.md").read_text() == "earlier"


def test_help_has_one_example_and_fits(hkconv):
    result = hkconv("report", "--help")
    assert result.stdout.count("Example: hkconv ") == 1
    assert max(map(len, result.stdout.splitlines())) <= 80


def small_record(**changes):
    settings = make_recipe(dataset="tree", models=("hkn",), hidden_dim=4, num_layers=1, epochs=3, num_splits=2)
    return made_record(dataset="tree", recipe=settings.flat(), **changes)


def test_the_best_network_by_validation_is_trained_again_for_a_page_that_the_report_links_to(hkconv, in_empty_folder):
    worse, better = small_record(split=0, val=0.2, test=0.9), small_record(split=1, val=0.6, test=0.1)
    leaking = small_record(split=0, val=1.0, protocol="published")
    write_records([worse, better, leaking])
    result = hkconv("report", "--explore", "tree")
    assert result.exit_code == 0, result.output
    page = Path("results/explorer/tree.html").read_text()
    assert "split 1, seed 0, validation accuracy" in page
    assert "- [tree](explorer/tree.html)" in Path("results/report.md").read_text()
    assert '<a href="explorer/tree.html">tree</a>' in Path("results/report.html").read_text()


def test_a_page_of_a_dataset_without_trainings_is_refused_and_nothing_written(hkconv, in_empty_folder):
    write_records([small_record(model="gcn", variant="GCN")])
    result = hkconv("report", "--explore", "tree")
    assert result.exit_code == 2
    assert "no training of HKN on dataset 'tree'" in result.stderr
    assert os.listdir("results") == ["records"]
