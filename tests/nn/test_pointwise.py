import pytest
import torch

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.nn import HActivation, HDropout
from hkconv.testing import assert_on_manifold


def cloud(dtype, curvature):
    return lorentz.lift(torch.randn(200, 4, dtype=dtype), curvature)


@pytest.mark.parametrize(("act", "function"), [("relu", torch.relu), ("tanh", torch.tanh), (torch.sin, torch.sin)])
def test_an_activation_acts_on_space_and_time_follows(act, function, dtype, curvature):
    x = cloud(dtype, curvature)
    out = HActivation(act, curvature=curvature)(x)
    torch.testing.assert_close(out[:, 1:], function(x[:, 1:]))
    assert_on_manifold(out, curvature)


def test_dropout_drops_coordinates_of_space_and_time_follows(dtype, curvature):
    x = cloud(dtype, curvature)
    layer = HDropout(0.25, curvature=curvature)
    out = layer(x)
    assert_on_manifold(out, curvature)
    kept = out[:, 1:] != 0
    assert 0.65 < kept.float().mean() < 0.85
    torch.testing.assert_close(out[:, 1:][kept], (x[:, 1:] / 0.75)[kept])
    assert layer.eval()(x) is x


def test_half_precision_is_promoted():
    x = cloud(torch.float32, -1.0)
    assert HActivation("relu")(x.bfloat16()).dtype == HDropout(0.5)(x.bfloat16()).dtype == torch.float32


def test_repr_bad_options_and_bad_points():
    assert str(HActivation("tanh", curvature=-0.5)) == "HActivation(act='tanh', curvature=-0.5)"
    assert (str(HActivation()), str(HDropout(0.1)), str(HDropout())) == (
        "HActivation()",
        "HDropout(p=0.1)",
        "HDropout()",
    )
    with pytest.raises(InputError, match="an activation must be one of"):
        HActivation("softmax")
    with pytest.raises(InputError, match=r"dropout must lie in \[0, 1\), got 1"):
        HDropout(1)
    summed = 2 * cloud(torch.float32, -1.0)
    for layer in (HActivation(), HDropout()):
        with pytest.raises(InputError, match="sums and means of points"):
            layer(summed)
