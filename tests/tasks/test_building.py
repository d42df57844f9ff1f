import inspect
import json
import re

import numpy as np
import pytest
import torch
from own_files import write_papers
from torch_geometric.data import Data

from hkconv.engine.callbacks import Callback
from hkconv.errors import InputError
from hkconv.models import HKN, MODELS, create
from hkconv.models.options import HKNOptions
from hkconv.models.tasks import TASKS
from hkconv.tasks.building import describe_dataset, find_schema, load_dataset, model_config
from hkconv.tasks.evaluate import evaluate_run
from hkconv.tasks.recipe import Recipe, make_recipe
from hkconv.tasks.run import read_recipe, train_run


def models_for(task):
    return [name for name in MODELS if task in getattr(MODELS[name], "tasks", TASKS)]


def test_recipe_reaches_data_models_and_settings():
    recipe = make_recipe(
        dataset="disease",
        task="link",
        num_splits=2,
        seed=4,
        hidden_dim=8,
        kernel_size=3,
        lr=0.5,
        epochs=30,
        capture=True,
    )
    dataset = load_dataset(recipe)
    assert (dataset.name, dataset.task, len(dataset.splits)) == ("disease", "link", 2)
    for name in models_for("link"):
        create(name, **model_config(recipe, name, dataset))
    config = model_config(recipe, "hkn", dataset)
    assert (config["hidden_dim"], config["kernel_size"], config["num_classes"]) == (8, 3, None)
    assert "kernel_size" not in model_config(recipe, "mlp", dataset)
    settings = recipe.settings(7)
    assert (settings.lr, settings.seed, settings.epochs, settings.capture) == (0.5, 7, 30, True)


def test_a_system_that_reads_adjacency_rows_is_told_the_number_of_nodes():
    dataset = load_dataset(make_recipe(dataset="tree", num_splits=1))
    assert model_config(Recipe(), "linkx", dataset)["num_nodes"] == dataset.graph.num_nodes
    assert "num_nodes" not in model_config(Recipe(), "gcn", dataset)


def test_a_system_without_weights_of_edges_is_refused_where_there_are_some(tree):
    tree.graph.edge_weight = torch.ones(tree.graph.edge_index.size(1))
    model_config(Recipe(), "hkn", tree)
    with pytest.raises(
        InputError, match="model 'gat' knows no weights of edges, and those of dataset 'tree' have some"
    ):
        model_config(Recipe(), "gat", tree)


@pytest.mark.parametrize("direction, offsets", [("in", [-1]), ("out", [1]), ("both", [-1, 1])])
def test_a_node_hears_from_those_whom_the_direction_says(direction, offsets, tmp_path):
    """Each of ten nodes points to the next. Features arrive from neighbours, and adjacency rows hold them."""
    nodes = np.arange(10)
    path = tmp_path / "path.npz"
    np.savez(path, x=np.random.default_rng(0).normal(size=(10, 3)), edge_index=[nodes[:-1], nodes[1:]], y=nodes % 2)
    recipe = make_recipe(dataset=str(path), direction=direction, num_splits=1, num_layers=1, readout="last")
    dataset = load_dataset(recipe)
    x, edges = dataset.graph.x, dataset.graph.edge_index
    heard = sum(torch.diag(torch.ones(9), offset) for offset in offsets) > 0

    def build(name, **options):
        return create(name, **model_config(recipe.replace(**options), name, dataset)).eval()

    for model in (build("hkn"), build("gcn")):
        slopes = torch.autograd.functional.jacobian(lambda x, model=model: model(x, edges).square().sum(1), x)
        assert torch.equal(slopes.ne(0).any(2), heard | torch.eye(10, dtype=torch.bool))
    hkn, linkx = build("hkn", structure=True), build("linkx")
    for rows, answer in ((hkn.embedding.node_weight, hkn.embedding), (linkx.network.edge_lin.weight, linkx)):
        slopes = [
            torch.autograd.grad(found, rows, retain_graph=True)[0]
            for found in answer(x, edges).square().sum(1).split(1)
        ]
        for node, slope in enumerate(slopes):
            assert torch.equal(slope.ne(0).any(1), heard[node])


def test_every_option_of_hkn_is_reached():
    """Each value is another than the default, and arrives."""
    chosen = {
        "form": "paper",
        **dict.fromkeys(("mass", "structure", "learn_curvature"), True),
        "norm": "batch",
        "hidden_act": "relu",
        "readout": "all",
        "act": "relu",
        "relative": False,
    }
    recipe = make_recipe(dataset="tree", num_splits=1, **chosen)
    dataset = load_dataset(recipe)
    graph = dataset.graph
    config = model_config(recipe, "hkn", dataset)
    assert {name: config[name] for name in chosen}.items() <= chosen.items()
    assert config["num_nodes"] == graph.num_nodes
    logits = create("hkn", **config)(graph.x, graph.edge_index)
    assert logits.shape == (graph.num_nodes, dataset.num_classes) and logits.isfinite().all()
    options = set(inspect.signature(HKN.__init__).parameters)
    assert set(HKNOptions.options()) <= options
    assert options - set(HKNOptions.options()) == {
        *("self", "in_features", "num_classes", "task", "num_nodes", "edge_dim", "backend"),
        *("hidden_dim", "num_layers", "dropout"),
    }


@pytest.mark.parametrize("name", [name for name in MODELS if name != "gmt"])
def test_a_model_is_given_the_options_that_it_takes_and_no_others(name):
    """Whatever a recipe says of others; what it leaves open is the model's own default."""
    dataset = load_dataset(make_recipe(num_splits=1))
    recipe = make_recipe(norm="layer", residual=True, alpha=0.3, theta=2.0, hidden_dim=8)
    config, left_open = model_config(recipe, name, dataset), model_config(make_recipe(), name, dataset)
    create(name, **config)
    create(name, **left_open)
    own = {key: config[key] for key in ("norm", "residual", "alpha", "theta") if key in config}
    both = {"norm": "layer", "residual": True}
    assert own == {
        **dict.fromkeys(("gcn", "gat", "graphsage", "acm-gcn"), both),
        "gcnii": {"alpha": 0.3, "theta": 2.0},
        "dir-gnn": {**both, "alpha": 0.3},
        "hkn": {"norm": "layer"},
    }.get(name, {})
    assert name == "hkn" or None not in left_open.values()


def test_none_is_a_word_of_its_own():
    """Where None is what the form has, and where the form is told to have nothing."""
    dataset = load_dataset(make_recipe(num_splits=1))
    config = model_config(make_recipe(norm="none", hidden_act="none", readout="last"), "hkn", dataset)
    assert (config["norm"], config["hidden_act"], config["readout"]) == ("none", "none", "last")
    assert not [name for name, _ in create("hkn", **config).named_parameters() if "norm" in name]
    config = model_config(Recipe(), "hkn", dataset)
    assert (config["form"], config["norm"], config["hidden_act"], config["readout"]) == ("views", None, None, None)
    assert [name for name, _ in create("hkn", **config).named_parameters() if "norm" in name]


def test_rows_of_the_adjacency_are_for_one_graph(molecules):
    recipe = make_recipe(structure=True)
    assert "num_nodes" not in model_config(recipe, "gcn", load_dataset(make_recipe(num_splits=1)))
    with pytest.raises(InputError, match="structure is for the node task"):
        create("hkn", **model_config(recipe, "hkn", molecules))


def test_description_holds_sizes(molecules):
    found = describe_dataset(molecules)
    assert (found["name"], found["task"], found["protocol"]) == ("shapes", "graph", "clean")
    assert (found["num_graphs"], found["num_classes"], found["num_features"]) == (40, 2, 1)
    assert found["num_nodes"] == sum(graph.num_nodes for graph in molecules.graphs)


def test_published_data_is_described_with_its_overlap(real_data):
    recipe = make_recipe(dataset="texas", protocol="published", num_splits=2, data=str(real_data))
    found = describe_dataset(load_dataset(recipe))
    assert found["protocol"] == "published"
    assert found["overlap"]["test in train"] == pytest.approx((26 / 42 + 34 / 42) / 2)
    assert "overlap" not in describe_dataset(load_dataset(make_recipe(dataset="texas", data=str(real_data))))


def test_own_splits_reach_the_dataset(tmp_path):
    (tmp_path / "mine.json").write_text('{"train": [1], "val": [2], "test": [3]}')
    dataset = load_dataset(make_recipe(num_splits=1, split_file=str(tmp_path / "mine.json")))
    assert dataset.protocol == "own" and dataset.splits[0].test.tolist() == [3]


def test_a_model_has_two_logits_for_each_question(questions):
    recipe = make_recipe(dataset="tree")
    for name in models_for("graph"):
        config = model_config(recipe, name, questions)
        assert (config["num_classes"], config["in_features"]) == (4, 3)
        create(name, **config)
    found = describe_dataset(questions)
    assert (found["num_classes"], found["num_features"]) == (2, 3)


def refused(message):
    return pytest.raises(InputError, match=re.escape(message))


@pytest.fixture
def papers(tmp_path):
    return write_papers(tmp_path / "papers")


def quick(papers, out, **changes):
    values = {"models": ("mlp", "gcn"), "epochs": 3, "num_splits": 2, "hidden_dim": 4, "device": "cpu"}
    return make_recipe(**{**values, "dataset": str(papers), "out": str(out), **changes})


def weights_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("model.safetensors"))}


def test_a_run_keeps_what_it_learned_of_the_data(papers, tmp_path):
    summary = train_run(quick(papers, tmp_path / "run"))
    assert [summary.dataset[key] for key in ("name", "num_classes", "num_features")] == ["papers", 3, 4]
    schema = find_schema(tmp_path / "run")
    assert schema.classes == ("high", "low", "mid") and schema.is_weighted
    assert [(feature.name, feature.categories) for feature in schema.features] == [
        ("age", None),
        ("colour", ("blue", "green", "red")),
    ]
    with np.load(tmp_path / "run" / "splits.npz") as masks:
        assert masks["train_mask"].shape == (2, 60) and masks["train_mask"].sum() == 60
    assert all(entry.difference == 0 for entry in evaluate_run(tmp_path / "run", device="cpu"))


def test_a_run_without_a_folder_is_called_after_the_data(papers, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    summary = train_run(make_recipe(dataset="papers", models=("mlp",), epochs=1, num_splits=1, device="cpu"))
    assert re.fullmatch(r"runs/papers-\d{8}-\d{6}", str(summary.folder))
    assert read_recipe(summary.folder).data.dataset == str(papers)


class Interrupt(Callback):
    def cell_ended(self, result):
        raise KeyboardInterrupt


def test_a_resumed_run_ends_as_one_that_never_stopped(papers, tmp_path, monkeypatch):
    train_run(quick(papers, tmp_path / "whole"))
    assert train_run(quick(papers, tmp_path / "half"), Interrupt()).interrupted
    # From another folder, and although other splits would be drawn now.
    monkeypatch.chdir("/")
    monkeypatch.setattr("hkconv.data.own.loading.FRACTIONS", {"node": (0.2, 0.4, 0.4)})
    train_run(read_recipe(tmp_path / "half").replace(out=str(tmp_path / "half")), resume=True)
    assert weights_of(tmp_path / "half") == weights_of(tmp_path / "whole")


@pytest.mark.parametrize(
    ("file", "before", "after", "message"),
    [
        ("nodes.csv", "red", "blue", "have changed since they were trained on: other features, edges or ids"),
        ("nodes.csv", ",low\n", ",mid\n", "have changed since they were trained on: other labels or splits"),
        ("nodes.csv", "red", "pink", "nodes.csv, line 7, column colour: category 'pink' was not there in training"),
        ("nodes.csv", "age", "years", "nodes.csv, line 1, column years is unknown"),
        ("edges.csv", "paper 0,", "paper 1,", "have changed since they were trained on: other features, edges or ids"),
    ],
)
def test_changed_data_are_noticed(papers, tmp_path, file, before, after, message):
    recipe = quick(papers, tmp_path / "run", models=("mlp",), epochs=1)
    train_run(recipe)
    content = (papers / file).read_text()
    assert before in content
    (papers / file).write_text(content.replace(before, after, 1))
    with refused(message):
        evaluate_run(tmp_path / "run")
    with refused(message):
        train_run(recipe, resume=True)


def test_data_that_moved_are_found_again(papers, tmp_path):
    train_run(quick(papers, tmp_path / "run", models=("mlp",), epochs=1))
    papers.rename(tmp_path / "elsewhere")
    with refused("papers do not exist"):
        evaluate_run(tmp_path / "run")
    assert all(entry.agrees for entry in evaluate_run(tmp_path / "run", data=str(tmp_path / "elsewhere")))
    moved = read_recipe(tmp_path / "run").replace(data=str(tmp_path / "elsewhere"))
    assert len(train_run(moved, resume=True).cells) == 2
    with refused("data is the folder of named datasets"):
        load_dataset(quick(tmp_path / "elsewhere", tmp_path / "new", data=str(tmp_path)))


def test_weights_reach_the_task_and_systems_without_them_are_refused_before_anything_is_written(papers, tmp_path):
    graph = load_dataset(quick(papers, tmp_path / "run")).graph
    assert graph.edge_weight.shape == (graph.edge_index.size(1),) and len(graph.edge_weight.unique()) > 10
    with refused("model 'gat' knows no weights of edges"):
        train_run(quick(papers, tmp_path / "run", models=("gat",)))
    assert not (tmp_path / "run").exists()
    train_run(quick(write_papers(papers, weighted=False), tmp_path / "run", models=("gat",), hidden_dim=8, epochs=1))


def test_graphs_train_too(tmp_path):
    ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    graphs = [
        Data(
            x=torch.ones(4, 1),
            edge_index=ring[:, : 3 + number % 2],
            y=number % 2,
            edge_weight=torch.ones(3 + number % 2),
        )
        for number in range(30)
    ]
    torch.save(graphs, tmp_path / "rings.pt")
    summary = train_run(quick(tmp_path / "rings.pt", tmp_path / "run", models=("gcn",)))
    assert (summary.dataset["task"], summary.dataset["num_graphs"]) == ("graph", 30)
    assert all(entry.difference == 0 for entry in evaluate_run(tmp_path / "run", device="cpu"))


def test_options_that_own_data_do_not_have(papers, tmp_path):
    with refused("protocol must be 'clean' for own data"):
        load_dataset(quick(papers, tmp_path / "run", protocol="published"))
    with refused("must be 'node', got 'graph'"):
        load_dataset(quick(papers, tmp_path / "run", task="graph"))


def test_damaged_files_of_a_run(papers, tmp_path):
    train_run(quick(papers, tmp_path / "run", models=("mlp",), epochs=1))
    data = json.loads((tmp_path / "run" / "data.json").read_text())
    (tmp_path / "run" / "data.json").write_text(json.dumps({**data, "classes": 3}))
    with refused("data.json is damaged: 'classes' must be a list"):
        evaluate_run(tmp_path / "run")
    (tmp_path / "run" / "data.json").write_text(json.dumps(data))
    (tmp_path / "run" / "splits.npz").write_bytes(b"half")
    with refused("splits.npz is not a valid .npz file"):
        evaluate_run(tmp_path / "run")
