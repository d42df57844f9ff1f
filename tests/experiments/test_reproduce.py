from dataclasses import replace

import pytest

from hkconv.errors import InputError
from hkconv.experiments import reproduce as module
from hkconv.experiments import runtime, store, training
from hkconv.experiments.pool import SPOILED, Lost
from hkconv.experiments.recipe_files import read_table
from hkconv.experiments.reproduce import Order, TimeLeft, Watcher, reproduce
from hkconv.experiments.tables import Choice, Execution, list_cells

FIGURES = ("test", "val", "test_loss", "val_loss", "best_epoch", "epochs", "parameters")


@pytest.fixture
def order(recipes, tmp_path) -> Order:
    return Order(
        ("node",), Choice(systems=("MLP", "GCN")), Execution("cpu"), results=tmp_path / "records", recipes=recipes
    )


class Recorder(Watcher):
    """Remembers which cells ended; presses Ctrl-C after some."""

    def __init__(self, interrupt_after=None):
        self.ended, self.plan, self.left = [], None, []
        self.interrupt_after = interrupt_after

    def planned(self, total, stored, damaged):
        self.plan = total, stored, len(damaged)

    def cell_ended(self, record, done, total, seconds_left):
        self.ended.append((record["table"], record["variant"], record["split"]))
        self.left.append(seconds_left)
        if len(self.ended) == self.interrupt_after:
            raise KeyboardInterrupt


def records_of(order):
    records, damaged = store.read(order.results, ("node", "kernels-node"))
    assert damaged == []
    return records


def figures_of(order):
    """The figures of every cell, whatever the order in which they were written."""
    return {
        (record["table"], record["variant"], record["split"]): [record[name] for name in FIGURES]
        for record in records_of(order)
    }


def test_fills_a_table_once(order):
    recorder = Recorder()
    summary = reproduce(order, recorder)
    cells = [("node", name, split) for name in ("MLP", "GCN") for split in (0, 1)]
    assert (recorder.plan, recorder.ended) == ((4, 0, 0), cells)
    assert recorder.left[-1] == 0
    assert (summary.added["node"], summary.is_complete, summary.interrupted) == (4, True, False)
    again = Recorder()
    summary = reproduce(order, again)
    assert (again.plan, again.ended) == ((4, 4, 0), [])
    assert (summary.added["node"], summary.stored["node"], summary.is_complete) == (0, 4, True)


def test_the_same_digits_in_another_folder(order, tmp_path):
    other = replace(order, results=tmp_path / "other")
    reproduce(order)
    reproduce(other)
    assert figures_of(order) == figures_of(other)
    figures = [figure[2] for figure in figures_of(order).values()]
    assert len(set(figures)) == 4


def test_two_jobs_give_the_same_digits(order, tmp_path):
    other = replace(order, results=tmp_path / "other", jobs=2)
    assert reproduce(other).is_complete
    reproduce(order)
    assert figures_of(order) == figures_of(other)


def test_goes_on_after_ctrl_c_without_repeating(order, tmp_path):
    whole = replace(order, results=tmp_path / "whole")
    reproduce(whole)
    first, second = Recorder(interrupt_after=2), Recorder()
    summary = reproduce(order, first)
    assert (summary.interrupted, summary.is_complete) == (True, False)
    assert not reproduce(order, second).interrupted
    assert second.plan == (4, 2, 0)
    assert [*first.ended, *second.ended] == [("node", name, split) for name in ("MLP", "GCN") for split in (0, 1)]
    assert figures_of(order) == figures_of(whole)
    assert len(records_of(order)) == 4


def test_a_changed_recipe_is_trained_anew_and_the_old_record_stays(order):
    reproduce(order)
    file = order.recipes / "node.yaml"
    file.write_text(file.read_text().replace("lr: 0.005", "lr: 0.02"))
    recorder = Recorder()
    reproduce(order, recorder)
    assert recorder.ended == [("node", "GCN", 0), ("node", "GCN", 1)]
    assert [record["recipe"]["lr"] for record in records_of(order) if record["variant"] == "GCN"] == [0.005] * 2 + [
        0.02
    ] * 2


def test_what_fails_is_recorded_and_tried_again(order, monkeypatch):
    def diverge(cell, *rest):
        if (cell.model, cell.split) == ("mlp", 1):
            raise InputError("the training loss became nan in epoch 2")
        return train_cell(cell, *rest)

    train_cell = training.train_cell
    monkeypatch.setattr(training, "train_cell", diverge)
    summary = reproduce(order)
    assert (summary.added["node"], summary.failed["node"], summary.is_complete) == (3, 1, False)
    (failure,) = summary.failures
    assert (failure["variant"], failure["split"], failure["error"]) == (
        "MLP",
        1,
        "the training loss became nan in epoch 2",
    )
    assert [record["split"] for record in store.failed(records_of(order)).values()] == [1]
    monkeypatch.undo()
    recorder = Recorder()
    assert reproduce(order, recorder).is_complete
    assert recorder.ended == [("node", "MLP", 1)]
    assert store.failed(records_of(order)) == {}
    assert len(records_of(order)) == 5


def test_a_training_of_two_tables_is_done_once(order, monkeypatch):
    trained = []

    def count(cell, *rest):
        trained.append((cell.model, cell.split))
        return train_cell(cell, *rest)

    train_cell = training.train_cell
    monkeypatch.setattr(training, "train_cell", count)
    both = replace(order, tables=("node", "kernels-node"), choice=Choice(systems=("HKN", "K=2")))
    assert reproduce(both).is_complete
    assert trained == [("hkn", 0), ("hkn", 1)]
    figures = figures_of(both)
    assert figures["node", "HKN", 1] == figures["kernels-node", "K=2", 1]
    marks = {record["variant"]: record.get("same_training_as") for record in records_of(both)}
    assert marks == {"HKN": None, "K=2": "node, HKN"}


def test_a_training_is_taken_from_a_table_that_is_filled(order, monkeypatch):
    reproduce(replace(order, choice=Choice(systems=("HKN",))))
    monkeypatch.setattr(training, "train_cell", None)
    later = replace(order, tables=("kernels-node",), choice=Choice(systems=("K=2",)))
    assert reproduce(later).is_complete
    assert [record["same_training_as"] for record in records_of(later)[2:]] == ["node, HKN"] * 2


def test_damaged_lines_are_told_of_and_stay(order):
    reproduce(order)
    path, (expected, *_) = order.results / "node" / "clean.csv", records_of(order)
    header, first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([header, first[:100], *rest]) + "\n")
    recorder = Recorder()
    summary = reproduce(order, recorder)
    assert recorder.plan == (4, 3, 1)
    assert [damage.line for damage in summary.damaged] == [2]
    assert recorder.ended == [("node", "MLP", 0)]
    assert path.read_text().splitlines()[:-1] == [header, first[:100], *rest]
    records, _ = store.read(order.results, ["node"])
    assert records[-1]["test_loss"] == expected["test_loss"]


def test_data_that_is_nowhere(tmp_path):
    order = Order(
        ("graph",), Choice(systems=("MLP",), quick=True), Execution("cpu", str(tmp_path)), results=tmp_path / "r"
    )
    with pytest.raises(InputError, match="dataset 'ptc' cannot be used: its files are absent"):
        reproduce(replace(order, choice=Choice(datasets=("ptc",))))
    assert not (tmp_path / "r").exists()


def test_data_that_some_lack_leaves_the_others(monkeypatch, order, tmp_path):
    monkeypatch.setattr(module, "list_cells", lambda *_: [*cells, replace(cells[0], recipe=missing)])
    cells = list_cells_of(order)
    missing = cells[0].recipe.replace(dataset="ptc")
    summary = reproduce(replace(order, place=Execution("cpu", str(tmp_path))))
    assert summary.left_out == {"ptc": f"its files are absent: {tmp_path / 'tu' / 'PTC' / 'raw'}"}
    assert summary.is_complete


def list_cells_of(order):
    return list_cells(read_table("node", order.recipes), order.choice, order.place)


def test_data_that_cannot_be_read_is_asked_for_once(order, monkeypatch):
    asked = []

    def refuse(recipe):
        asked.append(recipe.data.dataset)
        raise InputError("the download failed")

    monkeypatch.setattr(training, "load_dataset", refuse)
    summary = reproduce(order)
    assert asked == ["tree"]
    assert summary.left_out == {"tree": "the download failed"}
    assert not summary.is_complete
    assert records_of(order) == []


def test_runtime_is_timed_once(order, monkeypatch):
    monkeypatch.setattr(runtime, "PAPER_DATASETS", ("tree",))
    monkeypatch.setattr(runtime, "QUICK_BUDGET", 0.05)
    timed = replace(order, tables=("runtime",), choice=Choice(systems=("GCN",), quick=True))
    assert reproduce(timed).added["runtime"] == 1
    assert reproduce(timed).stored["runtime"] == 1


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"choice": Choice(systems=("GNC",))}, "unknown system 'GNC'"),
        ({"place": Execution("cuda:99")}, "device 'cuda:99' cannot be used"),
        ({"place": Execution("cpu", capture=True)}, "capture needs a CUDA device"),
        ({"place": Execution("cpu", "nowhere")}, "data root 'nowhere' is not a folder"),
        ({"tables": ("graph",)}, "table 'graph' has no recipes"),
    ],
)
def test_bad_input_writes_nothing(order, changes, words):
    with pytest.raises(InputError, match=words):
        reproduce(replace(order, **changes))
    assert not order.results.exists()
    with pytest.raises(InputError, match="jobs must be a whole number of at least 1 and at most 1024, got 0"):
        replace(order, jobs=0)


def test_a_capture_that_spoils_its_process_is_trained_again_without(order, monkeypatch):
    """On a machine without a GPU: the first try of each captured cell is reported as the workers would."""
    asked = []

    def results(train, jobs, processes, *, may_spoil):
        for (cell,) in jobs:
            asked.append((cell.variant, cell.split, cell.recipe.runtime.capture, may_spoil))
            spoils = cell.recipe.runtime.capture and cell.variant == "MLP"
            plain = replace(cell, recipe=cell.recipe.replace(capture=False))
            yield (cell,), Lost(SPOILED) if spoils else train((plain,))

    monkeypatch.setattr(module, "results_of", results)
    monkeypatch.setattr(module, "check_capture", lambda *_: None)
    summary = reproduce(replace(order, place=Execution("cpu", capture=True)))
    assert summary.added["node"] == 4 and summary.is_complete
    assert asked == [
        *((name, split, True, True) for name in ("MLP", "GCN") for split in (0, 1)),
        *(("MLP", split, False, False) for split in (0, 1)),
    ]


def timed(dataset, model, seconds, quick=False):
    return {"dataset": dataset, "model": model, "seconds": seconds, "quick": quick}


def texas_cells(*systems, dataset="texas", quick=False):
    choice = Choice((dataset,), systems, ("clean",), quick)
    return list_cells(read_table("node"), choice)


def test_nothing_is_known_at_first():
    assert TimeLeft().estimate(texas_cells("GCN"), 1) is None
    assert TimeLeft().estimate([], 1) == 0
    assert TimeLeft([{"error": "failed"}]).estimate(texas_cells("GCN"), 1) is None


def test_the_nearest_experience_counts():
    known = TimeLeft([timed("texas", "gcn", 2.0), timed("texas", "gcn", 4.0), timed("texas", "hkn", 9.0)])
    # Texas has ten splits with three seeds each, Cora one seed.
    assert known.estimate(texas_cells("GCN"), 1) == 30 * 3.0
    assert known.estimate(texas_cells("GCN", "HKN"), 2) == 30 * (3.0 + 9.0) / 2
    assert known.estimate(texas_cells("MLP"), 1) == 30 * 5.0
    # Texas has 183 nodes and 295 edges, Cora 2708 and 5278.
    assert abs(known.estimate(texas_cells("MLP", dataset="cora"), 1) - 10 * 5.0 * (2708 + 5278) / (183 + 295)) < 1e-6


def test_quick_trainings_say_nothing_about_the_others():
    assert TimeLeft([timed("texas", "gcn", 2.0, quick=True)]).estimate(texas_cells("GCN"), 1) is None
