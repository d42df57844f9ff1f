from pathlib import Path

import pytest
import torch

from hkconv.engine.optimizer import RiemannianAdam
from hkconv.engine.seeds import seed_everything
from hkconv.engine.training_state import (
    generator_tensors,
    optimizer_tensors,
    restore_generators,
    restore_optimizer,
)
from hkconv.models import create

EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])


def make(form):
    """HKN has points of a manifold among its parameters, of which Adam remembers less."""
    seed_everything(0)
    config = {"in_features": 3, "hidden_dim": 4, "num_classes": 2, "num_layers": 2, "kernel_size": 2, "dropout": 0.5}
    model = create("hkn", form=form, **config)
    return model, RiemannianAdam(model.parameters(), lr=0.1)


def take_steps(model, optimizer, own, count):
    losses = []
    for _ in range(count):
        x = torch.randn(4, 3, generator=own)
        loss = torch.nn.functional.cross_entropy(model.train()(x, EDGES), torch.tensor([0, 1, 0, 1]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("form", ["views", "paper"])
def test_steps_after_a_restore_are_those_that_would_have_followed(form):
    (model, optimizer), own = make(form), torch.Generator().manual_seed(5)
    take_steps(model, optimizer, own, 3)
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    memory = {name: tensor.clone() for name, tensor in optimizer_tensors(optimizer).items()}
    draws = generator_tensors(torch.device("cpu"), own)
    expected = take_steps(model, optimizer, own, 3)

    (again, other), drawn = make(form), torch.Generator()
    again.load_state_dict(weights)
    restore_optimizer(other, memory, Path("file"))
    restore_generators(draws, torch.device("cpu"), Path("file"), drawn)
    assert take_steps(again, other, drawn, 3) == expected
    for name, tensor in again.state_dict().items():
        torch.testing.assert_close(tensor, model.state_dict()[name], rtol=0, atol=0)
