import pytest
import torch
from translation_cases import SIZES, close

from hkconv.models.translation import create_translator

DIM, HEADS = SIZES["dim"], SIZES["num_heads"]


def _convolved(module, x, offset):
    """The equation position by position and channel by channel; ``offset`` is where position i is in its kernel."""
    doubled = x @ module.gate.weight.T + module.gate.bias
    y = doubled[:, :DIM] * torch.sigmoid(doubled[:, DIM:])
    width = module.kernel_size
    z = torch.zeros_like(y)
    for i in range(len(x)):
        for c in range(DIM):
            head = c // (DIM // HEADS)
            scores = module.kernel.weight[head * width : (head + 1) * width] @ y[i]
            kernel = scores.exp() / scores.exp().sum()
            for j in range(width):
                if 0 <= i + j - offset < len(x):
                    z[i, c] += kernel[j] * y[i + j - offset, c]
    return z @ module.out.weight.T + module.out.bias


@torch.no_grad()
@pytest.mark.parametrize("width", [3, 4, 7])
def test_convolution_equals_its_equation(dtype, width, small, generator):
    model = small("dynamicconv", dtype, kernel_sizes=(width,))
    x = torch.randn(2, 5, DIM, generator=generator).to(dtype)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    encoder, decoder = model.encoder[0].mixing, model.decoder[0].mixing
    found = encoder.to_itself(x, padding)
    torch.testing.assert_close(found[0], _convolved(encoder, x[0], (width - 1) // 2), **close(dtype))
    torch.testing.assert_close(found[1, :3], _convolved(encoder, x[1, :3], (width - 1) // 2), **close(dtype))
    torch.testing.assert_close(decoder.to_the_past(x)[0], _convolved(decoder, x[0], width - 1), **close(dtype))


def test_kernels_grow_with_depth_as_in_their_paper():
    model = create_translator("dynamicconv", **{**SIZES, "num_layers": 6})
    for layers in (model.encoder, model.decoder):
        assert [layer.mixing.kernel_size for layer in layers] == [3, 7, 15, 31, 31, 31]
