import json

import pytest
import torch

from hkconv.engine import measuring
from hkconv.errors import InputError
from hkconv.experiments import bench
from hkconv.experiments.bench import (
    HUB_SHARE,
    TARGETS,
    VARIANTS,
    LayerPlan,
    MeasuredStep,
    Shape,
    check_targets,
    check_variants,
    hub_share,
    make_edges,
    make_problem,
    parse_shape,
    peak_bytes,
    probe_memory,
    ratios,
    run_layers,
    skip_reason,
    target_shares,
)

CPU = torch.device("cpu")
SHAPE = Shape(30, 200, 3, 4)
DENSE = Shape(1000, 100000, 2, 64)
LARGE = Shape(200000, 4000000, 8, 64)
PLAN = LayerPlan((SHAPE,), ("uniform", "power-law"), ("reference", "gcn"), CPU, budget=0.02, memory=False)


def test_parses_what_it_prints():
    shape = parse_shape(" 10, 20,3,4")
    assert shape == Shape(nodes=10, edges=20, kernels=3, dim=4)
    assert parse_shape(str(shape)) == shape


@pytest.mark.parametrize("text", ["", "1,2,3", "1,2,3,4,5", "1,2,3,x", "0,2,3,4", "1,2,-3,4", "1,2,3,4.5"])
def test_refuses_other_text(text):
    with pytest.raises(InputError, match="shape must be four whole numbers"):
        parse_shape(text)


def test_refuses_unknown_targets():
    with pytest.raises(InputError, match="targets must be uniform or power-law, got 'even'"):
        check_targets(("uniform", "even"))


@pytest.mark.parametrize("targets", TARGETS)
@pytest.mark.parametrize("nodes, edges", [(1, 1), (5, 1000), (3000, 20001)])
def test_exactly_the_edges_asked_for_and_the_same_for_a_seed(targets, nodes, edges):
    made = make_edges(nodes, edges, targets, seed=3)
    assert made.shape == (2, edges)
    assert made.dtype == torch.int64
    assert made.min() >= 0 and made.max() < nodes
    assert torch.equal(made, make_edges(nodes, edges, targets, seed=3))
    if nodes > 1:
        assert not torch.equal(made, make_edges(nodes, edges, targets, seed=4))


@pytest.mark.parametrize("nodes", [100, 2277, 200000])
def test_shares_are_zipf_with_bounded_hubs(nodes):
    share = target_shares(nodes)
    assert share.sum().item() == pytest.approx(1)
    assert share.max().item() == pytest.approx(HUB_SHARE)
    assert (share.diff() <= 1e-15).all()
    tail = torch.arange(nodes // 2, nodes)
    assert torch.allclose(share[tail] * (tail + 1), share[tail[0]] * (tail[0] + 1))


def test_the_largest_hub_has_its_share_and_uniform_targets_have_none():
    assert hub_share(make_edges(5000, 200000, "power-law")) == pytest.approx(HUB_SHARE, rel=0.1)
    assert hub_share(make_edges(5000, 200000, "uniform")) < 0.001


def test_hubs_do_not_lie_side_by_side():
    counts = make_edges(5000, 200000, "power-law")[1].bincount(minlength=5000)
    hubs = counts.topk(3).indices.sort().values
    assert (hubs.diff() > 1).all()


@pytest.mark.parametrize("name", ["reference", "fused", "hybonet", "gcn", "gat"])
def test_every_variant_gives_all_gradients(name):
    step = MeasuredStep(name, make_problem(SHAPE, "power-law", 0, CPU))
    gradients = step.train()
    assert step.forward().shape == step.x.shape
    assert len(gradients) == 1 + len(list(step.layer.parameters()))
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_forms_of_the_convolution_have_the_same_weights():
    problem = make_problem(SHAPE, "uniform", 0, CPU)
    torch.testing.assert_close(
        MeasuredStep("fused", problem).forward(), MeasuredStep("reference", problem).forward(), rtol=1e-4, atol=1e-5
    )


def test_the_problem_follows_from_its_arguments():
    first, second = (make_problem(SHAPE, "uniform", 5, CPU) for _ in range(2))
    assert torch.equal(first.points, second.points)
    assert torch.equal(first.edge_index, second.edge_index)


@pytest.mark.parametrize("name", ["reference", "compiled"])
def test_what_does_not_fit_is_skipped_with_its_size(name):
    assert skip_reason(name, LARGE, CPU, available=10**13) is None
    reason = skip_reason(name, LARGE, CPU, available=20 * 10**9)
    assert reason == f"would need about {peak_bytes(name, LARGE) / 1e9:.0f} GB of memory, 20 GB are free"
    assert skip_reason(name, LARGE, torch.device("cuda"), available=1) is None


def test_a_missing_backend_is_named(monkeypatch):
    monkeypatch.setattr(bench, "BACKENDS", ("auto", "reference"))
    assert skip_reason("fused", SHAPE, torch.device("cuda")) == "no fused backend for cuda in this version"


def test_names_are_checked():
    assert check_variants(VARIANTS) == VARIANTS
    with pytest.raises(InputError, match="unknown variant 'GCN'; did you mean 'gcn'"):
        check_variants(("GCN",))
    for names in [(), ("gcn", "gcn")]:
        with pytest.raises(InputError, match=r"variants must be one or more of reference, compiled, .*, each once"):
            check_variants(names)


def test_a_child_finds_the_peak():
    found = probe_memory("gcn", DENSE, "uniform", 0, limit=300)
    # Messages of all edges exist at once; their number times the width is the least there can be.
    assert found["bytes"] > 4 * DENSE.edges * DENSE.dim


def test_a_child_that_takes_too_long_is_ended():
    assert probe_memory("gcn", DENSE, "uniform", 0, limit=0.05) == {"failed": "was not ready within 0.05 s"}


def test_a_child_that_fails_says_why():
    assert "KeyError: 'nonsense'" in probe_memory("nonsense", DENSE, "uniform", 0, limit=300)["failed"]


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
    make_step = bench.MeasuredStep

    def broken(name, problem):
        if name == "reference":
            raise ValueError("no such thing\nand more")
        return make_step(name, problem)

    monkeypatch.setattr(bench, "MeasuredStep", broken)
    (cell, _) = run_layers(PLAN)["cells"]
    assert cell["variants"]["reference"] == {"skipped": "failed: no such thing"}
    assert cell["variants"]["gcn"]["train"]["repeats"] >= 3


def test_what_does_not_compile_in_time_is_neither_timed_nor_forgotten(monkeypatch):
    monkeypatch.setattr(bench, "probe_memory", lambda *_: {"failed": "was not ready within 180 s"})
    plan = LayerPlan((SHAPE,), ("uniform",), ("compiled", "gcn"), CPU, budget=0.02, memory=False)
    (cell,) = run_layers(plan)["cells"]
    assert cell["variants"]["compiled"] == {"skipped": "was not ready within 180 s"}
    assert "train" in cell["variants"]["gcn"]


def test_an_interrupt_keeps_what_was_measured(monkeypatch):
    def one_time_then_interrupt(calls, budget, timer, samples):
        samples["reference"] = [2.0]
        samples["gcn"] = []
        raise KeyboardInterrupt

    monkeypatch.setattr(measuring, "measure", one_time_then_interrupt)
    saved = []
    document = run_layers(PLAN, lambda document: saved.append(document))
    assert document["interrupted"]
    assert saved == [document]
    (cell,) = document["cells"]
    assert cell["variants"]["reference"]["forward"]["seconds"] == [2.0]
    assert cell["variants"]["gcn"] == {}


def test_ratios_are_of_one_run_and_left_out_where_a_part_is_missing():
    results = {
        "reference": {"train": {"median": 6.0}, "memory": {"bytes": 100}},
        "compiled": {"skipped": "slow"},
        "fused": {"train": {"median": 2.0}, "memory": {"bytes": 25}},
        "hybonet": {"memory": {"bytes": None}},
    }
    assert ratios(results) == {"train reference/fused": pytest.approx(3), "memory fused/reference": pytest.approx(0.25)}
