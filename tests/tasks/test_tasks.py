from dataclasses import replace
from itertools import chain

import pytest
import torch
import torch_geometric.typing as pyg
from torch_geometric.data import Batch, Data
from torch_geometric.loader import NeighborLoader

from hkconv.data import Split
from hkconv.data.dataset import pair_keys
from hkconv.data.neighbor_sampling import sampler_name
from hkconv.data.preparation import write_out
from hkconv.engine.settings import Settings
from hkconv.errors import InputError
from hkconv.models import GCN, MLP, create, find
from hkconv.tasks.building import model_config
from hkconv.tasks.fitting import fit
from hkconv.tasks.metrics import mean_average_precision, mean_roc_auc
from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.tasks import GraphTask, LinkTask, NodeTask, SampledNodeTask, graph_inputs, make_task


class Constant(torch.nn.Module):
    """Always prefers the first class; remembers what it was called with."""

    def __init__(self, num_classes: int, dtype: torch.dtype = torch.float32):
        super().__init__()
        self.logits = torch.nn.Parameter(-torch.arange(num_classes, dtype=dtype))

    def forward(self, x, edge_index, *, batch=None, batch_size=None, pairs=None):
        self.seen = x, edge_index, pairs
        rows = len(x) if batch is None else batch_size
        return self.logits.expand(rows, -1)


def test_node_task(tree, dtype):
    model = Constant(3, dtype)
    split = tree.splits[0]
    task = make_task(tree, split, model.logits)
    assert isinstance(task, NodeTask)
    score = task.evaluate(model, "test")
    labels = tree.graph.y[split.test]
    assert score.metric == (labels == 0).double().mean()
    expected = torch.nn.functional.cross_entropy(model.logits.expand(len(labels), -1), labels)
    assert score.loss == pytest.approx(expected.item())
    assert model.seen[0].dtype == dtype
    assert not model.training
    (batch,) = task.batches()
    train = tree.graph.y[split.train]
    loss = torch.nn.functional.cross_entropy(model.logits.expand(len(train), -1), train)
    torch.testing.assert_close(task.loss(model, batch), loss)
    majority = train.bincount().argmax()
    assert task.chance_score() == (labels == majority).double().mean()


class Chosen(torch.nn.Module):
    """Has the logits or scores that it is given, whatever it is called with."""

    def __init__(self, logits):
        super().__init__()
        self.logits = torch.nn.Parameter(logits)

    def forward(self, x, edge_index, *, batch=None, batch_size=None, pairs=None):
        return self.logits


def test_one_class_for_all_nodes_and_a_lucky_one_are_unlearned(tree):
    split, labels = tree.splits[0], tree.graph.y
    common = labels[split.val].mode().values
    named = torch.full_like(labels, int(common))
    lucky = split.val[labels[split.val] != common][:2]

    def score(members):
        named[members] = labels[members]
        logits = torch.nn.functional.one_hot(named, 3).float()
        return make_task(tree, split, logits).evaluate(Chosen(logits), "val").metric

    most = make_task(tree, split, torch.empty(0)).unlearned_score()
    assert [score(lucky[:count]) - most for count in range(3)] == pytest.approx(
        [step / len(split.val) for step in (-1, 0, 1)]
    )
    sampled = make_task(tree, split, torch.empty(0), batch_size=20, neighbors=(3, 2))
    assert sampled.unlearned_score() == most


def test_a_class_is_counted_in_the_labels_to_validate_with(tree):
    """The most frequent class to train on need not be that, and a model may name either."""
    labels = tree.graph.y
    zeros, ones = ((labels == number).nonzero().flatten() for number in (0, 1))
    split = Split(torch.cat([zeros[:9], ones[:2]]), torch.cat([zeros[9:10], ones[2:5]]), zeros[10:12])
    assert make_task(tree, split, torch.empty(0)).unlearned_score() == 1.0
    larger = Split(split.train, torch.cat([zeros[9:13], ones[2:8]]), zeros[13:15])
    assert make_task(tree, larger, torch.empty(0)).unlearned_score() == 0.7


FORMS = {"views": {}, "paper": {"relative": False}}
both_forms = pytest.mark.parametrize("form", FORMS)


def hkn_for(tree, dtype=torch.float32, form="views", **options):
    options = {"kernel_size": 2, "form": form, **FORMS[form], "dropout": 0.0, "backend": "reference", **options}
    return create("hkn", in_features=4, hidden_dim=3, num_classes=3, num_layers=2, task="node", **options).to(dtype)


def test_sampled_node_task_sees_every_training_node_once_in_a_seeded_order(tree):
    split = tree.splits[0]

    def epochs(seed):
        task = make_task(tree, split, torch.empty(0), batch_size=20, neighbors=(3, 2), seed=seed)
        assert isinstance(task, SampledNodeTask)
        return [list(task.batches()) for _ in range(2)]

    def members(batches):
        return torch.cat([batch.n_id[: batch.batch_size] for batch in batches])

    def all_nodes(epochs):
        return [batch.n_id.tolist() for epoch in epochs for batch in epoch]

    first, second = epochs(3)
    assert {batch.batch_size for batch in first[:-1]} == {20}
    assert torch.equal(members(first).sort().values, split.train.sort().values)
    assert not torch.equal(members(first), members(second))
    assert all_nodes(epochs(3)) == all_nodes([first, second]) != all_nodes(epochs(4))
    for batch in first:
        assert torch.equal(batch.x, tree.graph.x[batch.n_id]) and torch.equal(batch.y, tree.graph.y[batch.n_id])
        assert torch.equal(batch.n_id[batch.edge_index], tree.graph.edge_index[:, batch.e_id])
        assert batch.edge_index[1, : batch.num_sampled_edges[0]].bincount().max() <= 3


@both_forms
def test_sampled_node_task_with_all_neighbours_has_the_loss_and_scores_of_the_whole_graph(tree, dtype, form):
    tree.graph.edge_weight = torch.rand(tree.graph.edge_index.size(1))
    # A norm over the batch sees other nodes in a sample: those that it was drawn for.
    model = hkn_for(tree, dtype, form, norm="layer")
    reference = next(model.parameters())
    whole = make_task(tree, tree.splits[0], reference)
    sampled = make_task(tree, tree.splits[0], reference, batch_size=10**6, neighbors=(-1, -1))
    (batch,) = sampled.batches()
    loss = sampled.loss(model, batch)
    torch.testing.assert_close(loss, whole.loss(model, *whole.batches()), rtol=1e-5, atol=1e-6)
    loss.backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    whole.loss(model, *whole.batches()).backward()
    for mine, parameter in zip(gradients, model.parameters()):
        torch.testing.assert_close(mine, parameter.grad, rtol=1e-4, atol=1e-5)
    for part in ("train", "val", "test"):
        torch.testing.assert_close(sampled.measure(model, part), whole.measure(model, part), rtol=1e-5, atol=1e-6)
    assert sampled.chance_score() == whole.chance_score()


def test_evaluation_does_not_change_the_batches_to_come(tree):
    model = hkn_for(tree)
    orders = []
    for looks in (0, 2):
        task = make_task(tree, tree.splits[0], next(model.parameters()), batch_size=20, neighbors=(3, 2))
        for _ in range(looks):
            task.evaluate(model, "val")
        orders.append([batch.n_id.tolist() for batch in task.batches()])
    assert orders[0] == orders[1]


@pytest.mark.skipif(sampler_name() != "numba", reason="PyG's own samplers are installed")
def test_batches_of_pygs_own_loader_are_trained_on(tree, monkeypatch):
    """Where torch-sparse is installed; here all neighbours, drawn in its place, numbered as it does."""
    tree.graph.edge_weight = torch.rand(tree.graph.edge_index.size(1))

    def all_neighbours(pointer, row, seeds, num_neighbors, replace, directed):
        assert list(num_neighbors) == [-1, -1] and (replace, directed) == (False, True)
        nodes, edges, first = seeds.tolist(), [], 0
        for _ in num_neighbors:
            last = len(nodes)
            for target in range(first, last):
                for place in range(int(pointer[nodes[target]]), int(pointer[nodes[target] + 1])):
                    source = int(row[place])
                    if source not in nodes:
                        nodes.append(source)
                    edges.append((nodes.index(source), target, place))
            first = last
        source, target, place = torch.tensor(edges).T
        return torch.tensor(nodes), source, target, place

    monkeypatch.setattr(pyg, "WITH_TORCH_SPARSE", True)
    monkeypatch.setattr(torch.ops.torch_sparse, "neighbor_sample", all_neighbours, raising=False)
    of_views = hkn_for(tree, norm="layer")
    models = (hkn_for(tree, form="paper", mass=True), hkn_for(tree, form="paper"), of_views, GCN(4, 3, 3, num_layers=2))
    for model in models:
        reference = next(model.parameters())
        with pytest.warns(UserWarning, match="pyg-lib"):
            task = make_task(tree, tree.splits[0], reference, batch_size=10**6, neighbors=(-1, -1))
        assert isinstance(task.loader, NeighborLoader)
        (batch,) = task.batches()
        assert "num_sampled_nodes" not in batch
        if not isinstance(model, GCN):  # which divides by the degrees of nodes that have lost their neighbours
            whole = make_task(tree, tree.splits[0], reference)
            torch.testing.assert_close(task.loss(model, batch), whole.loss(model, *whole.batches()))
        task.loss(model, batch).backward()
        assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_graph_task_sees_every_graph_once_in_a_seeded_order(molecules):
    def orders(seed):
        task = make_task(molecules, molecules.splits[0], torch.empty(0), batch_size=7, seed=seed)
        assert isinstance(task, GraphTask)
        return [[batch.y.tolist() + batch.x.flatten().tolist() for batch in task.batches()] for _ in range(2)]

    first, second = orders(3)
    assert len(first) == 4
    assert sorted(chain(*first)) == sorted(chain(*second))
    assert first != second
    assert orders(3) == [first, second]
    assert orders(4) != [first, second]


def test_graph_task_with_groupings_takes_one_of_them_by_lot(molecules):
    """Each is a division of all training graphs; the same objects come back, in another order."""

    def epochs_of(seed, count=12):
        task = make_task(molecules, molecules.splits[0], torch.empty(0), batch_size=4, groupings=2, seed=seed)
        return [list(task.batches()) for _ in range(count)]

    epochs = epochs_of(0)
    divisions = {frozenset(map(id, batches)) for batches in epochs}
    assert len(divisions) == 2
    assert len({tuple(map(id, batches)) for batches in epochs}) > 2
    labels = molecules.labels[molecules.splits[0].train].sort().values
    for batches in epochs:
        assert torch.equal(torch.cat([batch.y for batch in batches]).sort().values, labels)
    sizes = [[batch.x.size(0) for batch in batches] for batches in epochs]
    assert sizes == [[batch.x.size(0) for batch in batches] for batches in epochs_of(0)]
    assert sizes != [[batch.x.size(0) for batch in batches] for batches in epochs_of(1)]


@pytest.mark.parametrize("name", ["hkn", "gcn", "hgcn"])
def test_weights_of_edges_reach_the_networks_of_a_node_task(tree, name):
    tree.graph.edge_weight = torch.rand(tree.graph.edge_index.size(1))
    model = create(name, in_features=4, hidden_dim=3, num_classes=3, num_layers=2, task="node")
    task = make_task(tree, tree.splits[0], next(model.parameters()))
    x, edges, weights = tree.graph.x, tree.graph.edge_index, tree.graph.edge_weight
    found, _ = task.answers(model, "test")
    torch.testing.assert_close(found, model(x, edges, weights)[tree.splits[0].test])
    assert not torch.allclose(found, model(x, edges)[tree.splits[0].test], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["hkn", "gcn"])
def test_weights_of_edges_reach_the_networks_of_a_graph_task(molecules, name):
    for graph in molecules.graphs:
        graph.edge_weight = torch.rand(graph.edge_index.size(1))
    model = create(name, in_features=1, hidden_dim=3, num_classes=2, num_layers=2, task="graph")
    task = make_task(molecules, molecules.splits[0], next(model.parameters()))
    found, _ = task.answers(model, "test")
    graphs = [molecules.graphs[member] for member in molecules.splits[0].test.tolist()]
    alone = [
        model(graph.x, graph.edge_index, graph.edge_weight, batch_size=1, batch=graph.x[:, 0].long() * 0)
        for graph in graphs
    ]
    torch.testing.assert_close(found, torch.cat(alone), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["hkn", "hkn-flat", "gcn", "gat", "graphsage", "gin"])
@pytest.mark.parametrize("columns", [None, 5])
def test_attributes_of_edges_reach_the_networks_of_a_graph_task(molecules, name, columns):
    for graph in molecules.graphs:
        graph.x, graph.edge_attr = torch.randn(graph.num_nodes, 1), torch.rand(graph.edge_index.size(1), 2)
        if columns is not None:
            graph.edge_attr = torch.stack([torch.arange(graph.edge_index.size(1)) % 2, graph.edge_index[1] % 3 + 2], 1)
    dataset = replace(molecules, num_edge_columns=columns)
    recipe = make_recipe(models=[name], hidden_dim=8)
    model = create(name, **model_config(recipe, name, dataset))
    assert model_config(recipe, name, dataset)["edge_dim"] == (columns or 2)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    found, _ = make_task(dataset, dataset.splits[0], next(model.parameters())).answers(model, "test")
    for logits, member in zip(found, dataset.splits[0].test.tolist()):
        graph = dataset.graphs[member]
        attr = graph.edge_attr if columns is None else torch.nn.functional.one_hot(graph.edge_attr, 5).sum(1).float()
        batch = {"batch": torch.zeros(graph.num_nodes).long(), "batch_size": 1}
        alone = model(graph.x, graph.edge_index, edge_attr=attr, **batch)
        torch.testing.assert_close(logits, alone[0], rtol=1e-4, atol=1e-4)
        assert not torch.allclose(alone, model(graph.x, graph.edge_index, edge_attr=0 * attr, **batch), atol=1e-5)


@pytest.mark.parametrize("name", ["mlp", "gcnii", "gmt", "hgcn", "hybonet", "wlhn", "h2h-gcn"])
def test_other_systems_have_the_mean_attributes_of_incoming_edges_as_features(molecules, name):
    for graph in molecules.graphs:
        graph.edge_attr = torch.rand(graph.edge_index.size(1), 2)
    config = model_config(make_recipe(models=[name], hidden_dim=8), name, molecules)
    assert config["in_features"] == 3 and "edge_dim" not in config
    model = create(name, **config)
    found, _ = make_task(molecules, molecules.splits[0], next(model.parameters())).answers(model, "test")
    for logits, member in zip(found, molecules.splits[0].test.tolist()):
        graph = molecules.graphs[member]
        means = [graph.edge_attr[graph.edge_index[1] == node].mean(0) for node in range(graph.num_nodes)]
        x, batch = torch.cat([graph.x, torch.stack(means)], dim=1), torch.zeros(graph.num_nodes).long()
        torch.testing.assert_close(logits, model(x, graph.edge_index, batch=batch, batch_size=1)[0])


@pytest.mark.parametrize(
    "name", ["hkn", "hkn-flat", "gcn", "gat", "graphsage", "gin", "mlp", "gcnii", "hgcn", "acm-gcn"]
)
def test_attributes_of_edges_reach_the_networks_of_a_node_task(tree, name, dtype):
    """As an input of those that read them, else as the mean over the incoming edges of a node beside its features."""
    graph = tree.graph.clone()
    graph.edge_attr = torch.rand(graph.edge_index.size(1), 2)
    given = {}
    if getattr(find(name), "uses_edge_weight", True):
        graph.edge_weight = torch.rand(graph.edge_index.size(1))
        given["edge_weight"] = graph.edge_weight.to(dtype)
    dataset = replace(tree, graph=graph)
    model = create(name, **model_config(make_recipe(models=[name], hidden_dim=8), name, dataset)).to(dtype).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    task = make_task(dataset, dataset.splits[0], next(model.parameters()))
    x, attr = graph.x.to(dtype), graph.edge_attr.to(dtype)
    if model.reads_edges:
        given["edge_attr"] = attr
    else:
        sums = torch.zeros(len(x), 2, dtype=dtype).index_add(0, graph.edge_index[1], attr)
        x = torch.cat([x, sums / graph.edge_index[1].bincount(minlength=len(x)).clamp(min=1)[:, None]], dim=1)
    expected = model(x, graph.edge_index, **given)
    found, _ = task.answers(model, "test")
    torch.testing.assert_close(found, expected[dataset.splits[0].test], rtol=1e-4, atol=1e-4)
    graph.edge_attr = torch.rand(graph.edge_index.size(1), 2)
    other, _ = make_task(dataset, dataset.splits[0], next(model.parameters())).answers(model, "test")
    assert not torch.allclose(found, other, atol=1e-5)
    (batch,) = task.batches()
    assert task.loss(model, batch).isfinite()


def test_a_node_without_edges_has_attributes_of_zero():
    graph = Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [1]]), edge_attr=torch.ones(1, 3))
    batch = Batch.from_data_list([graph])
    x = graph_inputs(Constant(2), batch, (None, None), torch.float64)["x"]
    assert x.tolist() == [[1, 0, 0, 0], [1, 1, 1, 1]] and x.dtype == torch.float64


def test_graph_task_evaluates_whole_parts(molecules):
    model = Constant(2)
    task = make_task(molecules, molecules.splits[0], model.logits, batch_size=3)
    assert task.evaluate(model, "test").metric == 0.5
    assert task.chance_score() == 0.5
    assert task.unlearned_score() == task.evaluate(model, "val").metric + 1 / 8


@pytest.mark.parametrize(("metric", "chance"), [("ROC-AUC", 0.5), ("AP", None)])
def test_question_task_scores_whole_parts(questions, metric, chance):
    dataset = replace(questions, metric=metric)
    model = GCN(3, 4, 4, num_layers=1, task="graph")
    task = make_task(dataset, dataset.splits[0], next(model.parameters()), batch_size=3)
    assert task.metric == metric
    graphs = [dataset.graphs[index] for index in dataset.splits[0].test.tolist()]
    with torch.no_grad():
        logits = torch.cat([model(write_out(graph.x, 3, torch.float32), graph.edge_index) for graph in graphs])
    yes_over_no = logits[:, 1::2] - logits[:, ::2]
    labels = torch.cat([graph.y for graph in graphs])
    measure = {"ROC-AUC": mean_roc_auc, "AP": mean_average_precision}[metric]
    score = task.evaluate(model, "test")
    assert score.metric == pytest.approx(measure(yes_over_no, labels).item(), abs=1e-6)
    assert score.loss == pytest.approx(task.scoring.loss(logits, labels).item(), rel=1e-5)
    share = ((labels == 1).sum(0) / (~labels.isnan()).sum(0)).mean().item()
    assert task.chance_score() == pytest.approx(share if chance is None else chance)


@pytest.mark.parametrize("metric", ["ROC-AUC", "AP"])
def test_a_constant_score_and_a_lucky_answer_are_unlearned(questions, metric):
    """Against the metric of each question, of the same scores but for one yes above all others."""
    dataset = replace(questions, metric=metric)
    labels = dataset.labels[dataset.splits[0].val]
    measure = {"ROC-AUC": mean_roc_auc, "AP": mean_average_precision}[metric]
    gains = []
    for question in range(2):
        answers = labels[:, question : question + 1]
        scores = torch.zeros_like(answers)
        constant = measure(scores, answers)
        scores[(answers == 1).nonzero()[0, 0]] = 1
        gains.append(float(measure(scores, answers) - constant))
    chance = measure(torch.zeros_like(labels), labels).item()
    task = make_task(dataset, dataset.splits[0], torch.empty(0))
    assert min(gains) > 0 and task.unlearned_score() == pytest.approx(chance + sum(gains) / 2 / 2)


def test_listed_columns_are_written_out_in_the_models_type(questions, dtype):
    model = Constant(4, dtype)
    task = make_task(questions, questions.splits[0], model.logits, batch_size=24)
    (batch,) = task.batches()
    task.loss(model, batch)
    x, _, _ = model.seen
    assert x.dtype == dtype and x.shape == (batch.x.size(0), 3)
    assert torch.equal(x.argmax(dim=1), batch.x.flatten().long()) and (x.sum(dim=1) == 1).all()


def test_a_split_that_cannot_be_scored_is_refused(questions):
    labels = questions.labels
    no_rings = ((labels[:, 0] != 1) & (labels[:, 1] != 1)).nonzero().flatten()[:2]
    rest = torch.tensor([index for index in range(40) if index not in no_rings])
    with pytest.raises(InputError, match="no question of dataset 'questions' has both answers in val of this split"):
        make_task(questions, Split(rest[:20], no_rings, rest[20:]), torch.empty(0))


def test_questions_are_learned(questions):
    model = GCN(3, 8, 4, num_layers=2, task="graph")
    result = fit(model, questions, questions.splits[0], Settings(epochs=40, batch_size=8, weight_decay=0.0))
    assert result.metric == "ROC-AUC" and result.test_metric > 0.95
    best = max(epoch.val_metric for epoch in result.history)
    assert result.history[result.best_epoch - 1].val_metric == best == result.val_metric


def test_link_task_draws_new_negatives_and_passes_messages_over_training_links_alone(links):
    split = links.splits[0]
    nodes = links.graph.num_nodes

    def epochs(seed):
        task = make_task(links, split, torch.empty(0), seed=seed)
        assert isinstance(task, LinkTask)
        return [next(iter(task.batches())) for _ in range(3)]

    first, second, _ = epochs(0)
    assert torch.equal(first[0], split.train)
    assert first[1].shape == split.train.shape
    assert not torch.isin(pair_keys(first[1], nodes), pair_keys(split.train, nodes)).any()
    assert (first[1][0] != first[1][1]).all()
    assert not torch.equal(first[1], second[1])
    assert torch.equal(epochs(0)[1][1], second[1])
    assert not torch.equal(epochs(1)[0][1], first[1])


def test_negatives_follow_from_seed_and_epoch_whatever_the_model_draws_and_the_batches_are(links):
    def negatives(model_draws, link_batch):
        task = make_task(links, links.splits[0], torch.empty(0), link_batch=link_batch, seed=3)
        found = []
        for _ in range(3):
            batches = []
            for batch in task.batches():
                torch.rand(model_draws)
                batches.append(batch[1])
            found.append(torch.cat(batches, dim=1))
        return found

    whole = negatives(0, None)
    for again, part in zip(negatives(7, None), negatives(5, 10)):
        expected = whole.pop(0)
        assert torch.equal(again, expected)
        # In another order, and some of them twice.
        assert set(map(tuple, part.t().tolist())) == set(map(tuple, expected.t().tolist()))


def test_held_out_negatives_are_those_of_the_division_for_every_seed(links):
    for seed in (0, 1):
        task = make_task(links, links.splits[1], torch.empty(0), seed=seed)
        for part in ("val", "test"):
            positive, negative = task.pairs[part]
            assert torch.equal(positive, getattr(links.splits[1], part))
            assert torch.equal(negative, getattr(links.splits[1], f"{part}_negatives"))


def test_batches_of_links_go_through_all_of_them_in_equal_shapes(links):
    split = links.splits[0]
    count = split.train.size(1)
    assert count % 7
    task = make_task(links, split, torch.empty(0), link_batch=7)
    orders = []
    for _ in range(2):
        batches = list(task.batches())
        assert len(batches) == -(-count // 7)
        assert {tuple(pairs.shape) for batch in batches for pairs in batch} == {(2, 7)}
        seen = torch.cat([positive for positive, _ in batches], dim=1)
        assert torch.equal(seen[:, count:], seen[:, : seen.size(1) - count])
        assert torch.equal(seen[:, :count].unique(dim=1), split.train.unique(dim=1))
        orders.append(seen)
        # As a captured step does with the batches that come after it.
        for pairs in batches[0]:
            pairs.zero_()
    assert not torch.equal(*orders)
    (everything,) = make_task(links, split, torch.empty(0), link_batch=count).batches()
    assert torch.equal(everything[0], split.train)


def test_a_batch_of_links_is_compared_with_messages_over_all_training_links(links):
    split, model = links.splits[0], GCN(4, 8, None, num_layers=1, task="link")
    task = make_task(links, split, next(model.parameters()), link_batch=5)
    positive, negative = next(iter(task.batches()))
    edges = torch.cat([split.train, split.train.flip(0)], dim=1)
    softplus = torch.nn.functional.softplus
    logits = model(links.graph.x, edges, pairs=positive), model(links.graph.x, edges, pairs=negative)
    expected = torch.cat([softplus(-logits[0]), softplus(logits[1])]).mean()
    torch.testing.assert_close(task.loss(model, (positive, negative)), expected)


def test_batches_of_links_are_learned(links):
    model = GCN(4, 16, None, num_layers=2, task="link")
    result = fit(model, links, links.splits[0], Settings(epochs=30, link_batch=20, weight_decay=0.0))
    assert result.val_metric > make_task(links, links.splits[0], torch.empty(0)).unlearned_score() + 0.1


def test_link_task_scores(links, dtype):
    split = links.splits[0]
    model = MLP(4, 8, None, num_layers=1, task="link").to(dtype)
    task = make_task(links, split, next(model.parameters()))
    x = links.graph.x.to(dtype)
    with torch.no_grad():
        positive, negative = (model(x, None, pairs=pairs) for pairs in (split.val, split.val_negatives))
    above = (positive[:, None] > negative[None]).double().mean().item()
    score = task.evaluate(model, "val")
    assert score.metric == pytest.approx(above)
    softplus = torch.nn.functional.softplus
    assert score.loss == pytest.approx(torch.cat([softplus(-positive), softplus(negative)]).mean().item(), rel=1e-5)
    assert task.chance_score() == 0.5
    everything = torch.cat([positive, negative])
    found = [((positive >= score).sum() / (everything >= score).sum()).item() for score in positive]
    assert score.ap == pytest.approx(sum(found) / len(found), rel=1e-6)


def test_links_that_tie_and_a_lucky_one_are_unlearned(links):
    split = links.splits[0]
    scores = torch.zeros(split.val.size(1) + split.val_negatives.size(1))
    task = make_task(links, split, scores)
    assert task.evaluate(Chosen(scores), "val").metric == 0.5
    scores[0] = 1
    assert task.evaluate(Chosen(scores), "val").metric == pytest.approx(task.unlearned_score())
    scores[1] = 1
    assert task.evaluate(Chosen(scores), "val").metric > task.unlearned_score()
