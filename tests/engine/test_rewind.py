import pytest
import torch

from hkconv.engine.optimizer import RiemannianAdam
from hkconv.engine.rewind import Rewind
from hkconv.engine.step import train_step
from hkconv.models import create
from hkconv.tasks.tasks import make_task


def make_training(dataset, name="hkn", **options):
    sizes = {"in_features": 1, "hidden_dim": 4, "num_classes": 2, "num_layers": 2}
    model = create(name, **sizes, task="graph", dropout=0.3, **options)
    model.register_buffer("seen", torch.zeros((), dtype=torch.long))
    task = make_task(dataset, dataset.splits[0], next(model.parameters()), batch_size=5)
    return model, task, RiemannianAdam(model.parameters(), lr=0.02)


def epoch(model, task, optimizer):
    """The losses of one epoch, which count in a buffer too."""
    model.train()
    model.seen += 1
    return [train_step(model, task, optimizer, batch).item() for batch in task.batches()]


def test_samples_of_neighbours_come_again(tree):
    model = create("mlp", in_features=4, hidden_dim=4, num_classes=3, num_layers=2)
    task = make_task(tree, tree.splits[0], next(model.parameters()), batch_size=20, neighbors=(3, 2))
    rewind = Rewind(model, RiemannianAdam(model.parameters(), lr=0.02), task.generator)

    def epoch():
        return [batch.n_id.tolist() for batch in task.batches()]

    epoch()
    rewind.save()
    first, other = epoch(), epoch()
    rewind.restore()
    assert epoch() == first != other


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("form", ["views", "paper"])
def test_the_same_epoch_comes_again(molecules, form, before):
    """With its weights, dropout and batches, and Adam's memory: from nothing, or from what it had."""
    model, task, optimizer = make_training(molecules, form=form)
    rewind = Rewind(model, optimizer, task.generator)
    for _ in range(before):
        rewind.save()
        epoch(model, task, optimizer)
    rewind.save()
    first = epoch(model, task, optimizer)
    other = epoch(model, task, optimizer)
    rewind.restore()
    assert model.seen == before
    again = epoch(model, task, optimizer)
    assert again == first != other


def test_parameters_stay_where_they_are(molecules):
    model, task, optimizer = make_training(molecules, "mlp")
    rewind = Rewind(model, optimizer)
    rewind.save()
    places = [parameter.data_ptr() for parameter in model.parameters()]
    weights = [parameter.detach().clone() for parameter in model.parameters()]
    epoch(model, task, optimizer)
    rewind.restore()
    assert [parameter.data_ptr() for parameter in model.parameters()] == places
    for parameter, weight in zip(model.parameters(), weights):
        assert torch.equal(parameter, weight)
