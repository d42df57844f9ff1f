import torch
from translation_cases import SIZES, close

from hkconv.geometry import lorentz
from hkconv.models.translation.hatt import pseudo_polar
from hkconv.testing import assert_on_manifold

DIM, HEADS = SIZES["dim"], SIZES["num_heads"]
WIDTH = DIM // HEADS


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
