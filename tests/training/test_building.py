import pytest

from hkconv.models import MODELS, create
from hkconv.models.tasks import TASKS
from hkconv.training.building import describe_dataset, fit_settings, load_dataset, model_config
from hkconv.training.recipe import MODEL_NAMES, Recipe


def models_for(task):
    return [name for name in MODEL_NAMES if task in getattr(MODELS[name], "tasks", TASKS)]


def test_recipe_reaches_data_models_and_settings():
    recipe = Recipe(
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
    settings = fit_settings(recipe, 7)
    assert (settings.lr, settings.seed, settings.epochs, settings.capture) == (0.5, 7, 30, True)


def test_a_system_that_reads_adjacency_rows_is_told_the_number_of_nodes():
    dataset = load_dataset(Recipe(dataset="tree", num_splits=1))
    assert model_config(Recipe(), "linkx", dataset)["num_nodes"] == dataset.graph.num_nodes
    assert "num_nodes" not in model_config(Recipe(), "gcn", dataset)


def test_description_holds_sizes(molecules):
    found = describe_dataset(molecules)
    assert (found["name"], found["task"], found["protocol"]) == ("shapes", "graph", "clean")
    assert (found["num_graphs"], found["num_classes"], found["num_features"]) == (40, 2, 1)
    assert found["num_nodes"] == sum(graph.num_nodes for graph in molecules.graphs)


def test_published_data_is_described_with_its_overlap(real_data):
    recipe = Recipe(dataset="texas", protocol="published", num_splits=2, data=str(real_data))
    found = describe_dataset(load_dataset(recipe))
    assert found["protocol"] == "published"
    assert found["overlap"]["test in train"] == pytest.approx((26 / 42 + 34 / 42) / 2)
    assert "overlap" not in describe_dataset(load_dataset(Recipe(dataset="texas", data=str(real_data))))


def test_own_splits_reach_the_dataset(tmp_path):
    (tmp_path / "mine.json").write_text('{"train": [1], "val": [2], "test": [3]}')
    dataset = load_dataset(Recipe(num_splits=1, split_file=str(tmp_path / "mine.json")))
    assert dataset.protocol == "own" and dataset.splits[0].test.tolist() == [3]


def test_a_model_has_two_logits_for_each_question(questions):
    recipe = Recipe(dataset="tree")
    for name in models_for("graph"):
        config = model_config(recipe, name, questions)
        assert (config["num_classes"], config["in_features"]) == (4, 3)
        create(name, **config)
    found = describe_dataset(questions)
    assert (found["num_classes"], found["num_features"]) == (2, 3)
