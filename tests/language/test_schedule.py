import math

import pytest

from hkconv.language.schedule import noam


@pytest.mark.parametrize("dim, warmup, factor", [(64, 4000, 1.0), (512, 8000, 2.0)])
def test_the_formula(dim, warmup, factor):
    for step in (1, 2, 100, warmup - 1, warmup, warmup + 1, 10 * warmup):
        rising = factor / math.sqrt(dim) * step / (warmup * math.sqrt(warmup))
        falling = factor / math.sqrt(dim) / math.sqrt(step)
        expected = rising if step < warmup else falling
        assert noam(step, dim, warmup, factor) == pytest.approx(expected, rel=1e-12)


def test_values_of_the_transformer_paper():
    assert noam(4000, 512, 4000) == pytest.approx(6.9877e-4, rel=1e-4)
    assert max(noam(step, 512, 4000) for step in range(1, 9000)) == noam(4000, 512, 4000)
