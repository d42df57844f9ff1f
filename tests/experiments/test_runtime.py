import pytest
import torch

from hkconv.errors import InputError
from hkconv.experiments import runtime
from hkconv.experiments.epochs import PAPER_DATASETS
from hkconv.experiments.store import append, identity, read
from hkconv.experiments.tables import Choice, Execution

CPU = torch.device("cpu")


def test_the_papers_datasets_and_systems():
    timings = runtime.list_timings(Choice(), Execution("cpu"), CPU, strict=True)
    assert len(timings) == len(PAPER_DATASETS) * 5
    assert {timing.variant for timing in timings} == {"HKN", "HyboNet", "H2H-GCN", "HGCN", "GCN"}
    with pytest.raises(InputError, match="unknown system 'K=3'"):
        runtime.list_timings(Choice(systems=("K=3",)), Execution("cpu"), CPU, strict=True)
    assert runtime.list_timings(Choice(systems=("K=3",)), Execution("cpu"), CPU, strict=False) == []


def test_a_time_is_a_record(monkeypatch, tmp_path):
    monkeypatch.setattr(runtime, "PAPER_DATASETS", ("tree",))
    monkeypatch.setattr(runtime, "QUICK_BUDGET", 0.05)
    timings = runtime.list_timings(Choice(systems=("HKN", "GCN"), quick=True), Execution("cpu"), CPU, strict=True)
    told = []
    records = list(runtime.time_epochs(timings, CPU, told.append))
    assert [identity(record) for record in records] == [timing.identity for timing in timings]
    assert all(record["test"] == record["timing"]["median"] > 0 for record in records)
    assert records[0]["metric"] == "seconds an epoch"
    assert "tree: timing" in told
    for record in records:
        append(tmp_path, record)
    found, damaged = read(tmp_path, ("runtime",))
    assert [{**one, "recipe": {}} for one in found] == [{**one, "recipe": {}} for one in records] and damaged == []
    assert list(map(identity, found)) == list(map(identity, records))


def test_a_system_that_does_not_run_is_a_failure(monkeypatch, tmp_path):
    monkeypatch.setattr(runtime, "PAPER_DATASETS", ("tree",))
    monkeypatch.setattr(runtime, "SYSTEMS", {"GMT": "gmt"})
    timings = runtime.list_timings(Choice(quick=True), Execution("cpu"), CPU, strict=True)
    (record,) = runtime.time_epochs(timings, CPU, lambda _: None)
    assert "task" in record["error"]
