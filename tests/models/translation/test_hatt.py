import torch
from torch.nn import functional as F
from translation_cases import SIZES, close

from hkconv.geometry import lorentz
from hkconv.models.translation.hatt import attend, pairwise_distance, pseudo_polar
from hkconv.testing import assert_on_manifold

DIM, HEADS = SIZES["dim"], SIZES["num_heads"]
WIDTH = DIM // HEADS


def _points(generator, dtype, *shape, radius=1.0):
    v = radius * F.normalize(torch.randn(*shape, generator=generator, dtype=torch.float64), dim=-1)
    return lorentz.lift(lorentz.exp0(F.pad(v, (1, 0)))[..., 1:].to(dtype))


def test_distances_are_those_of_all_pairs(dtype, generator):
    x, y = _points(generator, dtype, 2, 4, 3, radius=2.0), _points(generator, dtype, 2, 5, 3)
    expected = lorentz.dist(x.unsqueeze(2), y.unsqueeze(1))
    torch.testing.assert_close(pairwise_distance(x, y), expected, **close(dtype))


def test_near_points_keep_their_distance_in_float32(generator):
    x = _points(generator, torch.float64, 3, 5)
    near = lorentz.oplus(_points(generator, torch.float64, 3, 5, radius=1e-4), x)
    found = pairwise_distance(*(lorentz.lift(points[:, 1:].float()) for points in (x, near))).diagonal()
    torch.testing.assert_close(found, torch.full((3,), 1e-4), rtol=1e-2, atol=0)


def test_reads_the_einstein_midpoint_of_the_klein_model(dtype, generator):
    query, key = _points(generator, dtype, 2, 3, 4), _points(generator, dtype, 2, 5, 4)
    value = _points(generator, dtype, 2, 5, 4, radius=1.5)
    seen = torch.tensor([[True] * 5, [True] * 3 + [False] * 2]).unsqueeze(1)
    found = lorentz.to_klein(attend(query, key, value, seen, torch.tensor(1.7, dtype=dtype)))
    for b in range(2):
        klein = lorentz.to_klein(value[b])
        for i in range(3):
            visible = [j for j in range(5) if seen[b, 0, j]]
            w = torch.stack([(-1.7 * lorentz.dist(query[b, i], key[b, j])).exp() for j in visible])
            gamma = torch.stack([(1 - klein[j] @ klein[j]).rsqrt() for j in visible])
            expected = sum(w[n] * gamma[n] * klein[j] for n, j in enumerate(visible)) / (w @ gamma)
            torch.testing.assert_close(found[b, i], expected, **close(dtype))


def test_far_points_and_queries_without_keys_stay_finite(dtype, generator):
    for radius in (0.0, 1e-3, 8.0, 30.0):
        parts = [_points(generator, dtype, 2, 3, 4, radius=radius).requires_grad_() for _ in range(3)]
        seen = torch.tensor([[[True, True, False]], [[False, False, False]]])
        out = attend(*parts, seen, torch.ones((), dtype=dtype))
        assert_on_manifold(out)
        lorentz.dist(out, out.roll(1, 1)).sum().backward()
        assert all(part.grad.isfinite().all() for part in parts)


def _polar(linear, x, head):
    """cosh(r), sinh(r) u/|u| for the coordinates (r, u) of one head."""
    r, *u = (linear.weight @ x + linear.bias)[head * (WIDTH + 1) : (head + 1) * (WIDTH + 1)]
    u = torch.stack(u)
    return torch.cat([r.cosh().view(1), r.sinh() * u / u.norm()])


@torch.no_grad()
def test_attention_equals_its_equations(dtype, small, generator):
    attention = small("hatt", dtype).decoder[0].memory_attention
    x, memory = (torch.randn(1, length, DIM, generator=generator).to(dtype) for length in (2, 4))
    padding = torch.tensor([[False, False, False, True]])
    found = attention.to_memory(x, memory, padding)
    for i in range(2):
        heads = []
        for head in range(HEADS):
            query = _polar(attention.query, x[0, i], head)
            keys = torch.stack([_polar(attention.key, memory[0, j], head) for j in range(3)])
            klein = lorentz.to_klein(torch.stack([_polar(attention.value, memory[0, j], head) for j in range(3)]))
            w = (-attention.log_sharpness[head].exp() * lorentz.dist(query, keys)).softmax(0)
            factor = w * (1 - klein.square().sum(1)).rsqrt()
            middle = (factor / factor.sum()) @ klein
            heads.append(torch.atanh(middle.norm()) * middle / middle.norm())
        expected = attention.out.weight @ torch.cat(heads) + attention.out.bias
        torch.testing.assert_close(found[0, i], expected, **close(dtype))


def test_pseudo_polar_coordinates_reach_the_whole_space(dtype):
    coordinates = torch.tensor([[2.0, 3.0, 4.0], [-2.0, 3.0, 4.0], [1.0, 0.0, 0.0], [500.0, 1.0, 0.0]], dtype=dtype)
    points = pseudo_polar(coordinates)
    assert_on_manifold(points)
    torch.testing.assert_close(lorentz.log0(points)[0, 1:], torch.tensor([1.2, 1.6], dtype=dtype))
    torch.testing.assert_close(points[1, 1:], -points[0, 1:])
    torch.testing.assert_close(points[2], lorentz.origin(2, dtype=dtype))
