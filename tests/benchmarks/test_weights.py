import zipfile

import pytest
import torch
import weights

from hkconv.data import hierarchy
from hkconv.errors import InputError
from hkconv.models import HKN
from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.run import read_result, trained_cells

QUICK = {"models": ("hkn",), "epochs": 2, "num_splits": 2, "hidden_dim": 4, "num_layers": 1, "device": "cpu"}


@pytest.fixture
def quick(monkeypatch):
    """Networks of one tree each, trained for two epochs."""
    recipe = make_recipe(QUICK)
    monkeypatch.setattr(weights, "NETWORKS", {"hkn-one": (None, "tree"), "hkn-two": (None, "tree")})
    monkeypatch.setattr(weights, "find_recipe", lambda name, data: recipe)
    return recipe


@pytest.fixture
def command(tmp_path, monkeypatch):
    """The program, which writes to a folder of its own."""

    def call(*names):
        places = ("--out", str(tmp_path / "dist"), "--runs", str(tmp_path / "runs"))
        monkeypatch.setattr("sys.argv", ["weights.py", *names, *places])
        return weights.main()

    return call


def test_every_network_has_the_settings_that_validation_chose():
    for name in weights.NETWORKS:
        recipe = weights.find_recipe(name, None)
        assert (recipe.model.models, recipe.data.num_splits, recipe.data.protocol) == (("hkn",), 10, "clean")
    texas = weights.find_recipe("hkn-texas", None)
    assert (texas.model.hkn.form, texas.optim.seeds, texas.optim.deterministic) == ("views", 3, True)
    assert weights.find_recipe("hkn-cora", None).data.task is None
    assert weights.find_recipe("hkn-airport-links", None).data.task == "link"


def test_an_archive_holds_a_network_that_answers_as_the_best_training(command, quick, tmp_path, capsys):
    assert command("hkn-one") == 0
    with zipfile.ZipFile(tmp_path / "dist/hkn-one.zip") as packed:
        packed.extractall(tmp_path / "there")
    run = tmp_path / "runs/hkn-one"
    best = max((read_result(run, cell) for cell in trained_cells(run, quick)), key=lambda result: result.val_metric)
    graph = hierarchy().graph
    with torch.no_grad():
        found, expected = (
            HKN.from_pretrained(folder)(graph.x, graph.edge_index)
            for folder in (tmp_path / "there/hkn-one", run / best.cell.folder)
        )
    assert torch.equal(found, expected)
    assert "license: mit" in (tmp_path / "there/hkn-one/README.md").read_text()
    assert f"{100 * best.test_metric:.2f} %" in capsys.readouterr().out


def test_what_is_there_is_kept_and_what_was_stopped_goes_on(command, quick, tmp_path, capsys):
    command()
    archives = [tmp_path / f"dist/hkn-{name}.zip" for name in ("one", "two")]
    kept, again = [path.read_bytes() for path in archives]
    archives[0].write_bytes(b"the user's")
    archives[1].unlink()
    (tmp_path / "runs/hkn-two/hkn/split1-seed0/metrics.json").unlink()
    capsys.readouterr()
    assert command() == 0
    assert archives[0].read_bytes() == b"the user's"
    shown = capsys.readouterr()
    assert "hkn-one: kept" in shown.err and shown.err.count("hkn split") == 1
    network = HKN.from_pretrained(tmp_path / "dist/hkn-two")
    assert network.build_options["hidden_dim"] == 4
    assert weights.archive(tmp_path / "dist/hkn-one") == kept
    assert len(archives[1].read_bytes()) == pytest.approx(len(again), rel=0.05)


def test_an_interrupt_leaves_no_archive(command, quick, tmp_path, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(weights.TrainProgress, "epoch_ended", stop)
    assert command("hkn-one") == 130
    assert not (tmp_path / "dist/hkn-one.zip").exists()
    monkeypatch.undo()


def test_data_that_are_absent_leave_the_other_networks_out_of_it(command, quick, tmp_path, monkeypatch, capsys):
    absent = make_recipe({**QUICK, "dataset": "ptc", "data": str(tmp_path / "nothing")})
    monkeypatch.setattr(weights, "find_recipe", lambda name, data: absent if name == "hkn-one" else quick)
    assert command() == 1
    assert "left out: hkn-one, " in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "dist").glob("*.zip")] == ["hkn-two.zip"]


def test_an_unknown_name(command):
    with pytest.raises(InputError, match="unknown network 'hkn-texsa'; did you mean 'hkn-texas'"):
        command("hkn-texsa")
