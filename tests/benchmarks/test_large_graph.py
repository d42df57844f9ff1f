import pytest
from large_graph import LARGE, run_large_graph, scaled

from hkconv.errors import InputError
from hkconv.experiments import bench
from hkconv.experiments.bench import Shape


def test_trains_and_notes_time_and_memory():
    document = run_large_graph(Shape(300, 2000, 2, 4), num_layers=1, epochs=2)
    assert len(document["epoch_seconds"]) == len(document["losses"]) == 2
    # The kernel counts pages of each thread in batches, so that the two may differ a little.
    assert document["peak_rss_bytes"] >= 0.99 * document["rss_before_bytes"] > 0


def test_scale():
    assert scaled(1) == LARGE
    assert (scaled(0.01).nodes, scaled(0.01).edges) == (10_000, 200_000)
    for wrong in (0, -1, 2):
        with pytest.raises(InputError, match="scale must be above 0 and at most 1"):
            scaled(wrong)


def test_what_cannot_fit_is_refused_before_it_starts(monkeypatch):
    monkeypatch.setattr(bench, "available_bytes", lambda: 10**9)
    with pytest.raises(InputError, match="would need about"):
        run_large_graph(LARGE, backend="reference")
