import json
from dataclasses import asdict

import attention
import pytest
import torch
from attention import AttentionPlan, Sequences, Step, measure_here, peak_bytes, run_attention
from nights import nightly

from hkconv.errors import InputError

CPU = torch.device("cpu")


@pytest.mark.parametrize("variants", [("kernel", "centroid", "euclidean"), *nightly((attention.VARIANTS,))])
def test_measures_every_variant_and_writes_after_every_cell(variants):
    saved = []
    plan = AttentionPlan((4, 8), (64,), variants, CPU, positions=8, budget=0.02, memory=False)
    document = run_attention(plan, lambda document: saved.append(json.dumps(document, allow_nan=False)))
    assert [cell["sequences"] for cell in document["cells"]] == [
        {"batch": 2, "length": 4, "dim": 64},
        {"batch": 1, "length": 8, "dim": 64},
    ]
    assert [len(json.loads(text)["cells"]) for text in saved] == [1, 2, 2]
    for cell in document["cells"]:
        assert set(cell["variants"]) == set(variants)
        assert all(
            result[mode]["repeats"] >= 3 for result in cell["variants"].values() for mode in ("forward", "train")
        )
        assert cell["ratios"]["train centroid/kernel"] == pytest.approx(
            cell["variants"]["centroid"]["train"]["median"] / cell["variants"]["kernel"]["train"]["median"]
        )


def test_fused_and_plain_variants_compute_the_same():
    steps = [Step(name, Sequences(2, 9, 64), 0, CPU) for name in ("kernel", "reference")]
    torch.testing.assert_close(*(step.forward() for step in steps))
    for fused, plain in zip(*(step.train() for step in steps)):
        torch.testing.assert_close(fused, plain, rtol=1e-3, atol=1e-4)


def test_euclidean_variant_is_torchs_multihead_attention():
    step = Step("euclidean", Sequences(2, 9, 64), 0, CPU)
    layer = torch.nn.MultiheadAttention(64, 4, batch_first=True)
    with torch.no_grad():
        layer.in_proj_weight.copy_(step.layer.project.weight)
        layer.in_proj_bias.copy_(step.layer.project.bias)
        layer.out_proj.load_state_dict(step.layer.out.state_dict())
    torch.testing.assert_close(step.forward(), layer(step.x, step.x, step.x)[0].detach(), rtol=1e-4, atol=1e-5)


def test_a_variant_that_fails_or_does_not_fit_leaves_the_others(monkeypatch):
    monkeypatch.setattr(attention, "available_bytes", lambda: 10**6)
    make_layer = attention.make_layer

    def broken(name, dim):
        if name == "kernel":
            raise ValueError("no such thing\nand more")
        return make_layer(name, dim)

    monkeypatch.setattr(attention, "make_layer", broken)
    plan = AttentionPlan((64,), (64,), ("reference", "kernel", "euclidean"), CPU, 64, budget=0.02, memory=False)
    (cell,) = run_attention(plan)["cells"]
    assert cell["variants"]["reference"]["skipped"].startswith("would need about 0 GB")
    assert cell["variants"]["kernel"] == {"skipped": "failed: no such thing"}
    assert cell["variants"]["euclidean"]["train"]["repeats"] >= 3


def test_plain_form_needs_about_what_is_foretold():
    sequences = Sequences(1, 64, 64)
    found = measure_here("reference", asdict(sequences), 0)["bytes"]
    assert found is None or 0.5 * peak_bytes(sequences) < found < 1.5 * peak_bytes(sequences)


def test_unknown_names_are_refused():
    with pytest.raises(InputError, match="variants must be names from reference, kernel"):
        AttentionPlan((4,), (64,), ("linear",), CPU)
    with pytest.raises(InputError, match="dim must be one of 64, 128, 256, got 65"):
        AttentionPlan((4,), (65,), ("kernel",), CPU)
