import layers
import torch
from layers import measure_growth

from hkconv.experiments.bench import LayerPlan, Shape

SHAPE = Shape(30, 200, 2, 4)


def test_growth_is_measured_or_says_why_not(monkeypatch):
    answers = iter([{"bytes": 5, "method": "m"}, {"failed": "broke"}])
    monkeypatch.setattr(layers, "probe_memory", lambda *_: next(answers))
    document, saved = {"growth": [], "interrupted": False}, []
    plan = LayerPlan((), (), ("fused",), torch.device("cpu"))
    measure_growth(document, (SHAPE, SHAPE), plan, lambda document: saved.append(len(document["growth"])))
    first, second = document["growth"]
    assert first["memory"]["bytes"] == 5
    assert second["skipped"] == "broke"
    assert saved == [1, 2, 2]
