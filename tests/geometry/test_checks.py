import copy
import warnings

import numpy as np
import pytest
import torch
from torch_geometric.nn import global_mean_pool

from hkconv.errors import InputError
from hkconv.geometry import lorentz
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


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("combine", ["global_mean_pool", "x + y"])
def test_euclidean_sums_and_means_of_points_are_named_with_their_remedy(on, combine, dtype, curvature):
    x, y = random_points(2, 6, 4, curvature=curvature, dtype=dtype)
    bad = x + y if combine == "x + y" else global_mean_pool(x, torch.tensor([0, 0, 0, 1, 1, 1]))
    layer = torch.nn.Identity()
    with (
        debug(on),
        pytest.raises(InputError, match=r"Euclidean sums and means of points .*global_centroid_pool"),
    ):
        check_points(bad, 4, curvature, "x", layer)
    check_points(torch.stack([lorentz.centroid(x, curvature=curvature)]), 4, curvature, "x", layer)


@pytest.mark.parametrize("made_in", [torch.bfloat16, torch.float16, torch.float32])
def test_points_made_in_another_type_are_points(made_in, generator):
    """Of few rows, whose times may all have been rounded up."""
    for _ in range(200):
        x = lorentz.lift(torch.randn(4, 8, generator=generator)).to(made_in).double()
        check_points(x, 8, -1.0, "x", torch.nn.Identity())


EUCLIDEAN = {
    "features": torch.randn_like,
    "relu": torch.relu,
    "layer norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "smallest": lambda x: torch.stack([x[:3], x[3:]]).amin(0),
    "half": lambda x: 0.5 * x,
}


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize("habit", EUCLIDEAN)
def test_features_and_what_euclidean_layers_make_of_points_are_named_with_their_remedy(on, habit, dtype, curvature):
    bad = EUCLIDEAN[habit](random_points(6, 4, curvature=curvature, dtype=dtype))
    with debug(on), pytest.raises(InputError, match=r"off the manifold .*, first in row \d; HEmbedding .*HActivation"):
        check_points(bad, 4, curvature, "x", torch.nn.Identity())


def test_a_layer_looks_once_and_so_does_what_is_inside_of_it():
    layer = torch.nn.Sequential(torch.nn.Identity())
    good, bad = random_points(6, 4), 2 * random_points(6, 4)
    for _ in range(2):
        with pytest.raises(InputError, match=r"off the manifold of curvature -1 .*, first in row 0"):
            check_points(bad, 4, -1.0, "x", layer)
    check_points(good, 4, -1.0, "x", layer)
    check_points(bad, 4, -1.0, "x", layer)
    check_points(bad, 4, -1.0, "x", layer[0])
    with pytest.raises(InputError, match="off the manifold"):
        check_points(bad, 4, -1.0, "x", copy.deepcopy(layer))


def test_no_first_look_where_numbers_cannot_be_read():
    bad = 2 * random_points(6, 4)
    check_points(bad.to("meta"), 4, -1.0, "x", torch.nn.Identity())
    torch.func.vmap(lambda x: check_points(x, 4, -1.0, "x", torch.nn.Identity()) or x)(bad[None])
    layer = torch.nn.Identity()

    def compiled(x):
        check_points(x, 4, -1.0, "x", layer)
        return x * 2

    torch.compile(compiled, fullgraph=True, backend="eager")(bad)


def test_what_is_no_tensor_is_named():
    with pytest.raises(InputError, match=r"^x is a NumPy array; pass torch.from_numpy\(x\)$"):
        check_points(np.zeros((3, 5)), 4, -1.0, "x")
    with pytest.raises(InputError, match=r"^x must be a tensor, got a list$"):
        check_points([[1.0, 0.0]], 1, -1.0, "x")
    with pytest.raises(InputError, match=r"^x must hold floating-point numbers, got torch.int64$"):
        check_points(torch.tensor([[1, 0]]), 1, -1.0, "x")
