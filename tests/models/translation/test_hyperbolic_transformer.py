import pytest
import torch
from translation_cases import SIZES, VOCABULARY, close, reverse_task, sentences, shifted, train_to_reverse, written

from hkconv.geometry import lorentz
from hkconv.models.translation import create_translator
from hkconv.models.translation.tokens import PAD
from hkconv.testing import assert_on_manifold

of_both = pytest.mark.parametrize("name", ["hkn", "hybonet"])


@torch.no_grad()
def test_a_state_is_the_normalised_centroid_of_token_and_position(dtype, small, generator):
    embedding = small("hybonet", dtype).embedding
    ids = sentences(generator)
    found = embedding(ids, 2)
    assert_on_manifold(found)
    scale, shift = embedding.norm.norm.weight, embedding.norm.norm.bias
    for row in range(ids.size(0)):
        for t in range(ids.size(1)):
            both = embedding.tokens[ids[row, t]] + embedding.positions[2 + t]
            space = (both / (both[0] ** 2 - both[1:] @ both[1:]).sqrt())[1:]
            standard = (space - space.mean()) / (space.var(correction=0) + 1e-5).sqrt()
            torch.testing.assert_close(found[row, t, 1:], scale * standard + shift, **close(dtype))


@torch.no_grad()
def test_logits_are_negative_squared_lorentzian_distances_to_tokens(dtype, small, generator):
    embedding = small("hybonet", dtype).embedding
    states = lorentz.lift(torch.randn(2, 3, SIZES["dim"], generator=generator).to(dtype))
    gap = states.unsqueeze(2) - embedding.tokens
    square = gap[..., 1:].square().sum(-1) - gap[..., 0].square()
    found = embedding.logits(states)
    torch.testing.assert_close(found, -square / embedding.log_temperature.exp(), **close(dtype))
    geodesic = lorentz.dist(states.unsqueeze(2), embedding.tokens)
    assert torch.equal(found.argsort(-1, descending=True), geodesic.argsort(-1))


@torch.no_grad()
def test_logits_of_planes_compare_distances_with_those_of_mirrored_tokens(dtype, small, generator):
    embedding = small("hkn", dtype, output="planes").embedding
    states = lorentz.lift(torch.randn(2, 3, SIZES["dim"], generator=generator).to(dtype))
    mirrored = torch.cat([embedding.tokens[:, :1], -embedding.tokens[:, 1:]], dim=-1)
    gaps = [states.unsqueeze(2) - points for points in (mirrored, embedding.tokens)]
    far, near = (gap[..., 1:].square().sum(-1) - gap[..., 0].square() for gap in gaps)
    found = embedding.logits(states)
    torch.testing.assert_close(found, (far - near) / (2 * embedding.log_temperature.exp()), **close(dtype))
    # The reflection that fixes the hyperplane moves a point by twice its distance from there.
    space = embedding.tokens[:, 1:]
    unit = space / space.norm(dim=-1, keepdim=True)
    depth = states[..., 1:] @ unit.T
    reflected = lorentz.lift(states[..., 1:].unsqueeze(2) - 2 * depth.unsqueeze(-1) * unit)
    distance = depth.sign() * lorentz.dist(states.unsqueeze(2), reflected) / 2
    origin = lorentz.origin(SIZES["dim"], dtype=dtype)
    expected = 2 * lorentz.dist(embedding.tokens, origin).sinh() * distance.sinh() / embedding.log_temperature.exp()
    torch.testing.assert_close(found, expected, **close(dtype))


@pytest.mark.parametrize("output", ["distance", "planes"])
def test_fresh_logits_are_neither_flat_nor_sharp(output, generator):
    model = create_translator("hybonet", **{**SIZES, "vocabulary": 1000, "dim": 64}, output=output).eval()
    ids = torch.randint(4, 1000, (4, 10), generator=generator)
    assert 0.5 < model(ids, ids).std(-1).mean() < 2


@of_both
def test_all_states_are_points_before_and_after_training(name, generator):
    model = create_translator(name, **{**SIZES, "dropout": 0.2})
    source, target = sentences(generator), shifted(sentences(generator))
    for _ in range(2):
        for states in model.encoder_layers(source):
            assert_on_manifold(states)
        memory = model.encode(source)
        assert_on_manifold(model.run_decoder(model.embedding(target, 0), memory, [None] * len(model.decoder)))
        assert_on_manifold(model.embedding.tokens)
        assert_on_manifold(model.embedding.positions)
        train_to_reverse(model, generator, steps=3, lr=0.1, lengths=(2, 3))


def test_double_precision_is_on_the_manifold_to_its_last_digit(generator):
    embedding = create_translator("hybonet", **SIZES).double().embedding
    for points in (embedding.tokens, embedding.positions):
        assert_on_manifold(points.detach(), tolerance=1e-14)


def test_hkn_differs_from_hybonet_in_the_maps_of_its_kernel_points_alone():
    names = [{n for n, _ in create_translator(name, **SIZES).named_parameters()} for name in ("hkn", "hybonet")]
    assert names[1] < names[0]
    assert all(".attention.linear." in name for name in names[0] - names[1])


@torch.no_grad()
def test_self_attentions_in_views_have_gates_and_no_other_part_changes(small, generator):
    views, paper = (small("hkn", torch.float64, form=form) for form in ("views", "paper"))
    more = {name for name, _ in views.named_parameters()} - {name for name, _ in paper.named_parameters()}
    assert more == {
        f"{side}.{layer}.attention.{gate}"
        for side in ("encoder", "decoder")
        for layer in range(SIZES["num_layers"])
        for gate in ("gate_weight", "gate_mix")
    }
    views.load_state_dict({**views.state_dict(), **paper.state_dict()})
    source, target = sentences(generator), shifted(sentences(generator))
    assert not torch.allclose(views(source, target), paper(source, target))
    for name in more:
        # Gates that are open for the differences alone.
        gate = views.get_parameter(name).zero_()
        if name.endswith("mix"):
            gate[:, 0] = 1e3
    torch.testing.assert_close(views(source, target), paper(source, target), **close(torch.float64))


@torch.no_grad()
def test_order_of_source_words_matters_by_their_positions_alone(small, generator):
    model = small("hkn", torch.float64)
    positions = model.embedding.positions
    positions.copy_(positions[:1].expand_as(positions))
    source, target = sentences(generator, (5,)), shifted(sentences(generator, (3,)))
    order = torch.randperm(source.size(1), generator=generator)
    torch.testing.assert_close(model(source[:, order], target), model(source, target), **close(torch.float64))


def test_writes_backwards_without_a_mistake(generator):
    model = create_translator(
        "hkn", VOCABULARY, dim=16, num_heads=2, feedforward_dim=32, num_layers=1, dropout=0.0, max_length=8
    )
    train_to_reverse(model, generator, steps=250, lr=0.015, lengths=(2, 4))
    source, target = reverse_task(generator, 500, (2, 4))
    found = written(model.eval(), source, target.size(1))
    right = ((found == target) | (target == PAD)).all(1)
    assert right.float().mean() >= 0.99
