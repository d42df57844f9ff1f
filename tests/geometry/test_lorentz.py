"""What holds for every public function alike: curvature, broadcasting, gradients, precision, compilation."""

import inspect

import pytest
import torch

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.geometry.curvature import curvature_radius

from .helpers import at_origin, tangent

DIM = 3


def on_points(function):
    """A function of points as one of their spatial coordinates."""
    count = sum(name != "curvature" for name in inspect.signature(function).parameters)

    def call(*coordinates_and_curvature):
        *coordinates, k = coordinates_and_curvature
        return function(*(lorentz.lift(s, k) for s in coordinates[:count]), k)

    return call


def on_balls(function):
    """A function of the ball of radius R as one of unbounded coordinates."""

    def call(a, b, c, k):
        return function(curvature_radius(k) * a / (1 + a.square().sum(-1, keepdim=True)).sqrt(), k)

    return call


def exp(a, b, c, k):
    x = lorentz.lift(a, k)
    return lorentz.exp(x, tangent(x, b), k)


def transport(a, b, c, k):
    x = lorentz.lift(a, k)
    return lorentz.transport(x, lorentz.lift(b, k), tangent(x, c), k)


def centroid(a, b, c, k):
    s = torch.stack(torch.broadcast_tensors(a, b, c), dim=-2)
    return lorentz.centroid(lorentz.lift(s, k), s.square().sum(-1), curvature=k)


def origin(a, b, c, k):
    return lorentz.origin(DIM, k, dtype=a.dtype) * a.sum(-1, keepdim=True)


def wrapped_normal(a, b, c, k):
    return lorentz.wrapped_normal(lorentz.lift(a, k), b.exp(), 2, torch.Generator().manual_seed(0), k)


def log_prob(a, b, c, k):
    return lorentz.wrapped_normal_log_prob(lorentz.lift(c, k), lorentz.lift(a, k), b.exp(), k)


FUNCTIONS = {
    **{name: on_points(getattr(lorentz, name)) for name in ("inner", "dist", "log", "log0", "ominus", "oplus")},
    **{name: on_points(getattr(lorentz, name)) for name in ("translate", "to_poincare", "to_klein")},
    **{name: on_balls(getattr(lorentz, name)) for name in ("from_poincare", "from_klein")},
    "lift": lambda a, b, c, k: lorentz.lift(a, k),
    "exp0": lambda a, b, c, k: lorentz.exp0(at_origin(a), k),
    "exp": exp,
    "transport": transport,
    "centroid": centroid,
    "origin": origin,
    "wrapped_normal": wrapped_normal,
    "wrapped_normal_log_prob": log_prob,
}
every_function = pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
batched = {name: f for name, f in FUNCTIONS.items() if not name.startswith("wrapped_normal")}


def coordinates(dtype=torch.float64, shapes=((DIM,),) * 3):
    return [torch.randn(*shape, dtype=dtype) for shape in shapes]


def test_the_table_above_names_every_public_function():
    assert set(FUNCTIONS) == set(lorentz.__all__)


@pytest.mark.parametrize("name", lorentz.__all__)
def test_curvature_is_minus_one_unless_given(name):
    assert inspect.signature(getattr(lorentz, name)).parameters["curvature"].default == -1.0


@every_function
def test_curvature_as_tensor_gives_the_same_values(function, dtype, curvature):
    inputs = coordinates(dtype)
    torch.testing.assert_close(function(*inputs, torch.tensor(curvature, dtype=dtype)), function(*inputs, curvature))


@every_function
def test_non_negative_curvature_is_rejected(function):
    with pytest.raises(InputError, match=r"curvature must be negative and finite, got 0\.5"):
        function(*coordinates(), 0.5)


@every_function
def test_gradients_by_points_and_curvature_are_right(function, curvature):
    inputs = [x.requires_grad_() for x in (*coordinates(), torch.tensor(curvature, dtype=torch.float64))]
    assert torch.autograd.gradcheck(lambda *x: function(*x), inputs)


@every_function
def test_float32_stays_float32_and_agrees_with_float64(function, curvature):
    inputs = coordinates(torch.float32)
    result = function(*inputs, curvature)
    assert result.dtype == torch.float32
    if function is wrapped_normal:  # torch draws other numbers in another precision
        return
    expected = function(*(x.double() for x in inputs), curvature).float()
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("function", batched.values(), ids=batched)
def test_leading_dimensions_broadcast(function, curvature):
    a, b, c = coordinates(shapes=((4, 1, DIM), (2, DIM), (1, 2, DIM)))
    result = function(a, b, c, curvature)
    shape = result.shape[:2]
    for i in range(4):
        for j in range(2):
            expected = function(a[i, 0], b[j], c[0, j], curvature)
            torch.testing.assert_close(result[i % shape[0], j % shape[1]], expected)


@pytest.mark.nightly
def test_compiles_without_a_graph_break():
    def several(*inputs):
        return [FUNCTIONS[name](*inputs) for name in ("dist", "ominus", "exp", "log", "centroid")]

    torch._dynamo.reset()
    inputs = [x.requires_grad_() for x in (*coordinates(), torch.tensor(-0.7, dtype=torch.float64))]
    results, gradients = [], []
    for function in (several, torch.compile(several, fullgraph=True, backend="aot_eager")):
        results.append(function(*inputs))
        gradients.append(torch.autograd.grad(sum(x.sum() for x in results[-1]), inputs))
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*gradients)
