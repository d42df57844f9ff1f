import math

import pytest
import torch

from hkconv.geometry.lorentz import dist
from hkconv.language.batches import Buckets
from hkconv.language.loss import summed_loss
from hkconv.language.step import Step
from hkconv.models.translation import create_translator


@pytest.mark.parametrize("name", ["hkn", "transformer"])
def test_a_point_moves_as_far_as_a_vector_of_its_dimension(corpus, name):
    """Adam's first step has the length of the learning rate in every coordinate, whatever the gradient."""
    dim, lr = 8, 1e-3
    torch.manual_seed(0)
    model = create_translator(name, 200, dim, 2, 16, 1, max_length=64)
    step = Step(
        model, lambda batch: summed_loss(model(batch.source, batch.target[:, :-1]), batch.target[:, 1:], 0.1), clip=1.0
    )
    buckets = Buckets(corpus, 128)
    before = {key: value.detach().clone() for key, value in model.named_parameters()}
    step([buckets.load(buckets.shuffled(0, 0)[0])], lr)
    after = dict(model.named_parameters())
    tokens = after["embedding.tokens"]
    has_gradient = tokens.grad.norm(dim=-1) > 1e-5
    if name == "hkn":
        moved = dist(before["embedding.tokens"], tokens.detach())
    else:
        moved = (before["embedding.tokens"] - tokens.detach()).norm(dim=-1)
    assert has_gradient.any()
    torch.testing.assert_close(
        moved[has_gradient], torch.full_like(moved[has_gradient], lr * math.sqrt(dim)), rtol=0.02, atol=0
    )
    flat = next(key for key in before if key.startswith("encoder.0") and key.endswith("weight"))
    largest = (after[flat] - before[flat]).abs().max().item()
    assert largest == pytest.approx(lr, rel=0.02)
