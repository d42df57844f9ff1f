import os
import random

import pytest
from made_records import made_cell, made_failure, made_record

from hkconv.errors import InputError
from hkconv.report.contest import SUMMARY
from hkconv.report.document import OWN_TABLES, TITLES, build_report, draw_plots, write_report
from hkconv.report.render import as_html, as_markdown

PAPER = {
    "node": {"texas": {"GCN": [55.14, 5.16], "HKN": [90.94, 0.66]}},
    "kernels-graph": {"ptc": {f"K={size}": [60.0 + size, 4.0] for size in range(2, 10)}},
}
RECORDS = [
    *made_cell([0.8, 0.7, 0.9]),
    *made_cell([0.6, 0.7, 0.5], variant="GCN", model="gcn", device="cuda: H200", commit=None),
    *made_cell([0.33], quick=True, when="2026-03-04T00:00:00+00:00"),
    *(made_record(table="kernels-node", variant=f"K={size}", test=size / 10) for size in range(2, 10)),
    made_failure(table="ablations", variant="HKN-train", split=0),
    made_failure(table="ablations", variant="HKN-train", split=1),
]


def sections(text):
    """The text under each heading of level 2."""
    parts = text.split("\n## ")[1:]
    return {part.split("\n", 1)[0]: part.split("\n", 1)[1] for part in parts}


def test_every_table_has_its_section_with_or_without_results():
    found = sections(as_markdown(build_report(RECORDS, paper=PAPER)))
    of_paper = [title for table, title in TITLES.items() if table not in OWN_TABLES]
    assert list(found) == [SUMMARY, *of_paper, "Failures", "Provenance"]
    assert "| HKN | paper | 90.94 ± 0.66 |" in found[TITLES["node"]]
    assert "|  | clean | **80.00 ± 10.00 (3)** |" in found[TITLES["node"]]
    assert "| HKN | GCN" not in found[TITLES["graph"]]
    assert found[TITLES["graph"]].strip() == "No results yet."
    assert "![Test score" in found[TITLES["kernels-node"]]
    assert "| K=9 | paper | 69.00 ± 4.00 |" in found[TITLES["kernels-graph"]]


def test_links_have_a_section_once_there_is_a_record_of_them():
    paper = {**PAPER, "links": {"airport": {"HGCN": [96.4, 0.1]}}}
    assert TITLES["links"] not in sections(as_markdown(build_report(RECORDS, paper=paper)))
    link = {"table": "links", "dataset": "airport", "metric": "ROC-AUC", "test_ap": 0.9}
    records = [*RECORDS, *made_cell([0.8, 0.9], **link), *made_cell([0.7, 0.6], variant="GCN", model="gcn", **link)]
    found = sections(as_markdown(build_report(records, paper=paper)))[TITLES["links"]]
    assert "| system |  | airport (ROC-AUC) |" in found
    assert "| HGCN | paper | 96.40 ± 0.10 |" in found
    assert "| HKN | clean | **85.00 ± 7.07 (2)** |\n|  | clean, AP | 90.00 ± 0.00 |" in found
    assert "airport: HKN is at or above every baseline" in found


def test_quick_figures_are_labelled_and_stand_apart():
    text = sections(as_markdown(build_report(RECORDS, paper=PAPER)))[TITLES["node"]]
    full, quick = text.split("### Quick runs")
    assert "33.00" not in full and "quick" not in full
    assert "|  | clean, quick | 33.00 (1) |" in quick


def test_failures_damage_and_other_recipes_are_listed():
    plan = [{**made_record(), "recipe": {**made_record()["recipe"], "lr": 0.5}}]
    found = sections(as_markdown(build_report(RECORDS, ["node.jsonl, line 7: not valid JSON"], PAPER, plan)))
    expected = "- ablations, texas, clean, HKN-train: split/seed 0/0, 1/0: the loss became NaN in epoch 3"
    assert expected in found["Failures"]
    assert "- node.jsonl, line 7: not valid JSON" in found["Damaged lines"]
    assert "- node, texas, clean, HKN" in found["Other recipes"]
    assert "- node: " in found["No longer trained"] and "HKN" not in found["No longer trained"].split("- node: ")[1]


def test_provenance():
    text = sections(as_markdown(build_report(RECORDS)))["Provenance"]
    for line in (
        "records: 17, 1 of them quick; 2 trainings failed",
        "dates: 2026-01-02T03:04:05+00:00 to 2026-03-04T00:00:00+00:00",
        "devices: cpu (14); cuda: H200 (3)",
        "commits: abc1234 (14); unknown (3)",
        "versions: python 3.11.0, torch 2.11.0 (17)",
    ):
        assert f"- {line}\n" in text
    # 3 + 3 + 1 + 8 trainings of 12 seconds.
    assert "training time: 0.1 hours" in text


def test_the_same_records_give_the_same_bytes_in_any_order(tmp_path):
    def files(records, folder):
        blocks = build_report(records, paper=PAPER)
        return [path.read_bytes() for path in write_report(folder, blocks, draw_plots(blocks))]

    expected = files(RECORDS, tmp_path / "a")
    for seed in range(3):
        assert files(random.Random(seed).sample(RECORDS, len(RECORDS)), tmp_path / str(seed)) == expected


def test_files(tmp_path):
    blocks = build_report(RECORDS, paper=PAPER)
    drawings = draw_plots(blocks)
    written = write_report(tmp_path / "new" / "folder", blocks, drawings)
    names = ["report.md", "report.html", "kernels-node.svg", "kernels-graph.svg"]
    assert [path.name for path in written] == names
    assert sorted(os.listdir(tmp_path / "new" / "folder")) == sorted(names)
    page = written[1].read_text()
    assert page == as_html(blocks, drawings)
    for path in written[2:]:
        assert path.read_text() == drawings[path.name]
        assert path.read_text().partition("<svg")[2].strip() in page


def test_without_plots_there_are_the_pages_alone(tmp_path):
    blocks = build_report(RECORDS, paper=PAPER)
    assert [path.name for path in write_report(tmp_path, blocks)] == ["report.md", "report.html"]
    assert "![Test score in percent" in (tmp_path / "report.md").read_text()


def test_no_records_and_unknown_tables_are_refused():
    with pytest.raises(InputError, match="no record of a training"):
        build_report([])
    with pytest.raises(InputError, match="unknown table 'edges' in a record; accepted: node, graph"):
        build_report([made_record(table="edges")])
