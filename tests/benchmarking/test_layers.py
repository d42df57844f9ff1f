import json

import pytest
import torch

from hkconv.benchmarking import layers
from hkconv.benchmarking.layers import LayerPlan, ratios, run_layers
from hkconv.benchmarking.shapes import Shape

SHAPE = Shape(30, 200, 2, 4)
PLAN = LayerPlan(
    (SHAPE,), ("uniform", "power-law"), ("reference", "gcn"), torch.device("cpu"), budget=0.02, memory=False
)


def test_measures_every_variant_and_writes_after_every_cell():
    saved = []
    document = run_layers(PLAN, lambda document: saved.append(json.dumps(document, allow_nan=False)))
    assert [cell["targets"] for cell in document["cells"]] == ["uniform", "power-law"]
    assert [len(json.loads(text)["cells"]) for text in saved] == [1, 2, 2]
    for cell in document["cells"]:
        for result in cell["variants"].values():
            for mode in ("forward", "train"):
                assert result[mode]["repeats"] >= 3
                assert 0 < result[mode]["min"] <= result[mode]["median"]
    assert {"cpu", "cores", "threads"} <= set(document["machine"])
    assert {"python", "torch", "hkconv"} <= set(document["versions"])


def test_a_variant_that_fails_leaves_the_others(monkeypatch):
    make_step = layers.Step

    def broken(name, problem):
        if name == "reference":
            raise ValueError("no such thing\nand more")
        return make_step(name, problem)

    monkeypatch.setattr(layers, "Step", broken)
    (cell, _) = run_layers(PLAN)["cells"]
    assert cell["variants"]["reference"] == {"skipped": "failed: no such thing"}
    assert cell["variants"]["gcn"]["train"]["repeats"] >= 3


def test_what_does_not_compile_in_time_is_neither_timed_nor_forgotten(monkeypatch):
    monkeypatch.setattr(layers, "probe_memory", lambda *_: {"failed": "was not ready within 180 s"})
    plan = LayerPlan((SHAPE,), ("uniform",), ("compiled", "gcn"), torch.device("cpu"), budget=0.02, memory=False)
    (cell,) = run_layers(plan)["cells"]
    assert cell["variants"]["compiled"] == {"skipped": "was not ready within 180 s"}
    assert "train" in cell["variants"]["gcn"]


def test_an_interrupt_keeps_what_was_measured(monkeypatch):
    def one_time_then_interrupt(calls, budget, timer, samples):
        samples["reference"] = [2.0]
        samples["gcn"] = []
        raise KeyboardInterrupt

    monkeypatch.setattr(layers, "measure", one_time_then_interrupt)
    saved = []
    document = run_layers(PLAN, lambda document: saved.append(document))
    assert document["interrupted"]
    assert saved == [document]
    (cell,) = document["cells"]
    assert cell["variants"]["reference"]["forward"]["seconds"] == [2.0]
    assert cell["variants"]["gcn"] == {}


def test_growth_is_measured_or_says_why_not(monkeypatch):
    monkeypatch.setattr(layers, "skip_reason", lambda *_: None)
    answers = iter([{"bytes": 5, "method": "m"}, {"failed": "broke"}])
    monkeypatch.setattr(layers, "probe_memory", lambda *_: next(answers))
    plan = LayerPlan((), (), ("fused",), torch.device("cpu"), growth=(SHAPE, SHAPE))
    first, second = run_layers(plan)["growth"]
    assert first["memory"]["bytes"] == 5
    assert second["skipped"] == "broke"


def test_ratios_are_of_one_run_and_left_out_where_a_part_is_missing():
    results = {
        "reference": {"train": {"median": 6.0}, "memory": {"bytes": 100}},
        "compiled": {"skipped": "slow"},
        "fused": {"train": {"median": 2.0}, "memory": {"bytes": 25}},
        "hybonet": {"memory": {"bytes": None}},
    }
    assert ratios(results) == {"train reference/fused": pytest.approx(3), "memory fused/reference": pytest.approx(0.25)}
