import contextlib
import io
import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch
import yaml
from markdown_it import MarkdownIt
from own_files import write_papers

import hkconv.data
from hkconv.data import hierarchy
from hkconv.engine.checkpoint import load_checkpoint
from hkconv.errors import InputError
from hkconv.models import HKN
from hkconv.models.checkpoint_files import read_config
from hkconv.tasks import building
from hkconv.tasks.model_card import CARD_FILE, export_folder, model_card, percent, plain
from hkconv.tasks.predict import choose_training, predict_run
from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.refit import refit_run
from hkconv.tasks.run import read_recipe, read_result, train_run, trained_cells

QUICK = {"epochs": 3, "num_splits": 2, "hidden_dim": 4, "num_layers": 1, "device": "cpu"}
# One name with what YAML, Markdown and HTML give a meaning to.
HOSTILE = (
    "]\n---\nlicense: stolen\n# `x` | [a](http://b) <script>alert(1)</script> ![c](d) *e* _f_ &lt; www.g.h {#i} $j$"
)


def trained(out: Path, **changes) -> Path:
    train_run(make_recipe({**QUICK, "models": ("hkn", "mlp"), "out": str(out), **changes}))
    return out


@pytest.fixture
def run(tmp_path) -> Path:
    return trained(tmp_path / "run")


def exported(run: Path, name: str = "shared", **options) -> tuple[Path, str]:
    """The folder that a run was exported to, and its card."""
    out = run.parent / name
    export_folder(run, out, **options)
    return out, (out / CARD_FILE).read_text(encoding="utf-8")


def parts_of(card: str) -> tuple[dict, str]:
    """What the head of a card says, as the hub finds it, and the text after it."""
    found = re.match(r"---\n(.*?)\n---\n", card, re.S)
    return yaml.safe_load(found[1]), card[found.end() :]


def cells_of(card: str, row: str) -> list[str]:
    return re.search(rf"^\| {row} \| (.*) \|$", card, re.M)[1].split(" | ")


def printed_by(card: str, monkeypatch, folder: Path) -> str:
    monkeypatch.chdir(folder)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(re.search(r"```python\n(.*?)```", card, re.S)[1], {})
    return out.getvalue()


def test_the_folder_predicts_as_the_run_does(run):
    out, _ = exported(run)
    network, _ = load_checkpoint(choose_training(run, "hkn").place)
    graph = hierarchy().graph
    with torch.no_grad():
        assert torch.equal(HKN.from_pretrained(out)(graph.x, graph.edge_index), network(graph.x, graph.edge_index))
    assert {path.name for path in out.iterdir()} == {"README.md", "config.json", "model.safetensors"}


def test_figures_are_those_of_the_files_of_the_run(run):
    _, card = exported(run, license="MIT")
    stored = [json.loads((run / f"hkn/split{split}-seed0/metrics.json").read_text()) for split in range(2)]
    best = max(stored, key=lambda entry: entry["val_metric"])
    assert cells_of(card, "this training") == [percent(best["val_metric"]), percent(best["test_metric"])]
    for model in ("hkn", "mlp"):
        row = next(row for row in json.loads((run / "summary.json").read_text())["models"] if row["model"] == model)
        expected = [f"{percent(row[part]['mean'])} ± {100 * row[part]['deviation']:.2f}" for part in ("val", "test")]
        assert cells_of(card, f"mean of the 2 of {model}") == expected
    assert cells_of(card, "split") == [f"{best['split']}, of splits 0 to 1; seed 0"]
    assert cells_of(card, "seconds of training") == [f"{best['seconds']:.1f}"]
    assert f"epoch {best['best_epoch']} of {best['epochs']}" in card
    assert f"{best['parameters']:,} parameters" in card
    config = json.loads((run / f"hkn/split{best['split']}-seed0/config.json").read_text())
    assert cells_of(card, "torch") == [config["training"]["versions"]["torch"]]
    assert cells_of(card, "lr") == [str(config["training"]["lr"])]
    head, _ = parts_of(card)
    (found,) = head["model-index"][0]["results"]
    assert found["metrics"] == [{"type": "accuracy", "name": "test accuracy", "value": best["test_metric"]}]
    assert (head["library_name"], head["license"], head["datasets"]) == ("hkconv", "mit", ["tree"])


def test_the_hub_reads_the_head(run):
    hub = pytest.importorskip("huggingface_hub")
    _, card = exported(run)
    data = hub.ModelCard(card).data
    assert data.library_name == "hkconv"
    (result,) = data.eval_results
    assert result.task_type == "node-classification"
    assert result.metric_value == choose_training(run, "hkn").result.test_metric


@pytest.mark.parametrize(
    "changes", [{}, {"task": "link"}, {"seed": 3, "scale": "standard", "direction": "in"}], ids=str
)
def test_the_code_of_the_card_prints_the_test_score(tmp_path, monkeypatch, changes):
    run = trained(tmp_path / "run", **changes)
    _, card = exported(run)
    assert float(printed_by(card, monkeypatch, tmp_path)) == choose_training(run, "hkn").result.test_metric


def test_the_code_of_the_card_of_a_graph_task(tmp_path, monkeypatch, questions):
    for module in (building, hkconv.data):
        monkeypatch.setattr(module, "load", lambda *_, **__: questions)
    run = trained(tmp_path / "run", num_splits=1)
    _, card = exported(run)
    assert float(printed_by(card, monkeypatch, tmp_path)) == choose_training(run, "hkn").result.test_metric
    assert parts_of(card)[0]["metrics"] == ["roc_auc"]
    assert "There was one training only" in card


def own_run(tmp_path, name="papers") -> Path:
    papers = write_papers(tmp_path / name)
    nodes = (papers / "nodes.csv").read_text()
    (papers / "nodes.csv").write_text(nodes.replace(",high\n", ',"' + HOSTILE.replace("\n", " ") + '"\n'))
    return trained(tmp_path / "run", dataset=str(papers))


def test_hostile_names_are_text(tmp_path):
    run = own_run(tmp_path, HOSTILE.replace("/", "∕"))
    _, card = exported(run, "out\n---\n" + HOSTILE.replace("/", "∕"))
    head, text = parts_of(card)
    assert "license" not in head
    assert head["datasets"] == [" ".join(HOSTILE.replace("/", "∕").split())]
    tokens = MarkdownIt("commonmark").enable("table").parse(text)
    kinds = {inner.type for token in tokens for inner in [token, *(token.children or [])]}
    assert kinds.isdisjoint({"html_inline", "html_block", "link_open", "image", "em_open", "strong_open", "hr"})
    headings = [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]
    assert headings[1:] == ["Use", "Data", "Scores", "Settings", "Software and device", "Not tested"]
    shown = " ".join("".join(inner.content for inner in token.children or []) for token in tokens)
    assert " ".join(HOSTILE.split()) in shown


def test_a_name_is_shown_as_it_is():
    for name in (HOSTILE, "a\\b", "~~x~~", "@me", "#1", "a\u202eb", "\udcff", "https://x.y"):
        (_, inline, _) = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(f"x{plain(name)}")
        assert {child.type for child in inline.children} <= {"text", "text_special"}
        expected = "".join(filter(str.isprintable, " ".join(name.split())))
        assert "".join(child.content for child in inline.children) == f"x{expected}"


def test_no_file_names_a_place_on_this_machine(tmp_path):
    splits = tmp_path / "secret.json"
    parts = {"train": list(range(300)), "val": list(range(300, 500)), "test": list(range(500, 971))}
    splits.write_text(json.dumps([parts]))
    runs = {
        "own": own_run(tmp_path),
        "file": trained(tmp_path / "other", split_file=str(splits), num_splits=1),
    }
    for name, run in runs.items():
        out, card = exported(run, name)
        content = b"".join(path.read_bytes() for path in out.iterdir())
        assert str(tmp_path).encode() not in content and b"secret" not in content
        # Others can load neither, so that there is no code that would.
        assert "from hkconv.data" not in card


def test_own_data_name_their_classes_in_the_order_of_the_logits(tmp_path):
    run = trained(tmp_path / "run", dataset=str(write_papers(tmp_path / "papers")))
    _, card = exported(run)
    assert "Classes, in the order of the logits: high, low, mid." in card
    assert cells_of(card, "dataset") == ["papers, own data"]


def relabeled_run(tmp_path, head: str, cells: dict[str, str]) -> Path:
    """A run on papers with other labels."""
    papers = write_papers(tmp_path / "papers")
    rows = [line.rsplit(",", 1) for line in (papers / "nodes.csv").read_text().splitlines()[1:]]
    lines = [f"id,age,colour,{head}", *(f"{first},{cells[label]}" for first, label in rows)]
    (papers / "nodes.csv").write_text("\n".join(lines) + "\n")
    return trained(tmp_path / "run", dataset=str(papers), models=("hkn",))


def logits_of(run: Path, shared: Path) -> torch.Tensor:
    """What the shared network gives for the data of its run."""
    dataset = building.load_dataset(read_recipe(run))
    graph, split = dataset.graph, dataset.splits[choose_training(run).result.split]
    with torch.no_grad():
        return HKN.from_pretrained(shared)(split.scaling(graph.x), graph.edge_index, graph.edge_weight)


def test_the_card_says_how_logits_become_a_number(tmp_path):
    run = relabeled_run(tmp_path, "target", {"low": "-3.5", "mid": "20", "high": "41", "": ""})
    out, card = exported(run)
    number = eval(re.search(r"its number is `(.*?)`", card)[1], {"logits": logits_of(run, out).double()})
    torch.testing.assert_close(number, predict_run(run, device="cpu").probabilities[:, 0], rtol=1e-5, atol=1e-5)
    head, text = parts_of(card)
    assert head["metrics"] == ["r_squared"] and "node-regression" in head["tags"]
    assert "softmax" not in text and "lasses" not in text


def test_the_card_says_how_logits_answer_questions(tmp_path):
    run = relabeled_run(tmp_path, "label:read,label:old", {"low": "1,0", "mid": "0,0", "high": "1,1", "": ","})
    out, card = exported(run)
    pairs = logits_of(run, out).double().unflatten(1, (-1, 2)).softmax(-1)
    torch.testing.assert_close(pairs[..., 1], predict_run(run, device="cpu").probabilities, rtol=1e-5, atol=1e-5)
    assert "no and yes of one question after the other" in card
    assert "Questions, in the order of the logits: read, old." in card and "| classes |" not in card


def test_a_setting_that_follows_from_the_form_is_not_called_none(tmp_path):
    for norm, shown in ((None, "default"), ("none", "none")):
        _, card = exported(trained(tmp_path / shown, norm=norm), f"out-{shown}")
        assert cells_of(card, "norm") == [shown]


def test_a_refitted_network_says_that_no_score_is_known_of_it(run):
    refit_run(run)
    out, card = exported(run)
    assert "no score is known of them" in card
    assert cells_of(card, "device") == [read_config(run / "refit")["training"]["device"]] != [""]
    assert "evaluate" not in card
    network, _ = load_checkpoint(run / "refit")
    stored = HKN.from_pretrained(out).state_dict()
    assert all(torch.equal(stored[name], value) for name, value in network.state_dict().items())


def test_an_interrupted_training_says_so_and_counts_in_no_mean(run):
    recipe = read_recipe(run)
    first, second = (read_result(run, cell) for cell in trained_cells(run, recipe.replace(models=("hkn",))))
    _, info = load_checkpoint(run / first.cell.folder)
    assert "interrupted" not in model_card("x", recipe, first, [first, second], info)
    halted = replace(first, interrupted=True)
    card = model_card("x", recipe, halted, [halted, second], info)
    assert "The training was interrupted." in card
    assert cells_of(card, "mean of the 1 of hkn") == [percent(second.val_metric), percent(second.test_metric)]


def test_a_folder_with_other_files_is_left_alone(run):
    out = run.parent / "site"
    out.mkdir()
    (out / "README.md").write_text("mine")
    with pytest.raises(InputError, match="is not empty and holds no network"):
        export_folder(run, out)
    assert [path.read_text() for path in out.iterdir()] == ["mine"]


def test_an_older_network_is_replaced(run):
    out, card = exported(run)
    HKN(2, 3, 4, num_layers=1).save_pretrained(out)
    assert exported(run)[1] == card
    assert HKN.from_pretrained(out).build_options["num_classes"] == 8
