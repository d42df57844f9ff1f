import pytest
import torch
from torch_geometric.data import Data

from hkconv.data import NodeDataset, Split, hierarchy
from hkconv.errors import InputError
from hkconv.experiments.spaces import Choices, Range, describe_space, make_space
from hkconv.models.options import HKNOptions
from hkconv.tasks.recipe import make_recipe


@pytest.fixture
def tree() -> NodeDataset:
    return hierarchy(depth=3, children=3, num_classes=3, num_features=4, num_splits=1)


@pytest.fixture
def one_way() -> NodeDataset:
    graph = Data(x=torch.randn(4, 2), edge_index=torch.tensor([[0, 1], [1, 2]]), y=torch.tensor([0, 1, 0, 1]))
    split = Split(torch.tensor([0, 1]), torch.tensor([2]), torch.tensor([3]))
    return NodeDataset("one-way", graph, [split], 2, "test")


def test_the_grid_is_the_papers(tree):
    assert make_space("grid", "hkn", tree) == {
        "kernel_size": Range(2, 9),
        "lr": Choices((0.001, 0.005, 0.01)),
        "weight_decay": Choices((0.0, 0.01, 0.001)),
        "dropout": Choices((0.25, 0.5, 0.75, 0.9)),
        "num_layers": Range(2, 7),
    }


@pytest.mark.parametrize("name", ["grid", "wide"])
def test_a_baseline_has_the_same_space_but_for_what_only_hkn_has(name, tree):
    ours, theirs = make_space(name, "hkn", tree), make_space(name, "mlp", tree)
    assert theirs == {key: values for key, values in ours.items() if key not in HKNOptions.options()}
    assert "kernel_size" in ours.keys() - theirs.keys()


def test_the_wide_space_has_the_levers_that_a_recipe_knows(tree):
    space = make_space("wide", "hkn", tree)
    assert space["structure"] == space["mass"] == Choices((False, True))
    # A switch or word of HKN that somebody adds is searched, unless it makes another variant of the paper's.
    for name, entry in HKNOptions.options().items():
        rule = entry.metadata["rule"]
        if rule.kind is bool or rule.choices:
            assert (name in space) == (name not in ("form", "points", "relative"))


def test_the_wide_space_has_the_options_that_a_baseline_takes(tree):
    own = {
        model: make_space("wide", model, tree).keys() - make_space("wide", "mlp", tree).keys()
        for model in ("gcn", "gcnii", "dir-gnn", "hkn-flat")
    }
    assert own == {
        "gcn": {"norm", "residual"},
        "gcnii": {"alpha", "theta"},
        "dir-gnn": {"norm", "residual", "alpha"},
        "hkn-flat": set(),
    }
    assert make_space("wide", "gcn", tree)["norm"] == Choices(("batch", "layer", "none"))


def test_none_is_a_value_where_it_is_none_of_the_words(tree):
    """Where it stands for a word of the form, a search would try that one twice."""
    space = make_space("wide", "hkn", tree)
    assert space["norm"] == Choices(("batch", "layer", "none"))
    assert space["hidden_act"] == Choices(("relu", "none"))
    assert space["readout"] == Choices(("last", "all"))
    assert space["act"] == Choices((None, "relu"))


def test_the_direction_of_edges_is_searched_where_there_is_one(tree, one_way):
    assert "direction" not in make_space("wide", "hkn", tree)
    assert make_space("wide", "gcn", one_way)["direction"] == Choices(("in", "out", "both"))


@pytest.mark.parametrize("name", ["grid", "wide"])
def test_a_recipe_accepts_every_value(name, one_way):
    for key, values in make_space(name, "hkn", one_way).items():
        for value in values.values if isinstance(values, Choices) else (values.low, values.high):
            assert make_recipe({key: value}).flat()[key] == value


def test_what_the_user_decided_is_not_searched(tree):
    assert "lr" not in make_space("grid", "gcn", tree, fixed=("lr", "epochs"))
    with pytest.raises(InputError, match="nothing is left to search"):
        make_space("grid", "gcn", tree, fixed=("lr", "weight_decay", "dropout", "num_layers"))
    with pytest.raises(InputError, match="space must be grid or wide, got 'huge'"):
        make_space("huge", "gcn", tree)


def test_a_space_can_be_written_down(tree):
    described = describe_space(make_space("grid", "hkn", tree))
    assert described["lr"] == [0.001, 0.005, 0.01]
    assert described["kernel_size"] == {"low": 2, "high": 9, "log": False}
