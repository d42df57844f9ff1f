import pytest
import torch

from hkconv.data import disease, hierarchy
from hkconv.errors import InputError

GENERATORS = [hierarchy, disease]


@pytest.mark.parametrize("generate", GENERATORS)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_graph_is_a_tree(generate, seed):
    graph = generate(seed=seed).graph
    assert graph.edge_index.size(1) == 2 * (graph.num_nodes - 1)
    reached = torch.zeros(graph.num_nodes, dtype=torch.bool)
    reached[0] = True
    for _ in range(6):
        reached[graph.edge_index[1, reached[graph.edge_index[0]]]] = True
    # Connected with N - 1 links is a tree, and six rounds bound its depth.
    assert reached.all()


@pytest.mark.parametrize("generate", GENERATORS)
def test_the_seed_decides_everything(generate):
    first, again, other = generate(seed=3), generate(seed=3), generate(seed=4)
    for key in ("x", "edge_index", "y", "parent"):
        assert torch.equal(first.graph[key], again.graph[key])
    assert torch.equal(first.splits[0].train, again.splits[0].train)
    assert not torch.equal(first.graph.x[:50], other.graph.x[:50])
    assert not torch.equal(first.graph.parent[:600], other.graph.parent[:600])


@pytest.mark.parametrize(("generate", "fractions"), [(hierarchy, (0.6, 0.2, 0.2)), (disease, (0.3, 0.1, 0.6))])
def test_splits_have_their_fractions_and_do_not_depend_on_their_number(generate, fractions):
    few, many = generate(num_splits=1), generate(num_splits=3)
    assert len(many.splits) == 3 and torch.equal(few.graph.x, many.graph.x)
    assert torch.equal(few.splits[0].test, many.splits[0].test)
    for members, fraction in zip(many.splits[2].parts.values(), fractions):
        assert len(members) == pytest.approx(fraction * many.graph.num_nodes, abs=3)


def test_labels_are_constant_on_the_subtrees_of_the_roots_children():
    dataset = hierarchy()
    y, parent = dataset.graph.y, dataset.graph.parent
    heads = (parent == 0).nonzero().flatten()
    assert sorted(y[heads].tolist()) == list(range(dataset.num_classes))
    below = (parent > 0).nonzero().flatten()
    assert torch.equal(y[below], y[parent[below]])


@pytest.mark.parametrize("seed", range(5))
def test_every_class_has_enough_members(seed):
    counts = hierarchy(seed=seed).graph.y.bincount()
    assert counts.min() > 40 and counts.max() < 4 * counts.min()


def test_the_root_has_the_commonest_label_and_is_in_no_split():
    dataset = hierarchy()
    assert dataset.graph.y[0] == dataset.graph.y[1:].bincount().argmax()
    for split in dataset.splits:
        members = torch.cat(list(split.parts.values()))
        assert torch.equal(members.sort().values, torch.arange(1, dataset.graph.num_nodes))


def test_features_diffuse_down_the_tree():
    graph = hierarchy(noise=0.0).graph
    steps = graph.x[1:] - graph.x[graph.parent[1:]]
    assert steps.std() == pytest.approx(1.0, rel=0.03)
    assert torch.equal(graph.x[0], torch.zeros(16))
    shuffled = graph.x[torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))]
    assert (graph.x - shuffled).norm(dim=1).mean() > 2 * steps.norm(dim=1).mean()


def test_step_and_noise_set_their_standard_deviations():
    clear, noisy = (hierarchy(step=0.5, noise=noise, seed=2).graph.x for noise in (0.0, 2.0))
    assert (noisy - clear).std() == pytest.approx(2.0, rel=0.03)
    still = hierarchy(step=0.0, noise=0.0).graph.x
    assert still.abs().max() == 0


def test_options_shape_the_hierarchy():
    dataset = hierarchy(depth=3, branching="fixed", children=2, num_classes=4, num_features=7)
    assert dataset.graph.num_nodes == 1 + 4 * (1 + 2 + 4)
    assert dataset.num_classes == 4 and dataset.num_features == 7


@pytest.mark.parametrize("seed", range(5))
def test_disease_reaches_a_node_only_through_its_parent(seed):
    dataset = disease(seed=seed)
    ill, parent = dataset.graph.y.bool(), dataset.graph.parent
    assert ill[0]
    infected = ill.nonzero().flatten()[1:]
    assert ill[parent[infected]].all()
    assert 0.1 <= ill.float().mean() <= 0.9


def test_a_more_infectious_disease_makes_more_nodes_ill():
    mild, severe = (
        sum(float(disease(infection=infection, seed=seed).graph.y.float().mean()) for seed in range(5))
        for infection in (0.6, 0.95)
    )
    assert severe > mild + 0.5


def test_disease_features_measure_susceptibility_along_one_direction():
    graph = disease(noise=0.0).graph
    values = torch.linalg.svdvals(graph.x)
    assert values[1] < 1e-4 * values[0]
    susceptibility = graph.x @ torch.linalg.svd(graph.x, full_matrices=False).Vh[0]
    exposed = torch.arange(1, graph.num_nodes)[graph.y[graph.parent[1:]] == 1]
    ill = graph.y[exposed] == 1
    gap = susceptibility[exposed][ill].mean() - susceptibility[exposed][~ill].mean()
    assert gap.abs() > 2


@pytest.mark.parametrize(
    ("generate", "options", "message"),
    [
        (hierarchy, {"num_classes": 1}, "num_classes must be at least 2, got 1"),
        (hierarchy, {"num_features": 0}, "num_features must be at least 1, got 0"),
        (hierarchy, {"noise": -1.0}, "noise must be zero or larger"),
        (hierarchy, {"step": float("nan")}, "step must be zero or larger"),
        (hierarchy, {"num_splits": 0}, "num_splits of dataset 'tree' must be at least 1, got 0"),
        (hierarchy, {"branching": "wild"}, "branching must be"),
        (disease, {"infection": 1.0}, "infection must lie between 0 and 1"),
        (disease, {"recovery": 0.0}, "recovery must be above 0"),
        (disease, {"infection": 0.001, "recovery": 1.0}, "infection and recovery leave fewer than 10%"),
        (disease, {"noise": float("inf")}, "noise must be zero or larger"),
    ],
)
def test_bad_options_are_refused(generate, options, message):
    with pytest.raises(InputError, match=message):
        generate(**options)
