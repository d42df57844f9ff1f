from itertools import chain

import pytest
import torch

from hkconv.data.pairs import pair_keys
from hkconv.models import MLP
from hkconv.training.tasks import GraphTask, LinkTask, NodeTask, make_task


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


def test_graph_task_evaluates_whole_parts(molecules):
    model = Constant(2)
    task = make_task(molecules, molecules.splits[0], model.logits, batch_size=3)
    assert task.evaluate(model, "test").metric == 0.5
    assert task.chance_score() == 0.5


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
