"""What the plain form does beside its equations, which tests/nn/test_hk_attention.py holds against a literal one."""

import pytest
import torch

from hkconv.geometry.lorentz import lift
from hkconv.nn import HKAttention
from hkconv.ops import reference


@pytest.mark.parametrize("aggregation", ["kernel", "centroid"])
def test_queries_in_pieces_give_the_same_and_keep_nothing_of_all_pairs(aggregation, monkeypatch):
    """Where no fused backend covers the input, as inside torch.func, ``"auto"`` takes pieces."""
    from hkconv.nn import hk_attention

    layer = HKAttention(6, 2, kernel_size=3, aggregation=aggregation).double()
    x = lift(torch.randn(2, 7, 6, dtype=torch.float64))
    padding = torch.rand(2, 7) < 0.3
    layer.backend = "reference"
    expected = layer(x, key_padding_mask=padding, causal=True)
    gradients = torch.autograd.grad(expected.square().sum(), list(layer.parameters()))

    layer.backend = "auto"
    monkeypatch.setattr(hk_attention, "choose_backend", lambda *_: "reference")
    monkeypatch.setattr(reference, "NUMBERS_AT_ONCE", 300)
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()) or t, lambda t: t):
        out = layer(x, key_padding_mask=padding, causal=True)
    assert max(saved) < 2 * 2 * 7 * 7 * 4  # H x B x T x T x (n+1), without the K kernel points
    torch.testing.assert_close(out, expected)
    for found, wanted in zip(torch.autograd.grad(out.square().sum(), list(layer.parameters())), gradients):
        torch.testing.assert_close(found, wanted)


def test_functional_gradient_equals_autograd():
    layer = HKAttention(4, 2, kernel_size=2).double()
    x = lift(torch.randn(1, 3, 4, dtype=torch.float64))
    parameters = {name: value.detach() for name, value in layer.named_parameters()}

    def loss(parameters):
        return torch.func.functional_call(layer, parameters, (x,)).square().sum()

    layer(x).square().sum().backward()
    for name, gradient in torch.func.grad(loss)(parameters).items():
        torch.testing.assert_close(gradient, layer.get_parameter(name).grad, rtol=1e-9, atol=1e-11)
