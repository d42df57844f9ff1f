"""What every translation system must do; what each is, its own file tests."""

import copy
import math

import pytest
import torch
from translation_cases import (
    SIZES,
    VOCABULARY,
    close,
    decoded_stepwise,
    sentences,
    shifted,
    train_to_reverse,
)

from hkconv.errors import InputError
from hkconv.models.translation import TRANSLATION_MODELS, create_translator
from hkconv.models.translation.tokens import PAD

SYSTEMS = [*TRANSLATION_MODELS, "hkn form=views", "hybonet output=planes"]
of_each = pytest.mark.parametrize("name", SYSTEMS)


@of_each
def test_incremental_decoding_equals_teacher_forcing(name, dtype, small, generator):
    model = small(name, dtype)
    source, target = sentences(generator), shifted(sentences(generator, (6, 4, 2)))
    memory = model.encode(source)
    torch.testing.assert_close(decoded_stepwise(model, target, memory), model.decode(target, memory), **close(dtype))


@of_each
def test_several_positions_can_be_decoded_at_once(name, small, generator):
    model = small(name, torch.float64)
    memory, target = model.encode(sentences(generator)), shifted(sentences(generator, (6, 4, 2)))
    state = model.start(memory)
    pieces = [model.decode(piece, memory, state) for piece in target.split([1, 3, 3], dim=1)]
    assert state.length == 7
    torch.testing.assert_close(torch.cat(pieces, 1), model.decode(target, memory), **close(torch.float64))


@of_each
def test_no_position_sees_later_ones(name, small, generator):
    model = small(name, torch.float64)
    source, target = sentences(generator), shifted(sentences(generator, (6, 4, 2)))
    before = model(source, target)
    for position in range(1, target.size(1)):
        changed = target.clone()
        changed[:, position:] = torch.randint(4, VOCABULARY, changed[:, position:].shape, generator=generator)
        torch.testing.assert_close(model(source, changed)[:, :position], before[:, :position], **close(torch.float64))


@of_each
def test_every_position_sees_all_earlier_ones_and_the_source(name, small, generator):
    model = small(name, torch.float64)
    source, target = sentences(generator, (4,)), shifted(sentences(generator, (3,)))
    before = model(source, target)
    for position in range(target.size(1)):
        changed = target.clone()
        changed[:, position] = 4 + (target[:, position] - 3) % (VOCABULARY - 4)
        assert ((model(source, changed) - before).abs().amax(-1)[:, position:] > 1e-8).all()
    for position in range(source.size(1)):
        changed = source.clone()
        changed[:, position] = 4 + (source[:, position] - 3) % (VOCABULARY - 4)
        assert ((model(changed, target) - before).abs().amax(-1) > 1e-8).all()


@of_each
def test_padding_of_the_source_changes_nothing(name, dtype, small, generator):
    model = small(name, dtype)
    source, target = sentences(generator), shifted(sentences(generator))
    together = model(source, target)
    padded = torch.nn.functional.pad(source, (0, 4), value=PAD)
    torch.testing.assert_close(model(padded, target), together, **close(dtype))
    for row, length in enumerate((6, 4, 5)):
        alone = model(source[row : row + 1, :length], target[row : row + 1])
        torch.testing.assert_close(alone[0], together[row], **close(dtype))


@of_each
def test_reordered_hypotheses_go_on_as_if_they_had_always_been_so(name, small, generator):
    model = small(name, torch.float64)
    memory, target = model.encode(sentences(generator)), shifted(sentences(generator, (6, 4, 2)))
    state = model.start(memory)
    for token in target[:, :3].split(1, dim=1):
        model.decode(token, memory, state)
    index = torch.tensor([2, 0, 0, 1])
    state, picked = model.reorder(state, memory, index)
    after = model.decode(target[index, 3:4], picked, state)
    torch.testing.assert_close(after, model.decode(target, memory)[index, 3:4], **close(torch.float64))


@of_each
def test_layers_for_probing_begin_with_the_embedding_and_end_with_the_memory(name, small, generator):
    model, source = small(name), sentences(generator)
    layers = model.encoder_layers(source)
    width = SIZES["dim"] + (model.geometry == "lorentz")
    assert len(layers) == SIZES["num_layers"] + 1
    assert all(states.shape == (*source.shape, width) for states in layers)
    # The embedding knows a token and its position alone.
    changed = source.clone()
    changed[:, 1] = 4
    assert torch.equal(model.encoder_layers(changed)[0][:, 0], layers[0][:, 0])
    assert not torch.allclose(model.encoder_layers(changed)[-1][:, 0], layers[-1][:, 0])


@of_each
def test_gradients_reach_every_parameter(name, small, generator):
    model = small(name)
    source, target = sentences(generator), sentences(generator)
    loss = torch.nn.functional.cross_entropy(model(source, shifted(target)).transpose(1, 2), target)
    loss.backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all() and parameter.grad.any(), parameter_name


@of_each
def test_a_twin_with_the_same_parameters_writes_the_same(name, small, generator):
    model, twin = small(name), small(name)
    source, target = sentences(generator), shifted(sentences(generator))
    assert not torch.allclose(twin(source, target), model(source, target))
    twin.load_state_dict(model.state_dict())
    for copied in (twin, copy.deepcopy(model)):
        assert torch.equal(copied(source, target), model(source, target))


@of_each
def test_dropout_acts_in_training_alone(name, small, generator):
    model = small(name, dropout=0.3)
    source, target = sentences(generator), shifted(sentences(generator))
    assert torch.equal(model(source, target), model(source, target))
    model.train()
    assert not torch.allclose(model(source, target), model(source, target))


@of_each
def test_half_precision_changes_little(name, small, generator):
    model = small(name)
    source, target = sentences(generator), shifted(sentences(generator))
    with torch.autocast("cpu", torch.bfloat16):
        halved = model(source, target)
    halved.logsumexp(-1).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    exact = model(source, target)
    assert (halved - exact).square().mean() < 0.01 * exact.var()


# HKN's own file asks more of it.
@pytest.mark.parametrize("name", [name for name in SYSTEMS if name != "hkn"])
def test_learns_to_write_backwards(name, built, generator):
    sizes = {"dim": 16, "num_heads": 2, "feedforward_dim": 32, "num_layers": 1, "dropout": 0.0, "max_length": 8}
    model = built(name, vocabulary=VOCABULARY, **sizes)
    losses = train_to_reverse(model, generator, steps=200, lr=0.02, lengths=(2, 3))
    assert sum(losses[-10:]) / 10 < 0.6 * math.log(VOCABULARY)


@of_each
def test_refuses_sentences_that_are_too_long(name, small, generator):
    model = small(name)
    source, target = sentences(generator), shifted(sentences(generator))
    with pytest.raises(InputError, match="source must have at most max_length = 12 positions, got 13"):
        model.encode(source.repeat(1, 3)[:, :13])
    memory = model.encode(source)
    state = model.start(memory)
    model.decode(target.repeat(1, 2), memory, state)
    with pytest.raises(InputError, match="target must have at most max_length = 12 positions, got 13"):
        model.decode(target[:, :1], memory, state)
    with pytest.raises(InputError, match=r"source must be ids of shape \(sentences, positions\)"):
        model.encode(source[0])


@pytest.mark.parametrize("dim, num_heads, feedforward_dim", [(64, 4, 256), (128, 8, 512), (256, 8, 1024)])
def test_sizes_are_those_of_the_paper(dim, num_heads, feedforward_dim):
    sizes = create_translator("transformer", VOCABULARY, dim).sizes
    assert (sizes.num_heads, sizes.feedforward_dim, sizes.num_layers) == (num_heads, feedforward_dim, 6)


@pytest.mark.parametrize(
    "name, option, wrong, message",
    [
        ("hybonet", "output", "plane", "output must be 'distance' or 'planes', got 'plane'"),
        ("hkn", "form", "view", "form must be 'paper' or 'views', got 'view'"),
        ("convseq2seq", "kernel_size", 0, "kernel_size must be at least 1, got 0"),
        ("hnn++", "kernel_size", 0, "kernel_size must be at least 1, got 0"),
        ("dynamicconv", "kernel_sizes", (), "kernel_sizes must be numbers of at least 1"),
        ("dynamicconv", "kernel_sizes", (3, 0), "kernel_sizes must be numbers of at least 1"),
    ],
)
def test_refuses_kernels_without_width(name, option, wrong, message):
    with pytest.raises(InputError, match=message):
        create_translator(name, **SIZES, **{option: wrong})


def test_errors_say_what_would_be_right():
    with pytest.raises(InputError, match="unknown translation model 'transfomer'; did you mean 'transformer'"):
        create_translator("transfomer", VOCABULARY)
    for wrong, message in (
        ({"vocabulary": 4}, "vocabulary must have more than the 4 special tokens, got 4 tokens"),
        ({"dim": 9}, "dim must be a multiple of num_heads, got dim 9 and 2 heads"),
        ({"num_layers": 0}, "num_layers must be at least 1, got 0"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
    ):
        with pytest.raises(InputError, match=message):
            create_translator("transformer", **{**SIZES, **wrong})
