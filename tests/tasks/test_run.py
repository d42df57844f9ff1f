import csv
import json
import os
import signal
import sys
from dataclasses import asdict

import first_release
import pytest
import torch
from fuzzing import changed, damaged, fuzzed, input_errors_alone
from hypothesis import strategies as st
from torch_geometric.data import Data

from hkconv.data import NodeDataset
from hkconv.data.neighbor_sampling import sampler_name
from hkconv.engine.callbacks import Callback
from hkconv.engine.checkpoint import load_checkpoint
from hkconv.engine.devices import describe_device
from hkconv.engine.state import FILE
from hkconv.errors import InputError
from hkconv.models.options import without_removed
from hkconv.tasks import building, run
from hkconv.tasks.evaluate import evaluate_run
from hkconv.tasks.recipe import FIRST_RELEASE, Recipe, make_recipe
from hkconv.tasks.run import read_history, read_recipe, read_result, train_cell, train_run, trained_cells
from hkconv.tasks.summary import Cell
from hkconv.tasks.tasks import NodeTask, make_task

OF_PAPER = {"act": "relu", "relative": False}


def quick(folder, **changes):
    values = {"models": ("mlp", "gcn"), "epochs": 3, "num_splits": 2, "hidden_dim": 4, "num_layers": 2, "device": "cpu"}
    return make_recipe(**{**values, "out": str(folder), **changes})


class Recorder(Callback):
    def __init__(self, interrupt_at=None):
        self.events = []
        self.interrupt_at = interrupt_at

    def cell_started(self, cell):
        self.events.append(cell.folder)

    def epoch_ended(self, epoch):
        self.events.append(epoch.number)
        if len(self.events) == self.interrupt_at:
            raise KeyboardInterrupt


def weights_of(folder):
    return {path.parent: path.read_bytes() for path in sorted(folder.rglob("model.safetensors"))}


def test_every_training_is_kept_and_told_of(tree_for_every_name, tmp_path):
    recorder = Recorder()
    summary = train_run(quick(tmp_path / "run", seeds=2), recorder)
    assert recorder.events[:5] == ["mlp/split0-seed0", 1, 2, 3, "mlp/split0-seed1"]
    assert [row.trainings for row in summary.models] == [4, 4]
    stored = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert stored == json.loads(json.dumps(summary.as_dict()))
    assert stored["dataset"]["protocol"] == "clean"
    assert stored["device"] == describe_device(torch.device("cpu"))
    assert stored["versions"]["torch"]
    for result in summary.cells:
        cell = tmp_path / "run" / result.cell.folder
        assert sorted(os.listdir(cell)) == ["config.json", "metrics.json", "model.safetensors"]
        metrics = json.loads((cell / "metrics.json").read_text())
        assert metrics["test_metric"] == result.test_metric
        assert len(metrics["history"]) == 3
        load_checkpoint(cell, expected=result.model)


def test_every_epoch_is_logged_and_a_resumed_run_repeats_none(tree_for_every_name, tmp_path):
    assert train_run(quick(tmp_path / "run"), Recorder(interrupt_at=6)).interrupted
    train_run(quick(tmp_path / "run"), resume=True)
    with (tmp_path / "run" / "metrics.csv").open(newline="") as file:
        rows = [(row["model"], row["split"], row["seed"], row["epoch"]) for row in csv.DictReader(file)]
    assert rows == [(model, split, "0", epoch) for model in ("mlp", "gcn") for split in "01" for epoch in "123"]


def test_a_logger_that_is_not_installed_is_named_before_anything_is_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(InputError, match="the logger wandb needs the package wandb"):
        train_run(quick(tmp_path / "run", log="wandb"))
    assert not (tmp_path / "run").exists()


def test_loggers_hear_of_the_end_of_a_run_that_breaks_off(tree_for_every_name, tmp_path):
    class Failing(Recorder):
        ended = 0

        def epoch_ended(self, epoch):
            raise InputError("broken off")

        def run_ended(self):
            self.ended += 1

    reporter = Failing()
    with pytest.raises(InputError, match="broken off"):
        train_run(quick(tmp_path / "run"), reporter)
    assert reporter.ended == 1


def test_a_run_on_samples_says_what_sampled(tree_for_every_name, tmp_path):
    summary = train_run(quick(tmp_path / "run", neighbors=(5, 3), batch_size=16))
    assert summary.sampler == sampler_name()
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["sampler"] == sampler_name()
    assert train_run(quick(tmp_path / "whole")).sampler is None
    assert all(entry.agrees for entry in evaluate_run(tmp_path / "run", device="cpu"))
    # Resumed, a run goes on with the same batches.
    before = weights_of(tmp_path / "run")
    (tmp_path / "run/gcn/split1-seed0/metrics.json").unlink()
    train_run(quick(tmp_path / "run", neighbors=(5, 3), batch_size=16), resume=True)
    assert weights_of(tmp_path / "run") == before


def test_same_recipe_same_results(tree_for_every_name, tmp_path):
    first, second = (train_run(quick(tmp_path / name, models=("mlp",))) for name in ("a", "b"))
    assert [cell.test_loss for cell in first.cells] == [cell.test_loss for cell in second.cells]
    assert first.cells[0].test_loss != first.cells[1].test_loss


def test_a_training_alone_is_that_of_the_run_and_writes_nothing(tree_for_every_name, tmp_path, monkeypatch):
    recipe = quick(tmp_path / "run", models=("mlp",))
    in_run = train_run(recipe).cells[1]
    monkeypatch.chdir(tmp_path)
    alone = train_cell(Cell("mlp", 1, 0), recipe, tree_for_every_name, torch.device("cpu"))
    assert (alone.result.test_loss, alone.result.val_loss) == (in_run.test_loss, in_run.val_loss)
    assert [epoch.number for epoch in alone.history] == [1, 2, 3]
    assert read_history(tmp_path / "run", Cell("mlp", 1, 0)) == alone.history
    assert os.listdir(tmp_path) == ["run"]


def test_interrupted_and_resumed_equals_uninterrupted(tree_for_every_name, tmp_path):
    whole = train_run(quick(tmp_path / "whole", models=("mlp",)))
    part = train_run(quick(tmp_path / "part", models=("mlp",)), Recorder(interrupt_at=7))
    assert part.interrupted
    assert [cell.interrupted for cell in part.cells] == [False, True]
    assert part.models[0].trainings == 1
    load_checkpoint(tmp_path / "part" / "mlp" / "split1-seed0")

    assert (tmp_path / "part" / "mlp" / "split1-seed0" / FILE).exists()
    recorder = Recorder()
    resumed = train_run(quick(tmp_path / "part", models=("mlp",)), recorder, resume=True)
    assert recorder.events == ["mlp/split1-seed0", 3]
    assert not resumed.interrupted
    assert not list((tmp_path / "part").rglob(FILE))
    assert [cell.test_loss for cell in resumed.cells] == [cell.test_loss for cell in whole.cells]
    assert list(weights_of(tmp_path / "part").values()) == list(weights_of(tmp_path / "whole").values())


def test_a_half_written_training_is_repeated(tree_for_every_name, tmp_path):
    train_run(quick(tmp_path, models=("mlp",)))
    cell = tmp_path / "mlp" / "split0-seed0"
    (cell / "metrics.json").unlink()
    (cell / ".metrics.json.abc.part").write_text('{"model": "ml')
    recorder = Recorder()
    train_run(quick(tmp_path, models=("mlp",)), recorder, resume=True)
    assert recorder.events == ["mlp/split0-seed0", 1, 2, 3]
    assert sorted(os.listdir(cell)) == ["config.json", "metrics.json", "model.safetensors"]


def test_a_state_that_outlived_its_training_is_removed(tree_for_every_name, tmp_path):
    """A kill may come between the last file of a training and the end of what was kept while it lasted."""
    train_run(quick(tmp_path, models=("mlp",)))
    left = tmp_path / "mlp" / "split0-seed0" / FILE
    left.write_bytes(b"whatever")
    train_run(quick(tmp_path, models=("mlp",)), resume=True)
    assert not left.exists()


def test_a_training_is_kept_every_so_often(tree_for_every_name, tmp_path):
    class Killed(BaseException):
        pass

    class Kill(Callback):
        def epoch_ended(self, epoch):
            if epoch.number == 3:
                raise Killed

    whole = train_run(quick(tmp_path / "whole", models=("mlp",), num_splits=1))
    with pytest.raises(Killed):
        train_run(quick(tmp_path / "part", models=("mlp",), num_splits=1, keep_every=0), Kill())
    assert os.listdir(tmp_path / "part" / "mlp" / "split0-seed0") == [FILE]
    recorder = Recorder()
    resumed = train_run(quick(tmp_path / "part", models=("mlp",), num_splits=1), recorder, resume=True)
    assert recorder.events == ["mlp/split0-seed0", 3]
    assert resumed.cells[0].test_loss == whole.cells[0].test_loss
    assert weights_of(tmp_path / "part").popitem()[1] == weights_of(tmp_path / "whole").popitem()[1]


def test_a_run_killed_after_its_first_file_goes_on(tree_for_every_name, tmp_path):
    train_run(quick(tmp_path / "run", models=("mlp",)))
    (tmp_path / "began").mkdir()
    (tmp_path / "began" / "recipe.json").write_bytes((tmp_path / "run" / "recipe.json").read_bytes())
    assert len(train_run(quick(tmp_path / "began", models=("mlp",)), resume=True).cells) == 2


def test_a_folder_of_a_run_killed_before_its_first_file_is_empty(tree_for_every_name, tmp_path):
    (tmp_path / ".recipe.json.abc.part").touch()
    assert len(train_run(quick(tmp_path, models=("mlp",))).cells) == 2


def test_ctrl_c_while_a_result_is_written_waits_for_it(tree_for_every_name, tmp_path, monkeypatch):
    def interrupted(*arguments):
        os.kill(os.getpid(), signal.SIGINT)
        save_checkpoint(*arguments)

    save_checkpoint = run.save_checkpoint
    monkeypatch.setattr(run, "save_checkpoint", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    summary = train_run(quick(tmp_path, models=("mlp",)))
    signal.signal(signal.SIGINT, before)
    assert summary.interrupted
    assert [(result.split, result.interrupted) for result in summary.cells] == [(0, False)]
    load_checkpoint(tmp_path / "mlp" / "split0-seed0")


def test_resume_demands_the_same_recipe(tree_for_every_name, tmp_path):
    train_run(quick(tmp_path, models=("mlp",), lr=0.01))
    with pytest.raises(InputError, match=r"lr cannot change when a run is resumed: .* has 0\.01, got 0\.5"):
        train_run(quick(tmp_path, models=("mlp",), lr=0.5), resume=True)
    with pytest.raises(InputError, match="out must name the folder"):
        train_run(Recipe(), resume=True)
    with pytest.raises(InputError, match="which does not exist"):
        train_run(quick(tmp_path / "nowhere"), resume=True)


def test_a_recipe_of_the_first_release_is_read_as_what_it_was(tmp_path):
    stored = {**first_release.RECIPE, "hidden_dim": 6, "dropout": 0.7, "undirected": False}
    (tmp_path / "recipe.json").write_text(json.dumps(stored))
    found = read_recipe(tmp_path)
    assert found.model.hkn.form == "paper"
    kept = {name: value for name, value in without_removed(stored).items() if name != "undirected"}
    assert {**found.flat(), "out": None} == {**kept, **first_release.ADDED, "direction": "in"}


def test_a_run_from_before_attributes_of_edges_goes_on_without_them(tmp_path):
    stored = make_recipe().flat()
    assert stored.pop("edge_attributes") is True
    (tmp_path / "recipe.json").write_text(json.dumps(stored))
    assert read_recipe(tmp_path).data.edge_attributes is False


@pytest.mark.parametrize("name, value", [("root", True), ("directions", True), ("attention", "distance")])
def test_a_run_with_an_option_that_is_gone_is_refused_unless_it_is_of_baselines(tmp_path, name, value):
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps({**first_release.RECIPE, name: value}))
    with pytest.raises(InputError, match=f"^HKN no longer has the option {name}, and this has {name}: {value!r}; "):
        read_recipe(tmp_path)
    path.write_text(json.dumps({**first_release.RECIPE, name: value, "models": ["mlp", "hkn-flat"]}))
    assert read_recipe(tmp_path).model.models == ("mlp", "hkn-flat")


def test_a_run_of_the_first_release_goes_on(tree_for_every_name, tmp_path):
    """With what it was, whether it is asked for by its folder or by the same options."""
    first = quick(tmp_path, models=("hkn",), **{**FIRST_RELEASE, "hidden_dim": 4, "epochs": 2})
    before = train_run(first)
    first_release.as_then(tmp_path)
    cell = tmp_path / "hkn" / "split1-seed0"
    (cell / "metrics.json").unlink()
    recorder = Recorder()
    again = train_run(read_recipe(tmp_path), recorder, resume=True)
    assert recorder.events == ["hkn/split1-seed0", 1, 2]
    assert [result.test_loss for result in again.cells] == [result.test_loss for result in before.cells]
    with pytest.raises(InputError, match=r"form cannot change when a run is resumed: .* has 'paper', got 'views'"):
        train_run(first.replace(form="views"), resume=True)


def test_a_captured_run_can_go_on_where_nothing_is_captured(tree_for_every_name, tmp_path):
    train_run(quick(tmp_path, models=("mlp",)))
    stored = json.loads((tmp_path / "recipe.json").read_text())
    (tmp_path / "recipe.json").write_text(json.dumps({**stored, "capture": True}))
    assert not train_run(quick(tmp_path, models=("mlp",)), resume=True).interrupted


def test_a_folder_in_use_is_left_alone(tree_for_every_name, tmp_path):
    (tmp_path / "mine.txt").touch()
    with pytest.raises(InputError, match="is not empty: name another folder"):
        train_run(quick(tmp_path))
    assert os.listdir(tmp_path) == ["mine.txt"]


def test_default_folders_do_not_clash(tree_for_every_name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = {train_run(quick("", out=None, models=("mlp",), num_splits=1, epochs=1)).folder for _ in range(2)}
    assert len(folders) == 2
    assert all(folder.parent.name == "runs" for folder in folders)


def test_unusable_input_writes_nothing(tmp_path, monkeypatch, tree):
    def graph_with(**changes):
        graph = Data(x=tree.graph.x, edge_index=tree.graph.edge_index, y=tree.graph.y)
        return graph.update(changes)

    nodes = tree.graph.num_nodes
    cases = {
        "NaN or Inf, first in row 0": graph_with(x=torch.full((nodes, 2), float("nan"))),
        "one class only": graph_with(y=torch.zeros(nodes, dtype=torch.long)),
        "empty graph": graph_with(x=torch.empty(0, 2)),
    }
    for message, graph in cases.items():
        monkeypatch.setattr(
            building, "load", lambda *_, graph=graph, **__: NodeDataset("mine", graph, tree.splits, 3, "test")
        )
        with pytest.raises(InputError, match=message):
            train_run(quick(tmp_path / "out"))
    monkeypatch.undo()
    with pytest.raises(InputError, match="capture needs a CUDA device"):
        train_run(quick(tmp_path / "out", capture=True))
    with pytest.raises(InputError, match="compile needs a C\\+\\+ compiler"), monkeypatch.context() as patch:
        patch.setenv("PATH", "")
        patch.delenv("CXX", raising=False)
        train_run(quick(tmp_path / "out", compile=True))
    for changes, message in (
        (
            {"models": ("hkn",), "structure": True},
            "neighbors must be none for HKN, which needs the whole graph for str",
        ),
        ({"models": ("mlp", "linkx")}, "neighbors must be none for LINKX"),
        ({"dataset": "disease", "task": "link"}, "neighbors must be none for the link task"),
    ):
        with pytest.raises(InputError, match=message):
            train_run(quick(tmp_path / "out", neighbors=(5, 5), **changes))
    for name, value in OF_PAPER.items():
        message = f"^{name} is an option of form 'paper' and has no place in form 'views', got {value!r}$"
        with pytest.raises(InputError, match=message):
            train_run(quick(tmp_path / "out", models=("mlp", "hkn"), **{name: value}))
    for changes in ({"dataset": "tre"}, {"device": "cuda:99"}, {"num_splits": 99, "dataset": "texas"}):
        with pytest.raises(InputError):
            train_run(quick(tmp_path / "out", data=str(tmp_path), **changes))
    assert os.listdir(tmp_path) == []


def test_divergence_stops_the_run_but_keeps_what_finished(tree_for_every_name, tmp_path, monkeypatch):
    def diverge(model, *_):
        if type(model).__name__ == "GCN":
            raise InputError("the training loss became nan in epoch 1")
        return run_fit(model, *_)

    run_fit = run.fit
    monkeypatch.setattr(run, "fit", diverge)
    with pytest.raises(InputError, match="became nan"):
        train_run(quick(tmp_path))
    assert len(weights_of(tmp_path)) == 2
    assert not list(tmp_path.glob("gcn/*/*"))


def spoil_training(monkeypatch, from_epoch, times):
    """Let the loss of every training on nodes be NaN, in that epoch and when it is tried again."""
    calls = []

    def loss(self, model, batch):
        calls.append(1)
        good = original(self, model, batch)
        return good * float("nan") if 0 <= len(calls) - from_epoch < times else good

    original = NodeTask.loss
    monkeypatch.setattr(NodeTask, "loss", loss)


def test_what_the_guard_did_is_told_wherever_the_result_is(tree_for_every_name, tmp_path, monkeypatch):
    spoil_training(monkeypatch, from_epoch=2, times=2)
    recipe = quick(tmp_path, models=("mlp",))
    first, second = train_run(recipe).cells
    assert "training loss became nan in epoch 2; first not finite: the loss in batch 1; went back" in first.guard
    assert (first.interrupted, first.epochs, second.guard) == (False, 3, None)
    assert json.loads((tmp_path / "mlp/split0-seed0/metrics.json").read_text())["guard"] == first.guard
    stored = json.loads((tmp_path / "summary.json").read_text())
    assert [cell["guard"] for cell in stored["cells"]] == [first.guard, None]
    assert train_run(recipe, resume=True).cells == [first, second]


def test_a_result_from_before_there_were_a_guard_and_a_second_score_is_read(tree_for_every_name, tmp_path):
    train_run(quick(tmp_path, models=("mlp",)))
    path = tmp_path / "mlp" / "split0-seed0" / "metrics.json"
    metrics = json.loads(path.read_text())
    del metrics["guard"], metrics["test_ap"]
    path.write_text(json.dumps(metrics))
    assert read_result(tmp_path, Cell("mlp", 0, 0)).guard is None


def test_a_training_that_diverges_leaves_its_best_epoch(tree_for_every_name, tmp_path, monkeypatch):
    spoil_training(monkeypatch, from_epoch=3, times=99)
    with pytest.raises(InputError, match=r"mlp split 0 seed 0: .* became nan in epoch 3; .* best epoch is kept in"):
        train_run(quick(tmp_path, models=("mlp",), epochs=9))
    cell = Cell("mlp", 0, 0)
    result = read_result(tmp_path, cell)
    assert (result.interrupted, result.epochs) == (True, 2)
    assert "a smaller lr may help" in result.guard
    model, _ = load_checkpoint(tmp_path / cell.folder, expected="mlp")
    task = make_task(tree_for_every_name, tree_for_every_name.splits[0], next(model.parameters()))
    assert task.evaluate(model, "test").loss == pytest.approx(result.test_loss, rel=1e-6)


def test_damaged_metrics(tree_for_every_name, tmp_path):
    train_run(quick(tmp_path, models=("mlp",)))
    (tmp_path / "mlp" / "split0-seed0" / "metrics.json").write_text("{}")
    with pytest.raises(InputError, match=r"metrics are damaged: .* lacks 'model'"):
        train_run(quick(tmp_path, models=("mlp",)), resume=True)
    for history in ({}, {"history": [{"number": 1}]}, {"history": 3}):
        (tmp_path / "mlp" / "split0-seed0" / "metrics.json").write_text(json.dumps(history))
        with pytest.raises(InputError, match=r"metrics are damaged: .* has no history of epochs"):
            read_history(tmp_path, Cell("mlp", 0, 0))


def test_deterministic_run_ends_as_it_began(tree_for_every_name, tmp_path):
    train_run(quick(tmp_path, models=("gcn",), deterministic=True))
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_dataset_with_fewer_splits_is_trained_on_those_it_has(monkeypatch, questions, tmp_path):
    monkeypatch.setattr(building, "load", lambda *_, **__: questions)
    summary = train_run(quick(tmp_path / "run", num_splits=3, seeds=2))
    assert [(result.split, result.seed) for result in summary.cells if result.model == "gcn"] == [(0, 0), (0, 1)]
    assert json.loads((tmp_path / "run" / "recipe.json").read_text())["num_splits"] == 1
    assert (summary.metric, summary.chance_rule, summary.chance.mean) == ("ROC-AUC", "constant score", 0.5)
    again = train_run(quick(tmp_path / "run", num_splits=3, seeds=2), resume=True)
    assert [result.test_metric for result in again.cells] == [result.test_metric for result in summary.cells]


@pytest.fixture
def finished(tree_for_every_name, tmp_path):
    train_run(quick(tmp_path / "run", models=("mlp",), num_splits=1))
    return tmp_path / "run"


@fuzzed(drawn=st.data())
def test_whatever_the_files_of_a_run_say_only_input_errors_come_out(finished, drawn):
    cell = Cell("mlp", 0, 0)
    for path in (finished / "recipe.json", finished / cell.folder / "metrics.json"):
        sound = path.read_text()
        content = drawn.draw(changed(json.loads(sound)).map(json.dumps).map(str.encode) | damaged(sound.encode()))
        try:
            path.write_bytes(content)
            for read in (lambda: read_result(finished, cell), lambda: read_history(finished, cell)):
                with input_errors_alone():
                    json.dumps([asdict(found) for found in [read()] if not isinstance(found, list)])
            with input_errors_alone():
                trained_cells(finished, read_recipe(finished))
        finally:
            path.write_text(sound)
