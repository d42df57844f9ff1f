import pytest
import torch

from hkconv.geometry import lorentz
from hkconv.nn import DecoderCache, HTransformerDecoderLayer, HTransformerEncoderLayer
from hkconv.nn.transformer import HFeedForward, HResidual
from hkconv.ops.linear import hyperbolic_linear
from hkconv.testing import assert_on_manifold

DIM = 6
PADDING = torch.tensor([[False] * 5, [False, False, False, True, True]])


of_each = pytest.mark.parametrize("options", [{}, {"aggregation": "centroid"}, {"form": "views"}], ids=str)


def points(*shape, dtype=torch.float64, curvature=-1.0):
    return lorentz.lift(torch.randn(*shape, DIM, dtype=torch.float64), curvature).to(dtype)


def make(kind, **options):
    layer = kind(DIM, 2, 10, kernel_size=3, **options).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            if parameter.dim():
                parameter.add_(0.2 * torch.randn_like(parameter))
    return layer.eval()


def test_fresh_residual_is_the_normed_centroid_of_four_parts_input_and_one_part_output(curvature):
    x, part = points(2, 5, curvature=curvature), points(2, 5, curvature=curvature)
    layer = HResidual(DIM, curvature=curvature).double()
    weight = torch.tensor([4.0, 1.0], dtype=torch.float64)
    mean = lorentz.centroid(torch.stack([x, part], dim=-2), weight, curvature=curvature)
    space = torch.nn.functional.layer_norm(mean[..., 1:], [DIM]) * DIM**-0.5
    torch.testing.assert_close(layer(x, part), lorentz.lift(space, curvature), rtol=1e-6, atol=1e-6)


def test_feed_forward_is_two_maps_with_a_relu_between(curvature):
    layer, x = HFeedForward(DIM, 10, curvature=curvature).double(), points(2, 5, curvature=curvature)
    hidden = layer.first(x)
    assert hidden.shape == (2, 5, 11)
    # Without its activation the second map sees what the ReLU lets through, which is no point.
    expected = hyperbolic_linear(hidden.clamp(min=0), **layer.second.named_tensors(), curvature=curvature)
    torch.testing.assert_close(expected, layer(x), rtol=1e-12, atol=1e-12)


@of_each
def test_encoder_layer_composes_its_parts(options, curvature):
    layer, x = (
        make(HTransformerEncoderLayer, **options, curvature=curvature),
        points(2, 5, curvature=curvature),
    )
    attended = layer.after_attention(x, layer.attention(x, key_padding_mask=PADDING))
    expected = layer.after_feedforward(attended, layer.feedforward(attended))
    out = layer(x, PADDING)
    torch.testing.assert_close(out, expected)
    assert_on_manifold(out, curvature)


@of_each
def test_what_stands_at_padding_changes_nothing_elsewhere(options):
    encoder, decoder = (make(kind, **options) for kind in (HTransformerEncoderLayer, HTransformerDecoderLayer))
    x, other, target = points(2, 5), points(2, 5), points(2, 4)
    changed = torch.where(PADDING.unsqueeze(-1), other, x)
    torch.testing.assert_close(encoder(x, PADDING)[~PADDING], encoder(changed, PADDING)[~PADDING])
    torch.testing.assert_close(decoder(target, x, PADDING), decoder(target, changed, PADDING))
    assert not torch.allclose(decoder(target, x), decoder(target, changed))


@of_each
def test_decoder_layer_sees_no_later_target(options):
    layer, memory = make(HTransformerDecoderLayer, **options), points(2, 5)
    space = torch.randn(2, 4, DIM, dtype=torch.float64, requires_grad=True)
    for i in range(4):
        (gradient,) = torch.autograd.grad(layer(lorentz.lift(space), memory, PADDING)[:, i].square().sum(), space)
        assert (gradient[:, i + 1 :] == 0).all() and (gradient[:, : i + 1] != 0).any(-1).all()


@of_each
@torch.no_grad()
def test_decoding_step_by_step_with_chosen_hypotheses_equals_the_full_pass(options):
    layer = make(HTransformerDecoderLayer, **options)
    x, memory, index = points(2, 6), points(2, 5), torch.tensor([1, 1, 0])
    cache = DecoderCache.empty()
    first = [layer(x[:, i : i + 1], memory, PADDING, cache) for i in range(3)]
    cache.reorder(index)
    rest = [layer(x[index, i : i + 1], memory[index], PADDING[index], cache) for i in range(3, 6)]
    full = layer(x, memory, PADDING)
    torch.testing.assert_close(torch.cat(first, dim=1), full[:, :3])
    torch.testing.assert_close(torch.cat(rest, dim=1), full[index, 3:])


@pytest.mark.parametrize("form", ["paper", "views"])
@pytest.mark.parametrize("kind", [HTransformerEncoderLayer, HTransformerDecoderLayer])
def test_every_parameter_learns(kind, form):
    layer, x = make(kind, dropout=0.1, form=form).train(), points(2, 5)
    out = layer(x, PADDING) if kind is HTransformerEncoderLayer else layer(x, points(2, 5), PADDING)
    (out * torch.randn_like(out)).sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad.isfinite().all() and (parameter.grad != 0).any(), name


@torch.no_grad()
def test_a_deep_stack_neither_collapses_nor_runs_away():
    """A fresh stack keeps different positions apart, at about one unit of space."""
    x = lorentz.lift(torch.randn(2, 8, 64) / 8)
    for _ in range(12):
        x = HTransformerEncoderLayer(64, 4, 128)(x)
    length = x[..., 1:].norm(dim=-1)
    assert ((length > 0.8) & (length < 1.2)).all()
    apart = lorentz.dist(x.unsqueeze(1), x.unsqueeze(2))
    assert apart.sum() / (2 * 8 * 7) > 0.1


def test_reset_and_repr():
    layer = make(HTransformerDecoderLayer)
    layer.reset_parameters()
    assert (layer.feedforward.first.bias == 0).all() and (layer.cross_attention.out.bias == 0).all()
    assert (layer.after_attention.norm.norm.bias == 0).all()
    assert str(layer) == f"HTransformerDecoderLayer({layer.attention}, HFeedForward(6, 10))"
