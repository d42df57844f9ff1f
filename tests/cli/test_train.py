import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from own_files import write_papers, write_people
from torch_geometric.data import Data

from hkconv.cli import train as module
from hkconv.data import load
from hkconv.engine.checkpoint import load_checkpoint
from hkconv.engine.devices import describe_device
from hkconv.models import MODELS
from hkconv.nn import HKBlock, HKConv
from hkconv.tasks import building
from hkconv.tasks.recipe import Recipe, make_recipe
from hkconv.tasks.tasks import NodeTask

QUICK = ("--epochs", 2, "--num-splits", 2, "--models", "mlp", "--hidden-dim", 4, "--device", "cpu")


LONG_NAME = "x" * 5000
NAMING = ("--models", "--out", "--recipe", "--split-file", "--device", "--resume")


@pytest.mark.parametrize("words", [(LONG_NAME,), (f"/{LONG_NAME}",), *((name, LONG_NAME) for name in NAMING)])
def test_a_name_that_no_system_takes_is_one_line(hkconv, in_empty_folder, words):
    assert LONG_NAME[:100] in hkconv.fails("train", *words)
    assert not list(in_empty_folder.iterdir())


def test_prints_one_table_and_keeps_the_files(hkconv, in_empty_folder):
    result = hkconv("train", *QUICK, "--out", "run")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    columns = ("model", "test accuracy %", "validation %", "parameters", "epochs", "seconds")
    assert lines[0].split() == " ".join(columns).split()
    rows = {line.split()[0]: line for line in lines}
    assert rows["mlp"].count("±") == 2
    assert "majority class" in rows["majority"]
    assert "protocol clean, mean ± deviation of 2 splits x 1 seed (from seed 0)" in lines
    assert f"device {describe_device(torch.device('cpu'))}" in lines
    assert "files: run" in lines
    assert "check: hkconv evaluate run" in lines
    assert lines[-2:] == ["predict: hkconv predict run", "search: hkconv search tree --model mlp"]
    assert not any(line.startswith("explore:") for line in lines)
    assert max(map(len, lines)) <= 80
    assert "\x1b" not in result.output
    assert len(result.stderr.splitlines()) == 2
    load_checkpoint(in_empty_folder / "run" / "mlp" / "split1-seed0")
    assert (in_empty_folder / "run" / "summary.json").is_file()


def test_samples_of_neighbours(hkconv):
    result = hkconv("train", *QUICK, "--num-layers", 3, "--neighbors", "15,-1,3", "--batch-size", 1024, "--out", "run")
    assert result.exit_code == 0, result.output
    line = next(line for line in result.stdout.splitlines() if line.startswith("batches of"))
    assert line.startswith("batches of 1024 nodes, 15, all, 3 neighbours a layer, sampled by ") and len(line) <= 80
    assert json.loads(Path("run/recipe.json").read_text())["neighbors"] == [15, -1, 3]
    assert hkconv("evaluate", "run").exit_code == 0


def test_hkn_on_links(hkconv):
    arguments = ("--task", "link", "--epochs", 2, "--num-splits", 1, "--model", "hkn", "--hidden-dim", 4)
    result = hkconv("train", "disease", *arguments, "--out", "run")
    assert result.exit_code == 0, result.output
    assert "test ROC-AUC %" in result.stdout
    assert "chance" in result.stdout


def test_links_in_batches_have_both_scores(hkconv):
    arguments = ("--task", "link", *QUICK, "--link-batch", 500, "--out", "run")
    result = hkconv("train", "disease", *arguments)
    assert result.exit_code == 0, result.output
    head, _, row, *_ = result.stdout.splitlines()
    assert head.split()[:6] == ["model", "test", "ROC-AUC", "%", "test", "AP"]
    assert row.count("±") == 3 and max(len(head), len(row)) <= 80
    summary = json.loads(Path("run/summary.json").read_text())
    stored = [cell["test_ap"] for cell in summary["cells"]]
    assert min(stored) > 0 and summary["models"][0]["test_ap"]["mean"] == pytest.approx(sum(stored) / 2)
    assert hkconv("evaluate", "run").exit_code == 0


def test_options_override_the_recipe(hkconv):
    Path("recipe.yaml").write_text("dataset: disease\nmodels: [mlp]\nepochs: 1\nnum_splits: 1\nroot: false\nlr: 1e-2\n")
    result = hkconv("train", "--recipe", "recipe.yaml", "--epochs", 2, "--out", "run")
    assert result.exit_code == 0, result.output
    stored = json.loads(Path("run/recipe.json").read_text())
    assert (stored["dataset"], stored["epochs"], stored["form"], stored["lr"]) == ("disease", 2, "paper", 0.01)


HKN_ALONE = "models: [hkn]\nepochs: 1\nnum_splits: 1\nhidden_dim: 4\ndevice: cpu\n"


def test_a_recipe_of_the_first_release_trains_what_it_did(hkconv):
    """An option of then says that it is one, and what it does not say is as it was then."""
    Path("then.yaml").write_text(HKN_ALONE + "root: false\nundirected: false\n")
    assert hkconv("train", "--recipe", "then.yaml", "--out", "then").exit_code == 0
    stored = json.loads(Path("then/recipe.json").read_text())
    assert (stored["form"], stored["direction"], stored["num_layers"], stored["dropout"]) == ("paper", "in", 2, 0.2)
    assert (stored["lr"], stored["readout"], stored["hidden_dim"]) == (0.02, "last", 4)
    model, info = load_checkpoint("then/hkn/split0-seed0")
    assert info.config["form"] == "paper" and isinstance(model.convs[0], HKConv)
    Path("then.yaml").write_text(HKN_ALONE + "act: relu\n")
    line = hkconv.fails("train", "--recipe", "then.yaml", "--out", "other")
    assert line.startswith("error: HKN no longer has the option root, and this has root: True; hkconv 0.1.0 reads it")
    # What is said on the command line goes before it.
    Path("then.yaml").write_text(HKN_ALONE + "act: relu\nroot: false\n")
    line = hkconv.fails("train", "--recipe", "then.yaml", "--form", "views", "--out", "other")
    assert line == "error: act is an option of form 'paper' and has no place in form 'views', got 'relu'"
    assert not Path("other").exists()


def test_a_recipe_without_an_option_of_then_has_the_defaults_of_now(hkconv):
    Path("now.yaml").write_text(HKN_ALONE)
    assert hkconv("train", "--recipe", "now.yaml", "--out", "now").exit_code == 0
    stored = json.loads(Path("now/recipe.json").read_text())
    same = make_recipe(models=("hkn",), epochs=1, num_splits=1, hidden_dim=4, device="cpu")
    assert {**stored, "out": None} == same.flat() and stored["form"] == "views"
    model, info = load_checkpoint("now/hkn/split0-seed0")
    assert info.config["form"] == "views" and isinstance(model.convs[0], HKBlock)
    assert json.loads(Path("now/hkn/split0-seed0/config.json").read_text())["format_version"] == 2


def test_none_is_said_on_the_command_line(hkconv):
    options = ("--norm", "none", "--hidden-act", "none", "--readout", "last")
    settings = ("--models", "hkn", "--epochs", 1, "--num-splits", 1, "--hidden-dim", 4, "--device", "cpu")
    assert hkconv("train", *settings, *options, "--out", "run").exit_code == 0
    stored = json.loads(Path("run/recipe.json").read_text())
    assert (stored["norm"], stored["hidden_act"], stored["readout"]) == ("none", "none", "last")
    model, _ = load_checkpoint("run/hkn/split0-seed0")
    assert len(model.early_readouts) == 0 and model.convs[0].norm.norm is None is model.convs[0].norm.act


def test_default_folder_is_in_runs(hkconv):
    assert hkconv("train", *QUICK).exit_code == 0
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("tree-")


def test_resume(hkconv):
    assert hkconv("train", *QUICK, "--out", "run").exit_code == 0
    Path("run/mlp/split1-seed0/metrics.json").unlink()
    result = hkconv("train", "--resume", "run")
    assert result.exit_code == 0, result.output
    assert [line[:18] for line in result.stderr.splitlines()] == ["mlp split 1 seed 0"]
    assert "lr cannot change" in hkconv.fails("train", "--resume", "run", "--lr", 0.5)
    assert "out cannot be given with resume" in hkconv.fails("train", "--resume", "run", "--out", "other")
    assert "does not exist" in hkconv.fails("train", "--resume", "nowhere")


def test_a_training_that_diverges_says_where_in_one_line_and_can_be_evaluated(hkconv, monkeypatch):
    seen = []

    def loss(self, model, batch):
        seen.append(1)
        return original(self, model, batch) * (float("nan") if len(seen) >= 3 else 1.0)

    original = NodeTask.loss
    monkeypatch.setattr(NodeTask, "loss", loss)
    line = hkconv.fails("train", *QUICK, "--epochs", 5, "--out", "run")
    assert "mlp split 0 seed 0: the training loss became nan in epoch 3; first not finite: the loss in batch 1" in line
    assert "a smaller lr may help" in line and line.endswith("kept in run/mlp/split0-seed0")
    result = hkconv("evaluate", "run")
    assert result.exit_code == 0, result.output
    assert "All 1 checkpoints give their stored result." in result.stdout


def test_a_training_that_was_put_right_says_so(hkconv, monkeypatch):
    seen = []

    def loss(self, model, batch):
        seen.append(1)
        return original(self, model, batch) * (float("nan") if len(seen) in (2, 3) else 1.0)

    original = NodeTask.loss
    monkeypatch.setattr(NodeTask, "loss", loss)
    result = hkconv("train", *QUICK, "--lr", 0.5, "--out", "run")
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("guard: mlp split 0 seed 0: ")]
    assert "in epoch 2" in line and line.endswith("went back to the start of the epoch with lr 0.25")


def unlearned_lines(result):
    assert result.exit_code == 0, result.output
    found = [line for line in result.stdout.splitlines() if "learned nothing" in line]
    assert all(len(line) < 160 for line in found)
    return found


def write_ring(value=3.0):
    """Sixty nodes of two classes with the same features and, both ways, the same neighbourhoods."""
    nodes = np.arange(60)
    np.savez("ring.npz", x=np.full((60, 2), value), edge_index=np.stack([nodes, (nodes + 1) % 60]), y=nodes % 3 == 0)
    return "ring.npz"


SHORT = ("--num-splits", 2, "--hidden-dim", 4, "--device", "cpu", "--out", "run")


def test_models_that_name_one_class_alone_learned_nothing(hkconv):
    result = hkconv("train", write_ring(), *SHORT, "--models", "mlp,gcn", "--epochs", 20, "--scale", "none")
    mlp, gcn = unlearned_lines(result)
    told = "learned nothing (2 of 2 trainings at the majority class); try"
    assert mlp == f"mlp {told} --log-features, --normalize-features, another --lr"
    assert gcn == f"gcn {told} --log-features, --normalize-features, --direction in or out (if directed), another --lr"
    *_, last, other, predict, search = result.stdout.splitlines()
    assert [last, other] == [mlp, gcn]
    assert predict.startswith("predict: hkconv predict ") and search.startswith("search: hkconv search ")
    assert "\n".join([mlp, gcn]) in hkconv("train", "--resume", "run").stdout
    stored = json.loads(Path("run/summary.json").read_text())
    remedies = ["--log-features", "--normalize-features", "another --lr"]
    assert stored["unlearned"][0] == {"model": "mlp", "trainings": 2, "finished": 2, "remedies": remedies}


def test_a_run_from_before_models_were_said_to_learn_nothing(hkconv):
    lines = unlearned_lines(hkconv("train", write_ring(), *SHORT, "--models", "mlp", "--epochs", 20))
    path = Path("run/summary.json")
    stored = json.loads(path.read_text())
    del stored["unlearned"]
    path.write_text(json.dumps(stored))
    assert hkconv("evaluate", "run").exit_code == 0
    assert unlearned_lines(hkconv("train", "--resume", "run")) == lines


@pytest.mark.parametrize(
    ("value", "options", "remedies"),
    [
        (3.0, ("--epochs", 19), "more --epochs, another --lr"),
        (-3.0, ("--direction", "out"), "--log-features, --direction in or both (if directed), another --lr"),
        (0.5, (), "--direction in or out (if directed), another --lr"),
        (3.0, ("--log-features",), "--normalize-features, --direction in or out (if directed), another --lr"),
        (3.0, ("--normalize-features",), "--direction in or out (if directed), another --lr"),
    ],
)
def test_only_options_that_change_something_are_named(hkconv, value, options, remedies):
    settings = ("--models", "gcn", "--epochs", 20, "--scale", "none", *options)
    (line,) = unlearned_lines(hkconv("train", write_ring(value), *SHORT, *settings))
    assert line.endswith(f"; try {remedies}")


def test_standardized_numbers_may_need_logarithms(hkconv):
    draw = np.random.default_rng(0)
    x = np.exp(draw.normal(size=(60, 2)) + 3)
    np.savez("noise.npz", x=x, edge_index=np.zeros((2, 0), dtype=int), y=draw.random(60) < 0.2)
    settings = ("--models", "mlp", "--epochs", 20, "--weight-decay", 10)
    (line,) = unlearned_lines(hkconv("train", "noise.npz", *SHORT, *settings))
    assert line.endswith("; try --scale log, another --lr")
    (line,) = unlearned_lines(hkconv("train", "noise.npz", *SHORT[:-1], "again", *settings, "--scale", "log"))
    assert line.endswith("; try another --lr")


def test_what_was_done_to_the_columns_of_own_tables_is_said(hkconv):
    write_people(Path("people"), count=120)
    result = hkconv("train", "people", *SHORT, "--models", "mlp", "--epochs", 3)
    assert "data: missing values: age " in result.stdout and "the mean of the training rows" in result.stdout
    assert "data: taken as names, different in nearly every row, not as features: name" in result.stdout
    assert json.loads(Path("run/summary.json").read_text())["notes"][0].startswith("missing values: age ")
    words = "values are missing in age "
    assert words in hkconv.fails("train", "people", *SHORT[:-1], "other", "--missing", "error")


def test_the_chosen_settings_are_trained_on_all_labels_at_the_end(hkconv):
    papers = write_papers(Path("papers"))
    result = hkconv("train", papers, *SHORT, "--models", "gcn", "--epochs", 3, "--refit")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines()[-1].startswith("refit: gcn on all 50 labels, ")
    assert "; refitted on all labels" in hkconv("predict", "run").stdout


def test_links_have_no_refit_and_are_not_trained_in_vain(hkconv):
    assert "refit is for node and graph tasks" in hkconv.fails("train", *SHORT, "--task", "link", "--refit")
    assert not Path("run").exists()


def test_a_model_that_learns_is_not_told_of(hkconv):
    papers = write_papers(Path("papers"))
    assert unlearned_lines(hkconv("train", papers, *SHORT, "--models", "gcn,mlp", "--epochs", 60)) == []


def test_a_model_that_learns_beside_one_that_does_not(hkconv):
    """The class says which nodes are in the middle of their stars, which an MLP does not see."""
    leaves = np.arange(80)[np.arange(80) % 4 > 0]
    edges = np.stack([leaves, leaves // 4 * 4])
    np.savez("stars.npz", x=np.full((80, 1), 3.0), edge_index=edges, y=np.arange(80) % 4 == 0)
    settings = ("--models", "mlp,gcn", "--epochs", 60, "--dropout", 0, "--weight-decay", 0, "--lr", 0.1)
    (line,) = unlearned_lines(hkconv("train", "stars.npz", *SHORT, *settings))
    assert line.startswith("mlp learned nothing (2 of 2 trainings at the majority class)")


def test_links_that_are_not_learned(hkconv, monkeypatch):
    def load_without_features(*names, **options):
        dataset = load(*names, **options)
        dataset.graph.x.zero_()
        return dataset

    monkeypatch.setattr(building, "load", load_without_features)
    (line,) = unlearned_lines(hkconv("train", "--task", "link", *SHORT, "--models", "mlp", "--epochs", 20))
    assert line == "mlp learned nothing (2 of 2 trainings at chance); try another --lr"


def test_links_that_are_learned(hkconv):
    assert unlearned_lines(hkconv("train", "--task", "link", *SHORT, "--models", "gcn", "--epochs", 20)) == []


def test_graphs_that_are_not_learned(hkconv):
    one_way = torch.tensor([[0, 1], [1, 2]])
    torch.save([Data(x=torch.ones(3, 2), edge_index=one_way, y=int(index % 3 == 0)) for index in range(60)], "mine.pt")
    settings = ("--models", "gcn", "--epochs", 20, "--scale", "none")
    (line,) = unlearned_lines(hkconv("train", "mine.pt", *SHORT, *settings))
    told = "gcn learned nothing (2 of 2 trainings at the majority class); try"
    assert line == f"{told} --normalize-features, --direction in or out (if directed), another --lr"


def test_half_precision(hkconv):
    result = hkconv("train", *QUICK, "--precision", "bf16", "--out", "run")
    assert result.exit_code == 0, result.output
    assert json.loads(Path("run/recipe.json").read_text())["precision"] == "bf16"
    assert json.loads(Path("run/mlp/split0-seed0/config.json").read_text())["training"]["precision"] == "bf16"
    assert "precision cannot change" in hkconv.fails("train", "--resume", "run", "--precision", "fp16")


def test_every_field_of_a_recipe_is_an_option():
    assert set(module.train.__signature__.parameters) == {*Recipe.options(), "recipe", "resume", "refit"}


def test_a_recipe_may_have_groups_and_options_go_before_it(hkconv):
    text = "optim: {epochs: 2, lr: 0.5}\nmodel: {models: [mlp], hidden_dim: 4}\nnum_splits: 1\nruntime: {device: cpu}\n"
    Path("nested.yaml").write_text(text)
    assert hkconv("train", "--recipe", "nested.yaml", "--lr", "0.25", "--out", "run").exit_code == 0
    stored = json.loads(Path("run/recipe.json").read_text())
    assert [stored[name] for name in ("epochs", "lr", "models", "num_splits")] == [2, 0.25, ["mlp"], 1]


def test_help_lists_the_options_by_group(hkconv):
    lines = hkconv("train", "--help").stdout.splitlines()
    titles = [line for line in lines if line.endswith(":") and not line.startswith(" ")]
    assert titles == ["Arguments:", "Data:", "Model:", "Training:", "Running:", "Options:"]
    models = " ".join(" ".join(lines).split("--models, --model <str>")[1].split("--hidden-dim")[0].split()).replace(
        "- ", "-"
    )
    assert all(f" {name}," in models or f" {name}." in models for name in MODELS)
    running = lines[lines.index("Running:") : lines.index("Options:")]
    assert [word for line in running for word in line.split() if word in ("--resume", "--recipe")]


OF_PAPER = [
    (("--act", "relu"), "act is an option of form 'paper'"),
    (("--no-relative",), "relative is an option of form 'paper'"),
]


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("tre",), "unknown dataset 'tre': did you mean tree"),
        (("cornell-legacy", "--data", "."), "webkb_legacy/cornell/raw"),
        (("--kernel-size", 0), "kernel_size must be a whole number of at least 1 and at most 1000, got 0"),
        (("--curvature", 0), "curvature must be a number of at least -1000000 and at most -1e-06, got 0.0"),
        (("--curvature", 2), "curvature must be a number of at least -1000000 and at most -1e-06, got 2.0"),
        (("--hidden-dim", 0), "hidden_dim must be"),
        (("--num-layers", 0), "num_layers must be"),
        (("--dropout", 1), "dropout must be a number of at least 0 and below 1"),
        (
            ("--neighbors", "15", "--num-layers", 3),
            "neighbors must have a number for each of the 3 layers, got 1",
        ),
        (
            ("--neighbors", "15,0"),
            "neighbors must be whole numbers such as 15,10, each of at least 1 and at most 1000000 or",
        ),
        (
            ("--neighbors", "5,5,5", "--num-layers", 3, "--structure"),
            "neighbors must be none for HKN, which needs the whole graph for",
        ),
        *((flags, f"error: {words} and has no place in form 'views', got ") for flags, words in OF_PAPER),
        (("--form", "pape"), "form must be views or paper, got 'pape'"),
        (("--norm", "group"), "norm must be batch or layer or none, got 'group'"),
        (("--lr", 0), "lr must be a number above 0"),
        (("--lr", "nan"), "lr must be a number above 0"),
        (("--models", "hkn,transformer"), "unknown model 'transformer'; accepted: hkn, mlp, gcn"),
        (("--points", "grid"), "points must be optimal or random or trainable, got 'grid'"),
        (("--task", "graph"), "task of dataset 'tree' must be"),
        (("--device", "cuda:99"), "device 'cuda:99' cannot be used"),
        (("--capture", "--device", "cpu"), "capture needs a CUDA device, got device cpu"),
        (("--precision", "fp8"), "precision must be float32 or bf16 or fp16, got 'fp8'"),
        (("--recipe", "nowhere.yaml"), "recipe nowhere.yaml cannot be read"),
        (("--data", "nowhere", "texas"), "nowhere"),
        (("--num-splits", 0), "num_splits must be"),
        (("--out", "/proc/nowhere"), "out must be a folder that can be written to"),
    ],
)
def test_bad_input_leaves_nothing(hkconv, in_empty_folder, arguments, words):
    given = () if "--out" in arguments else ("--out", "run")
    assert words in hkconv.fails("train", *arguments, *given)
    assert os.listdir(in_empty_folder) == []


@pytest.mark.parametrize(
    "content, words",
    [
        ("hiden_dim: 3", "unknown key 'hiden_dim' in the recipe; did you mean 'hidden_dim'?"),
        ("epochs: many", "epochs must be a whole number of at least 1 and at most 1000000000, got 'many'"),
        ("[1", "is not valid YAML"),
    ],
)
def test_bad_recipe(hkconv, in_empty_folder, content, words):
    Path("recipe.yaml").write_text(content)
    assert words in hkconv.fails("train", "--recipe", "recipe.yaml", "--out", "run")
    assert os.listdir(in_empty_folder) == ["recipe.yaml"]


def test_an_overlapping_split_file_leaves_nothing(hkconv, in_empty_folder):
    Path("mine.json").write_text('{"train": [1, 2], "val": [3], "test": [2, 4]}')
    line = hkconv.fails("train", "--split-file", "mine.json", "--num-splits", 1, "--out", "run")
    assert "train and test of split 0 of mine.json share 1 members: they must be disjoint" in line
    assert os.listdir(in_empty_folder) == ["mine.json"]


def test_published_graphs_report_their_best_validation_score(hkconv, real_data):
    result = hkconv("train", "ptc", "--protocol", "published", *QUICK, "--data", real_data, "--out", "run")
    assert result.exit_code == 0, result.output
    assert "protocol published" in result.stdout
    assert (
        "overlap of the splits: 0.0 % of val in train, 0.0 % of test in train, 100.0 % of test in val" in result.stdout
    )
    for cell in json.loads(Path("run/summary.json").read_text())["cells"]:
        assert cell["test_metric"] == cell["val_metric"]
    assert hkconv("evaluate", "run", "--data", real_data).exit_code == 0


def test_a_folder_in_use(hkconv, in_empty_folder):
    Path("run").mkdir()
    Path("run/mine.txt").touch()
    assert "out run is not empty" in hkconv.fails("train", "--out", "run")
    assert os.listdir("run") == ["mine.txt"]


def test_a_file_in_place_of_the_folder(hkconv, in_empty_folder):
    Path("run").touch()
    assert "out must be a folder" in hkconv.fails("train", "--out", "run")


def test_texas_from_real_data(hkconv, real_data):
    result = hkconv("train", "texas", *QUICK, "--data", real_data, "--out", "run")
    assert result.exit_code == 0, result.output
    assert "texas: node task" in result.stdout
