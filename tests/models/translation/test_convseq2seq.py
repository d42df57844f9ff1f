import torch
from translation_cases import SIZES, close, sentences, shifted

from hkconv.models.translation import create_translator
from hkconv.models.translation.tokens import PAD

DIM = SIZES["dim"]


def _gated(convolution, positions):
    """GLU(W [x_1, ..., x_k] + b) for one window, whose channels lie together."""
    linear = convolution.linear
    doubled = linear.weight @ torch.stack(positions, dim=-1).flatten() + linear.bias
    return doubled[:DIM] * torch.sigmoid(doubled[DIM:])


def _at(x, i):
    return x[i] if 0 <= i < len(x) else torch.zeros_like(x[0])


def _logits(model, source, target):
    """Gehring et al. for one sentence, position by position."""
    table, positions = model.embedding.tokens, model.embedding.positions
    e, g = table[source] + positions[: len(source)], table[target] + positions[: len(target)]
    z = e
    for layer in model.encoder:
        convolved = [_gated(layer.convolution, [_at(z, i + o) for o in (-1, 0, 1)]) for i in range(len(z))]
        z = (torch.stack(convolved) + z) / 2**0.5
    x = g
    for layer in model.decoder:
        rows = []
        for i in range(len(x)):
            h = _gated(layer.convolution, [_at(x, i + o) for o in (-2, -1, 0)])
            d = layer.query.weight @ h + layer.query.bias + g[i]
            a = torch.stack([(d @ z[j]).exp() for j in range(len(z))])
            c = len(z) ** 0.5 * sum(a[j] / a.sum() * (z[j] + e[j]) for j in range(len(z)))
            rows.append(((h + c) / 2**0.5 + x[i]) / 2**0.5)
        x = torch.stack(rows)
    return x @ table.T


@torch.no_grad()
def test_equals_its_equations(dtype, small, generator):
    model = small("convseq2seq", dtype)
    source, target = sentences(generator, (5, 3)), shifted(sentences(generator, (4, 4)))
    found = model(source, target)
    for row in range(2):
        expected = _logits(model, source[row][source[row] != PAD], target[row])
        torch.testing.assert_close(found[row], expected, **close(dtype))


def test_fresh_layers_keep_the_size_of_states(generator):
    model = create_translator("convseq2seq", **{**SIZES, "vocabulary": 500, "dim": 64, "num_layers": 6}).eval()
    source = torch.randint(4, 500, (20, 12), generator=generator)
    first, *_, last = model.encoder_layers(source)
    assert 0.5 < last.std() / first.std() < 2
