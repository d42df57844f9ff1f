"""HNN++ against the formulas of its paper in the Poincaré ball, written out with vectors of the ball alone."""

import math

import pytest
import torch
from torch.nn import functional as F
from translation_cases import SIZES, close, sentences, shifted

from hkconv.geometry import lorentz
from hkconv.models.translation import create_translator
from hkconv.models.translation.hnn_plus_plus import PoincareLinear, beta, mobius_add
from hkconv.models.translation.tokens import PAD
from hkconv.testing import assert_on_manifold

DIM = SIZES["dim"]


def _conformal(p):
    return 2 / (1 - p @ p)


def _scores(linear, p):
    rows = []
    for z, r in zip(linear.direction, linear.offset):
        inside = _conformal(p) * (p @ z / z.norm()) * (2 * r).cosh() - (_conformal(p) - 1) * (2 * r).sinh()
        rows.append(2 * z.norm() * torch.asinh(inside))
    return torch.stack(rows)


def _connected(linear, p):
    w = torch.sinh(_scores(linear, p))
    return w / (1 + (1 + w @ w).sqrt())


def _log(p):
    return 2 * torch.atanh(p.norm()) * p / p.norm() if p.any() else p


def _exp(v):
    return torch.tanh(v.norm() / 2) * v / v.norm() if v.any() else v


def _add(p, q):
    pq, pp, qq = p @ q, p @ p, q @ q
    return ((1 + 2 * pq + qq) * p + (1 - pp) * q) / (1 + 2 * pq + pp * qq)


def _distance(p, q):
    return 2 * torch.atanh(_add(-p, q).norm())


def _midpoint(weights, points):
    """The Möbius gyromidpoint: half of the sum of w λ p over that of w (λ - 1)."""
    whole = sum(w * _conformal(p) * p for w, p in zip(weights, points))
    return _exp(0.5 * _log(whole / sum(w * (_conformal(p) - 1) for w, p in zip(weights, points))))


def _beta(n):
    return math.gamma(n / 2) * math.gamma(1 / 2) / math.gamma((n + 1) / 2)


def _gated(convolution, window):
    """One window, whose channels lie together."""
    k = len(window)
    joined = _exp(torch.stack([_beta(k * DIM) / _beta(DIM) * _log(p) for p in window], dim=-1).flatten())
    halves = _beta(DIM) / _beta(2 * DIM) * _log(_connected(convolution.linear, joined))
    return _exp(halves[:DIM] * torch.sigmoid(halves[DIM:]))


def _half(p):
    return _exp(0.5**0.5 * _log(p))


def _at(x, i):
    return x[i] if 0 <= i < len(x) else torch.zeros_like(x[0])


def _logits(model, source, target):
    """The whole network for one sentence, position by position."""
    table, positions = model.embedding.tokens, model.embedding.positions
    e = [_exp(table[word] + positions[i]) for i, word in enumerate(source)]
    g = [_exp(table[word] + positions[i]) for i, word in enumerate(target)]
    z = e
    for layer in model.encoder:
        z = [
            _half(_add(_gated(layer.convolution, [_at(z, i + o) for o in (-1, 0, 1)]), z[i]))
            for i in range(len(source))
        ]
    x = g
    for layer in model.decoder:
        after = []
        for i in range(len(target)):
            h = _gated(layer.convolution, [_at(x, i + o) for o in (-2, -1, 0)])
            d = _add(_connected(layer.query, h), g[i])
            a = torch.stack([-layer.log_sharpness.exp() * _distance(d, z[j]) for j in range(len(source))]).softmax(0)
            c = _midpoint(a, [_add(z[j], e[j]) for j in range(len(source))])
            after.append(_half(_add(_half(_add(h, c)), x[i])))
        x = after
    return torch.stack([_scores(model.embedding.output, p) for p in x])


@torch.no_grad()
def test_linear_equals_the_poincare_fully_connected_layer(dtype, generator):
    linear = PoincareLinear(4, 3, std=0.7).to(dtype)
    linear.offset.copy_(0.3 * torch.randn(3, generator=generator))
    x = lorentz.lift(torch.randn(6, 4, generator=generator).to(dtype))
    assert_on_manifold(linear(x))
    for point, found, score in zip(x, lorentz.to_poincare(linear(x)), linear.scores(x)):
        p = lorentz.to_poincare(point)
        torch.testing.assert_close(score, _scores(linear, p), **close(dtype))
        torch.testing.assert_close(found, _connected(linear, p), **close(dtype))


def test_scores_are_distances_to_hyperplanes(generator):
    """|v_k| is twice |z_k| times the distance to the set where v_k = 0, found here by descent along it."""
    linear = PoincareLinear(2, 1, std=0.7).double()
    with torch.no_grad():
        linear.offset.fill_(0.4)
    x = lorentz.lift(torch.tensor([[0.8, -0.3]], dtype=torch.float64))
    # Points of the plane: exp of the normal by 2 r, then any way across it.
    normal = F.normalize(linear.direction[0], dim=0).detach()
    across = torch.stack([-normal[1], normal[0]])
    t = torch.linspace(-4, 4, 200001, dtype=torch.float64).unsqueeze(1)
    along = lorentz.exp0(F.pad(t * across, (1, 0)))
    start = lorentz.exp0(F.pad(0.8 * normal, (1, 0)))
    plane = lorentz.oplus(along, start)
    torch.testing.assert_close(linear.scores(plane), torch.zeros(len(t), 1, dtype=torch.float64), rtol=0, atol=1e-9)
    nearest = lorentz.dist(plane, x).min()
    torch.testing.assert_close(linear.scores(x).abs().squeeze(), 2 * linear.direction.norm() * nearest)


@torch.no_grad()
def test_network_equals_its_equations_in_the_ball(dtype, small, generator):
    model = small("hnn++", dtype)
    source, target = sentences(generator, (4, 2)), shifted(sentences(generator, (3, 3)))
    found = model(source, target)
    for row in range(2):
        expected = _logits(model, source[row][source[row] != PAD], target[row])
        torch.testing.assert_close(found[row], expected, **close(dtype))


def test_addition_is_that_of_mobius(generator):
    x, y = (lorentz.lift(torch.randn(3, generator=generator, dtype=torch.float64)) for _ in range(2))
    expected = _add(lorentz.to_poincare(x), lorentz.to_poincare(y))
    torch.testing.assert_close(lorentz.to_poincare(mobius_add(x, y)), expected)


def test_beta_of_large_dimensions_does_not_overflow():
    assert beta(6) == pytest.approx(_beta(6))
    assert beta(3072) / beta(768) == pytest.approx(0.5, rel=1e-3)


def test_states_are_points_of_about_the_same_distance_in_every_layer(generator):
    model = create_translator("hnn++", **{**SIZES, "vocabulary": 500, "dim": 64, "num_layers": 6}).eval()
    layers = model.encoder_layers(torch.randint(4, 500, (20, 12), generator=generator))
    for states in layers:
        assert_on_manifold(states)
        assert 0.5 < lorentz.log0(states).norm(dim=-1).mean() < 2
