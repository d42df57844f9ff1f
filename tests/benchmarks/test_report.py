import pytest
from report import NOT_YET, SECTIONS, render_page, render_short_epochs, replace_section

from hkconv.engine.files import write_json
from hkconv.errors import InputError

SHAPE = {"nodes": 2277, "edges": 62000, "kernels": 6, "dim": 16}
COMMON = {
    "device": "cpu",
    "started": "2026-01-02T03:04:05+00:00",
    "machine": {"cpu": "Some CPU", "cores": 2},
    "versions": {"python": "3.12.0", "hkconv": "0.1.0", "torch": "2.11.0"},
    "seed": 0,
    "interrupted": False,
}


def times(median):
    return {"median": median, "quartiles": [median / 2, 2 * median]}


LAYERS = {
    **COMMON,
    "benchmark": "layers",
    "protocol": {},
    "cells": [
        {
            "shape": SHAPE,
            "targets": "uniform",
            "variants": {
                "reference": {"train": times(0.25), "forward": times(0.1), "memory": {"bytes": 2_000_000}},
                "compiled": {"skipped": "was not ready within 180 s"},
                "fused": {"train": times(0.02), "forward": times(0.01), "memory": {"bytes": 500_000}},
            },
            "ratios": {"train reference/fused": 12.5, "memory fused/reference": 0.25},
        }
    ],
    "growth": [{"shape": SHAPE, "memory": {"bytes": 7_000_000}}],
}
EPOCHS = {
    **COMMON,
    "machine": {"cpu": "Some CPU", "cores": 2, "gpu": "Some GPU"},
    "benchmark": "epochs",
    "protocol": {"recipe": {"capture": True}},
    "cells": [
        {
            "dataset": "texas",
            "models": {"hkn": {"epoch": times(0.003)}, "hybonet": {"epoch": times(0.002)}},
            "ratios": {"hkn/hybonet": 1.5},
        },
        {"dataset": "ptc", "models": {}, "ratios": {}, "skipped": "no data"},
    ],
}
LARGE = {
    **COMMON,
    "benchmark": "large-graph",
    "shape": SHAPE,
    "epoch_seconds": [5.0, 4.0],
    "peak_rss_bytes": 3_000_000_000,
}


def of_size(factor):
    measured = {"seconds": 50.0 * factor, "cpu_seconds": 20.0 * factor, "peak_rss_bytes": 1_000_000_000 * factor}
    return {
        "shape": {**SHAPE, "nodes": 1000 * factor},
        "training": {"seconds": 20.0, "cpu_seconds": 10.0, "peak_rss_bytes": 2_000_000_000},
        "prediction": measured,
        "at_once": measured,
        "largest_difference": 1.5e-6,
    }


MINI_BATCHES = {
    **COMMON,
    "benchmark": "mini-batches",
    "protocol": {"batches": 200},
    "cells": [of_size(1), of_size(4), {"shape": {**SHAPE, "nodes": 9000}, "failed": "MemoryError"}],
}


@pytest.fixture
def page(tmp_path):
    path = tmp_path / "page.md"
    sections = "\n".join(f"before {name}\n<!-- {name}:begin -->\nold\n<!-- {name}:end -->" for name in SECTIONS)
    path.write_text(sections + "\nend\n")
    return path


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results"
    folder.mkdir()
    return folder


def test_renders_figures_ratios_and_reasons(page, results):
    for name, document in {
        "layers-cpu": LAYERS,
        "epochs-cuda": EPOCHS,
        "large-graph": LARGE,
        "mini": MINI_BATCHES,
    }.items():
        write_json(results / f"{name}.json", document)
    render_page(page, results)
    text = page.read_text()
    assert "old" not in text
    row = "| 2,277, 62,000, 6, 16 | uniform | 250 (125 to 500) | – | 20.0 (10.0 to 40.0) | 12.5 | – |"
    assert row in text
    assert "| 2,277, 62,000, 6, 16 | uniform | 2.00 | – | 0.50 | 0.25 | – |" in text
    assert "* compiled at 2277, 62000, 6, 16, uniform: was not ready within 180 s" in text
    assert "| 2,277 | 62,000 | 6 | 16 | 7.00 |" in text
    assert "### Some GPU, captured steps" in text
    assert "| texas | 3.00 (1.50 to 6.00) | 2.00 (1.00 to 4.00) | 1.50 | 21.0 | 7.60 | 8.40 | 25.0 | 2.8 |" in text
    assert "* ptc: no data" in text
    assert "| Some CPU, 2 cores | 2,277 | 62,000 | 6 | 16 | 5.0 | 4.0 | 3.0 |" in text
    assert "| 1,000 | 62,000 | 100 (50.0) | 2.0 | 50.0 (20.0) | 1.0 | 50.0 (20.0) | 1.0 | 1.5e-06 |" in text
    assert "nodes and edges x 4, time of a batch x 1, memory of training x 1, time of prediction x 4, memory of" in text
    assert "* 9,000 nodes: MemoryError" in text


def test_rendering_twice_changes_nothing(page, results):
    write_json(results / "layers-cpu.json", LAYERS)
    render_page(page, results)
    once = page.read_text()
    render_page(page, results)
    assert page.read_text() == once
    assert once.startswith("before layers\n")
    assert once.endswith("\nend\n")


def test_parts_of_one_run_share_a_table_and_other_machines_have_their_own(page, results):
    other = {**LAYERS, "machine": {"cpu": "Other CPU", "cores": 4}}
    for name, document in {"layers-1": LAYERS, "layers-2": LAYERS, "layers-3": other}.items():
        write_json(results / f"{name}.json", document)
    render_page(page, results)
    layers = page.read_text().partition("before growth")[0]
    assert (layers.count("### Some CPU, 2 cores"), layers.count("### Other CPU, 4 cores")) == (1, 1)
    assert layers.count("| 2,277, 62,000, 6, 16 | uniform | 250") == 3


def test_without_results_the_page_says_so(page, results):
    render_page(page, results)
    assert page.read_text().count("No result file yet.") == len(SECTIONS)


def test_a_page_without_markers_is_refused():
    with pytest.raises(InputError, match="must have the markers <!-- layers:begin -->"):
        replace_section("nothing", "layers", "content")


def test_short_epochs_have_one_column_for_each_model_and_machine():
    on_cpu = {**EPOCHS, "machine": COMMON["machine"], "protocol": {"recipe": {"capture": False}}}
    on_cpu["cells"] = [{"dataset": "texas", "models": {"hkn": {"epoch": times(0.25)}, "gcn": {"skipped": "no time"}}}]
    assert render_short_epochs([LAYERS, EPOCHS, on_cpu], ("texas", "ptc", "cora"), ("hkn", "gcn")).splitlines() == [
        "|  | HKN, Some GPU, captured | HKN, CPU | GCN, CPU |",
        "| --- | --- | --- | --- |",
        "| texas | 3.00 | 250 | – |",
        "| ptc | – | – | – |",
        "| cora | – | – | – |",
    ]
    assert render_short_epochs([LAYERS], ("texas",), ("hkn",)) == NOT_YET


@pytest.mark.parametrize("name, document", [("layers", LAYERS), ("growth", LAYERS), ("epochs", EPOCHS)])
def test_a_table_names_the_version_that_it_is_of(name, document):
    assert SECTIONS[name]([document]).endswith("2026-01-02, hkconv 0.1.0, python 3.12.0, torch 2.11.0, seed 0.")
