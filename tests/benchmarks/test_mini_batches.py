import mini_batches
import pytest
from mini_batches import measure_here, run_mini_batches

from hkconv.errors import InputError


def test_trains_predicts_and_compares():
    found = measure_here({"nodes": 400, "edges": 3000, "kernels": 2, "dim": 4}, batches=3, batch_size=50, seed=0)
    for part in ("sorting", "training", "prediction", "at_once"):
        assert found[part]["seconds"] > 0 < found[part]["cpu_seconds"] and found[part]["peak_rss_bytes"] > 10**8
    assert found["largest_difference"] <= 1e-5 * max(1, found["largest_logit"])


def test_each_size_is_asked_of_a_process_of_its_own(monkeypatch):
    orders = []

    def ask(function, order, limit):
        orders.append((function, order))
        return {"failed": "was not ready"}

    monkeypatch.setattr(mini_batches, "ask", ask)
    document = run_mini_batches((0.01, 0.02), batches=2, batch_size=5, seed=3)
    assert [order["shape"]["edges"] for _, order in orders] == [200_000, 400_000]
    assert {function for function, _ in orders} == {"mini_batches:measure_here"}
    assert orders[0][1] | {"shape": None} == {"shape": None, "batches": 2, "batch_size": 5, "seed": 3}
    assert [cell["failed"] for cell in document["cells"]] == ["was not ready"] * 2


def test_too_many_batches_are_refused():
    with pytest.raises(InputError, match=r"scale 0.01 has 10000 nodes, too few for 200 batches of 1024: lower batches"):
        run_mini_batches((0.01,))
