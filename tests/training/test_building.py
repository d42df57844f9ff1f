from hkconv.models import create
from hkconv.training.building import describe_dataset, fit_settings, load_dataset, model_config
from hkconv.training.recipe import MODEL_NAMES, Recipe


def test_recipe_reaches_data_models_and_settings():
    recipe = Recipe(
        dataset="disease",
        task="link",
        num_splits=2,
        seed=4,
        hidden_dim=6,
        kernel_size=3,
        lr=0.5,
        epochs=30,
        capture=True,
    )
    dataset = load_dataset(recipe)
    assert (dataset.name, dataset.task, len(dataset.splits)) == ("disease", "link", 2)
    for name in MODEL_NAMES:
        create(name, **model_config(recipe, name, dataset))
    config = model_config(recipe, "hkn", dataset)
    assert (config["hidden_dim"], config["kernel_size"], config["num_classes"]) == (6, 3, None)
    assert "kernel_size" not in model_config(recipe, "mlp", dataset)
    settings = fit_settings(recipe, 7)
    assert (settings.lr, settings.seed, settings.epochs, settings.capture) == (0.5, 7, 30, True)


def test_description_holds_sizes(molecules):
    found = describe_dataset(molecules)
    assert (found["name"], found["task"], found["protocol"]) == ("shapes", "graph", "clean")
    assert (found["num_graphs"], found["num_classes"], found["num_features"]) == (40, 2, 1)
    assert found["num_nodes"] == sum(graph.num_nodes for graph in molecules.graphs)


def test_a_model_has_two_logits_for_each_question(questions):
    recipe = Recipe(dataset="tree")
    for name in MODEL_NAMES:
        config = model_config(recipe, name, questions)
        assert (config["num_classes"], config["in_features"]) == (4, 3)
        create(name, **config)
    found = describe_dataset(questions)
    assert (found["num_classes"], found["num_features"]) == (2, 3)
