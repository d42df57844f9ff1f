import pytest

from hkconv.tasks import distances as module

SMALL = ("--epochs", 2, "--num-splits", 2, "--models", "gcn,mlp", "--hidden-dim", 4, "--device", "cpu", "--out", "run")


@pytest.fixture
def few_pairs(monkeypatch):
    monkeypatch.setattr(module, "MOST_PAIRS", 20 * 1093)


def test_prints_three_numbers_of_every_model(hkconv, few_pairs):
    assert hkconv("train", "disease", "--task", "link", *SMALL).exit_code == 0
    result = hkconv("distances", "run")
    assert result.exit_code == 0, result.output
    head, _, *rows, note = result.stdout.splitlines()
    assert head.split() == ["model", "trainings", "average", "distortion", "worst", "distortion", "mAP", "%"]
    for name, row in zip(("gcn", "mlp"), rows, strict=True):
        model, trainings, average, worst, precision = row.split()
        assert (model, trainings) == (name, "2")
        assert 0 < float(average) < 1 < float(worst) and 0 < float(precision) < 100
    assert note == "distances from a sample of 20 of the 1,093 nodes to all others, hidden links included"


def test_other_runs_are_refused(hkconv):
    assert "run must be a folder" in hkconv.fails("distances", "nowhere")
    assert hkconv("train", *SMALL).exit_code == 0
    assert "run run has the node task" in hkconv.fails("distances", "run")
