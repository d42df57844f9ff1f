import pytest

from hkconv.benchmarking.shapes import Shape, check_targets, parse_shape
from hkconv.errors import InputError


def test_parses_what_it_prints():
    shape = parse_shape(" 10, 20,3,4")
    assert shape == Shape(nodes=10, edges=20, kernels=3, dim=4)
    assert parse_shape(str(shape)) == shape


@pytest.mark.parametrize("text", ["", "1,2,3", "1,2,3,4,5", "1,2,3,x", "0,2,3,4", "1,2,-3,4", "1,2,3,4.5"])
def test_refuses_other_text(text):
    with pytest.raises(InputError, match="shape must be four whole numbers"):
        parse_shape(text)


def test_refuses_unknown_targets():
    with pytest.raises(InputError, match="targets must be uniform or power-law, got 'even'"):
        check_targets(("uniform", "even"))
