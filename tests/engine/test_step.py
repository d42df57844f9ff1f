import torch

from hkconv.engine.step import train_step
from hkconv.models import MLP
from hkconv.tasks.tasks import make_task


def test_a_step_gives_the_loss_before_it_and_goes_down(tree):
    model = MLP(4, 8, 3, num_layers=2)
    task = make_task(tree, tree.splits[0], next(model.parameters()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    (batch,) = task.batches()
    before = task.loss(model, batch)
    loss = train_step(model, task, optimizer, batch)
    assert torch.equal(loss, before)
    assert not loss.requires_grad
    assert task.loss(model, batch) < before
