import warnings

import pytest
import torch

from hkconv.errors import InputError
from hkconv.geometry.checks import check_points, debug, debugging

from .helpers import random_points


@pytest.fixture(autouse=True)
def not_debugging():
    """The environment may say otherwise."""
    with debug(False):
        yield


def bad_row(value):
    x = random_points(2, 3, 4)
    x[1, 0] = value(x[1, 0])
    return x


BAD = {
    "NaN": (lambda row: row * float("nan"), "features contains NaN or Inf, first in row 3"),
    "Inf": (lambda row: row / 0, "features contains NaN or Inf, first in row 3"),
    "off": (lambda row: row * 1.01, "features is off the manifold of curvature -1 .*, first in row 3"),
    "spatial only": (lambda row: torch.cat([0 * row[:1], row[1:]]), "off the manifold .*, first in row 3"),
    "lower sheet": (lambda row: -row, "off the manifold .*, first in row 3"),
}


@pytest.mark.parametrize("on", [True, False])
def test_a_wrong_number_of_coordinates_is_always_an_error(on):
    with debug(on), pytest.raises(InputError) as error:
        check_points(torch.zeros(3, 4), 4, -1.0, "x")
    assert str(error.value) == "x must have 5 coordinates for points of dimension 4 (time first), got 4"


@pytest.mark.parametrize(("damage", "message"), BAD.values(), ids=BAD)
def test_debug_mode_names_the_first_bad_row(damage, message):
    with debug(), pytest.raises(InputError, match=message):
        check_points(bad_row(damage), 4, -1.0, "features")


@pytest.mark.parametrize(("damage", "message"), BAD.values(), ids=BAD)
def test_nothing_is_read_without_debug_mode(damage, message):
    check_points(bad_row(damage), 4, -1.0, "features")


def test_points_of_another_curvature_are_off(dtype):
    x = random_points(3, 4, curvature=-0.3, dtype=dtype)
    with debug(), pytest.raises(InputError, match=r"curvature -1 .*, first in row 0"):
        check_points(x, 4, torch.tensor(-1.0), "x")


def test_points_on_the_manifold_pass(dtype, curvature):
    with debug():
        check_points(random_points(2, 50, 4, curvature=curvature, dtype=dtype), 4, curvature, "x")
        check_points(torch.empty(0, 5, dtype=dtype), 4, curvature, "x")


def test_a_learned_curvature_is_checked_without_a_warning():
    k = torch.tensor(-0.3, dtype=torch.float64, requires_grad=True)
    with debug(), warnings.catch_warnings():
        warnings.simplefilter("error")
        check_points(random_points(5, 4, curvature=-0.3), 4, k, "x")


def test_contexts_nest_and_restore():
    assert not debugging()
    with debug():
        with debug(False):
            assert not debugging()
        assert debugging()
    assert not debugging()


def test_an_error_restores_too():
    with pytest.raises(RuntimeError), debug():
        raise RuntimeError
    assert not debugging()


def test_compiled_code_is_not_checked():
    def layer(x):
        check_points(x, 4, -1.0, "x")
        return x * 2

    x = torch.full((3, 5), float("nan"))
    with debug():
        assert torch.compile(layer, fullgraph=True, backend="eager")(x).isnan().all()
