import copy
import pickle

import geoopt
import pytest
import torch
from torch.nn.parameter import is_lazy
from torch_geometric.nn import summary

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.nn import HEmbedding, HKBlock, HKConv, HLinear
from hkconv.testing import assert_on_manifold

EDGES = torch.tensor([[0, 2, 4, 1, 2, 4], [1, 1, 1, 2, 3, 0]])
VARIANTS = {
    "conv": lambda dim: HKConv(dim, 3, 3),
    "random points": lambda dim: HKConv(dim, 3, 3, points="random"),
    "trainable points": lambda dim: HKConv(dim, 3, 3, points="trainable", curvature=-0.5),
    "attention, attributes": lambda dim: HKConv(dim, 3, 3, attention="distance", edge_dim=2, mass=True),
    "block": lambda dim: HKBlock(dim, 3, 3),
    "block, attributes": lambda dim: HKBlock(dim, 3, 3, edge_dim=2, points="trainable"),
}
of_each_variant = pytest.mark.parametrize("variant", VARIANTS)


def inputs(layer, dtype=torch.float32):
    attr = {"edge_attr": torch.ones(6, 2, dtype=dtype)} if "edge_dim" in str(layer) else {}
    return (lorentz.lift(torch.randn(5, 4, dtype=dtype), layer.curvature), EDGES), attr


@of_each_variant
def test_the_first_points_make_the_layer_that_a_known_dimension_makes(variant, dtype):
    """The same parameters, in the same order, with the same values where they are not drawn."""
    lazy, known = VARIANTS[variant](-1).to(dtype), VARIANTS[variant](4).to(dtype)
    assert str(lazy) == str(known).replace("(4,", "(-1,")
    args, attr = inputs(lazy, dtype)
    lazy(*args, **attr)
    assert str(lazy) == str(known)
    found, wanted = lazy.state_dict(), known.state_dict()
    assert {n: (v.shape, v.dtype) for n, v in found.items()} == {n: (v.shape, v.dtype) for n, v in wanted.items()}
    assert [n for n, _ in lazy.named_parameters()] == [n for n, _ in known.named_parameters()]
    for name in wanted:
        if name.endswith("points") and variant != "random points":
            torch.testing.assert_close(found[name], wanted[name])
        if name.endswith(("gate_weight", "edge_map")):
            assert not found[name].any()
        if name.endswith("linear.weight"):
            assert found[name].std() > 0.1


@of_each_variant
def test_parameters_given_to_an_optimizer_before_the_first_points_are_those_that_are_trained(variant):
    lazy = VARIANTS[variant](-1)
    before = list(lazy.parameters())
    assert any(is_lazy(parameter) for parameter in before)
    args, attr = inputs(lazy)
    lazy(*args, **attr)
    assert all(first is now for first, now in zip(before, lazy.parameters(), strict=True))
    if "trainable" in variant:
        assert isinstance(lazy.points, geoopt.ManifoldParameter)
        assert lazy.points.manifold.curvature == -0.5
        assert_on_manifold(lazy.points.detach(), -0.5)


@of_each_variant
@pytest.mark.parametrize(
    "twin", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))], ids=["copy", "pickle"]
)
def test_copies_wait_on_their_own(variant, twin):
    lazy = VARIANTS[variant](-1)
    other = twin(lazy)
    args, attr = inputs(lazy)
    other(*args, **attr)
    assert (other.in_dim, lazy.in_dim) == (4, -1)
    lazy.reset_parameters()
    narrow = (lorentz.lift(torch.randn(5, 2), lazy.curvature), EDGES)
    assert lazy(*narrow, **attr).shape == (5, 4)
    other(*args, **attr)


@of_each_variant
def test_states_are_loaded_before_and_after_the_first_points(variant):
    known, lazy = VARIANTS[variant](4).eval(), VARIANTS[variant](-1).eval()
    args, attr = inputs(known)
    lazy.load_state_dict(known.state_dict())
    assert lazy.in_dim == 4
    assert torch.equal(lazy(*args, **attr), known(*args, **attr))
    waiting = VARIANTS[variant](-1)
    waiting.load_state_dict(VARIANTS[variant](-1).state_dict())
    assert waiting.in_dim == -1
    waiting(*args, **attr)
    with pytest.raises(RuntimeError, match="uninitialized parameter into an initialized one"):
        known.load_state_dict(VARIANTS[variant](-1).state_dict())


def test_pairs_of_points_and_names_of_arguments_are_understood():
    source, target = lorentz.lift(torch.randn(5, 4)), lorentz.lift(torch.randn(4, 4))
    for layer in (HKConv(-1, 3, 3), HKBlock(-1, 3, 3)):
        assert layer(x=(source, target), edge_index=EDGES).shape == (4, 4)


def test_given_points_say_the_dimension():
    points = lorentz.lift(torch.randn(3, 4))
    for layer in (HKConv(-1, 3, 3, points=points), HKBlock(-1, 3, 3, points=points)):
        assert layer.in_dim == 4 and not any(is_lazy(parameter) for parameter in layer.parameters())


def test_a_single_linear_map_waits_too():
    linear = HLinear(-1, 3)
    assert linear(lorentz.lift(torch.randn(5, 4))).shape == (5, 4)
    assert linear.weight.shape == (3, 5)


def test_features_of_an_embedding_are_counted_when_they_come():
    embedding = HEmbedding(-1, 3)
    assert str(embedding) == "HEmbedding(-1, 3)"
    embedding.reset_parameters()
    assert_on_manifold(embedding(torch.randn(5, 7)))
    assert str(embedding) == "HEmbedding(7, 3)"
    with pytest.raises(InputError, match="x must have 7 features, got 2"):
        embedding(torch.randn(5, 2))


def test_a_summary_before_the_first_points_counts_no_parameters():
    lazy = HKBlock(-1, 3, 3)
    assert "-1" in summary(lazy, lorentz.lift(torch.randn(5, 4)), EDGES)


def test_other_negative_dimensions_are_refused():
    for make in (lambda: HKConv(-2, 3, 3), lambda: HKBlock(0, 3, 3), lambda: HLinear(-3, 3)):
        with pytest.raises(InputError, match=r"in_dim must be at least 1, got .*; -1 takes it from the first points"):
            make()
