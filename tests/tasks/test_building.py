import inspect

import pytest
import torch

from hkconv.errors import InputError
from hkconv.models import HKN, MODELS, create
from hkconv.models.options import HKNOptions
from hkconv.models.tasks import TASKS
from hkconv.tasks.building import describe_dataset, load_dataset, model_config
from hkconv.tasks.recipe import Recipe, make_recipe


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


def test_every_option_of_hkn_is_reached():
    """Each value is another than the default, and arrives."""
    chosen = {
        "form": "paper",
        **dict.fromkeys(("root", "mass", "structure", "learn_curvature", "directions"), True),
        "norm": "batch",
        "hidden_act": "relu",
        "readout": "all",
        "attention": "distance",
        "undirected": False,
    }
    recipe = make_recipe(dataset="tree", num_splits=1, **chosen)
    dataset = load_dataset(recipe)
    graph = dataset.graph
    graph.edge_index = graph.edge_index[:, graph.edge_index[0] < graph.edge_index[1]]
    config = model_config(recipe, "hkn", dataset)
    assert {name: config[name] for name in chosen if name != "undirected"}.items() <= chosen.items()
    assert config["num_nodes"] == graph.num_nodes
    logits = create("hkn", **config)(graph.x, graph.edge_index)
    assert logits.shape == (graph.num_nodes, dataset.num_classes) and logits.isfinite().all()
    options = set(inspect.signature(HKN.__init__).parameters)
    assert set(HKNOptions.options()) <= options
    assert options - set(HKNOptions.options()) == {
        *("self", "in_features", "num_classes", "task", "num_nodes", "backend"),
        *("hidden_dim", "num_layers", "dropout"),
    }


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


def test_directions_of_edges_that_go_both_ways_are_refused(molecules, links):
    recipe = make_recipe(dataset="tree", num_splits=1, form="paper", directions=True)
    with pytest.raises(InputError, match=r"those of dataset 'tree' all go both ways \(undirected: false"):
        model_config(recipe, "hkn", load_dataset(recipe))
    with pytest.raises(InputError, match="those of dataset 'shapes' all go both ways"):
        model_config(recipe, "hkn", molecules)
    with pytest.raises(InputError, match="the link task uses every link both ways"):
        model_config(recipe, "hkn", links)
    assert "directions" not in model_config(recipe, "gcn", molecules)


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
