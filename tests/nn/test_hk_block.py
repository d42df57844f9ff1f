import copy
import doctest
import pickle
import warnings

import literal
import pytest
import torch
from nights import nightly
from torch.nn import functional as F
from torch_geometric import EdgeIndex
from torch_geometric.testing import assert_module
from torch_geometric.utils import to_torch_csr_tensor

import hkconv
from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.geometry.curvature import LearnedCurvature
from hkconv.nn import HKBlock, hk_block, hk_conv
from hkconv.testing import assert_on_manifold, assert_permutation_equivariant, assert_translation_invariant

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11}
ACTS = {None: lambda t: t, "relu": torch.relu}
NORMS = [None, "layer", "batch"]
# For tests that choose their backends themselves, or do not depend on one.
once = pytest.mark.parametrize("backend", ["fused"], indirect=True)


@pytest.fixture(autouse=True, params=["reference", "fused"])
def backend(request, monkeypatch):
    """Every test of this file runs with plain PyTorch and with the fused operator."""
    if request.param == "reference":
        for module in (hk_conv, hk_block):
            monkeypatch.setattr(module, "choose_backend", lambda *arguments: "reference")
    return request.param


def ragged_edges():
    """Node 0 isolated, node 1 a hub, a repeated edge, a self loop; node 6 only a source."""
    source = [0, 2, 3, 4, 5, 6, 2, 3, 1, 4, 2, 2]
    target = [1, 1, 1, 1, 1, 1, 3, 2, 5, 5, 4, 4]
    return torch.tensor([[*source, 3], [*target, 3]])


def smooth_edges():
    """The same without the self loop, which sits exactly at the tip of d's cone, where there is no derivative."""
    edge_index = ragged_edges()
    edge_index[:, -1] = torch.tensor([5, 3])
    return edge_index


def sampled_edges(targets=4):
    """The edges into the first nodes, as a neighbor sampler hands them over."""
    edge_index = ragged_edges()
    return edge_index[:, edge_index[1] < targets]


def cloud(n, dim, curvature, dtype, scale=1.0):
    return lorentz.lift(torch.randn(n, dim, dtype=torch.float64) * scale, curvature).to(dtype)


def moved(module):
    """With everything away from where it starts: gates would else not depend on the views."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if any(part in name for part in ("bias", "gate", "mass", "norm", "edge")):
                parameter.add_(torch.empty_like(parameter).uniform_(-0.5, 0.5))
    return module


def make(dim_in=4, dim_out=3, K=3, dtype=torch.float64, curvature=-1.0, **options):
    return moved(HKBlock(dim_in, dim_out, K, curvature=curvature, **options)).to(dtype)


def literal_views(block, x_source, x_target, edge_index, weights, curvature, attr=None):
    double = copy.deepcopy(block).double()
    conv, linear = (
        {name: value.detach() for name, value in module.named_tensors().items()}
        for module in (double.conv.linear, double.linear)
    )
    source, target = ([lorentz.lift(p[1:].double(), curvature) for p in x] for x in (x_source, x_target))
    points = list(double.conv.points.detach())
    moves = [None, None]
    if attr is not None:
        moves = [list(attr.double() @ layer.edge_map.detach().T) for layer in (double.conv, double)]
    edges = edge_index.t().tolist()
    return literal.hkblock_views(source, target, edges, weights, conv, points, linear, curvature, *moves)


def literal_output(block, views, curvature, norm=None, act=None):
    v, G = block.gate_weight.detach().double(), block.gate_mix.detach().double()
    scale_and_shift = [parameter.detach().double() for parameter in block.norm.parameters()]
    return literal.hkblock(views, v, G, curvature, norm, *scale_and_shift, act=ACTS[act])


def assert_equal(out, expected, dtype, factor=1):
    atol = factor * TOLERANCE[dtype] * max(1, expected.abs().max())
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=atol)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("norm", "act"), [(None, None), (None, "relu"), ("layer", "relu"), ("batch", None)])
def test_equals_the_equations(dtype, curvature, weighted, norm, act):
    x, edge_index = cloud(7, 4, curvature, dtype), ragged_edges()
    weights = torch.rand(edge_index.size(1), dtype=dtype) if weighted else None
    if weighted:
        weights[edge_index[1] == 5] = 0  # all weights of a neighborhood vanish
    block = make(dtype=dtype, curvature=curvature, norm=norm, act=act)
    listed = [1.0] * edge_index.size(1) if weights is None else weights.tolist()
    views = literal_views(block, x, x, edge_index, listed, curvature)
    assert_equal(block.views(x, x, edge_index, weights), views, dtype)
    expected = literal_output(block, views, curvature, norm, act)
    # A norm divides by a deviation, which may be small.
    assert_equal(block(x, edge_index, weights), expected, dtype, 1 if norm is None else 5)


def test_attributes_are_seen_in_differences_and_neighbors(dtype, curvature):
    x, edge_index = cloud(7, 4, curvature, dtype), ragged_edges()
    attr, weights = torch.randn(13, 2, dtype=dtype), torch.rand(13, dtype=dtype)
    block = make(dtype=dtype, curvature=curvature, norm=None, edge_dim=2)
    views = literal_views(block, x, x, edge_index, weights.tolist(), curvature, attr)
    assert_equal(block.views(x, x, edge_index, weights, attr), views, dtype)
    expected = literal_output(block, views, curvature, act="relu")
    for edges in (edge_index, hkconv.neighbors(edge_index, 7)):
        assert_equal(block(x, edges, weights, edge_attr=attr), expected, dtype)
    assert_permutation_equivariant(block, x, edge_index, edge_attr=attr)
    two_ends = (x, x[:4].clone())
    views = literal_views(block, x, x[:4], sampled_edges(), [1.0] * 9, curvature, attr[:9])
    assert_equal(block.views(*two_ends, sampled_edges(), None, attr[:9]), views, dtype)
    with pytest.raises(InputError, match=r"edge_attr must have shape .* \(13, 2\), got none"):
        block(x, edge_index)


def test_starts_as_the_block_without_attributes_and_learns_them(dtype, curvature):
    x, edge_index = cloud(7, 4, curvature, dtype), ragged_edges()
    attr = torch.randn(13, 2, dtype=dtype)
    block, plain = (HKBlock(4, 3, 3, curvature=curvature, edge_dim=count).to(dtype) for count in (2, None))
    block.load_state_dict(plain.state_dict(), strict=False)
    out = block(x, edge_index, edge_attr=attr)
    assert_equal(out, plain(x, edge_index).detach().double(), dtype, 20)
    out[:, 1:].square().sum().backward()
    assert all(layer.edge_map.grad.abs().max() > 0 for layer in (block, block.conv))
    with torch.no_grad():
        block.edge_map.fill_(1.0)
    block.reset_parameters()
    assert not block.edge_map.any()


def test_gradients_of_attributes_are_right(curvature):
    block = make(dim_in=2, dim_out=2, K=2, curvature=curvature, edge_dim=2)
    space, attr = (torch.randn(n, 2, dtype=torch.float64, requires_grad=True) for n in (7, 13))

    def run(space, attr, *parameters):
        return block(lorentz.lift(space, curvature), smooth_edges(), edge_attr=attr)

    assert torch.autograd.gradcheck(run, (space, attr, *block.parameters()))


def test_bipartite_equals_the_equations(dtype, curvature):
    x_source, x_target = cloud(6, 4, curvature, dtype), cloud(3, 4, curvature, dtype)
    edge_index = torch.tensor([[0, 1, 2, 5, 5, 3], [0, 0, 0, 2, 0, 2]])
    block = make(dtype=dtype, curvature=curvature, norm=None)
    views = literal_views(block, x_source, x_target, edge_index, [1.0] * 6, curvature)
    expected = literal_output(block, views, curvature, act="relu")
    assert_equal(block((x_source, x_target), edge_index, size=(6, 3)), expected, dtype)


@pytest.mark.parametrize("K", [1, 2, 9])
def test_equals_the_equations_for_any_number_of_kernel_points(K):
    x, edge_index = cloud(7, 4, -1.0, torch.float64), ragged_edges()
    block = make(K=K, norm=None)
    views = literal_views(block, x, x, edge_index, [1.0] * edge_index.size(1), -1.0)
    assert_equal(block(x, edge_index), literal_output(block, views, -1.0, act="relu"), torch.float64)


def test_views_start_with_equal_weights(curvature):
    x, edge_index = cloud(7, 4, curvature, torch.float64), ragged_edges()
    block = HKBlock(4, 3, 3, norm=None, act=None, curvature=curvature).double()
    views = block.views(x, x, edge_index)
    torch.testing.assert_close(block.gates(views), torch.full((7, 3), 1 / 3, dtype=torch.float64), rtol=0, atol=1e-15)
    expected = torch.stack([literal.centroid(list(y), [1.0] * 3, curvature) for y in views.detach()])
    torch.testing.assert_close(block(x, edge_index), expected, rtol=0, atol=1e-12)


def test_gates_sum_to_one_and_differ_between_nodes(dtype):
    block, x = make(dtype=dtype), cloud(7, 4, -1.0, dtype)
    gates = block.gates(block.views(x, x, ragged_edges()))
    torch.testing.assert_close(gates.sum(-1), torch.ones(7, dtype=dtype))
    assert (gates > 0).all() and (gates.std(0) > 1e-3).all()


def test_a_mix_of_openings_moves_weight_from_one_view_to_another():
    block, views = HKBlock(4, 3, 3), lorentz.lift(torch.randn(5, 3, 3))
    with torch.no_grad():
        block.gate_mix[0, 2] = 1.0  # how far d is open counts for s too: every σ(0) is one half
    expected = torch.softmax(3 * torch.tensor([0.5, 0.5, 1.0]), 0)
    torch.testing.assert_close(block.gates(views), expected.expand(5, 3))


@pytest.mark.parametrize("norm", NORMS)
def test_permutation_equivariance(norm, dtype):
    assert_permutation_equivariant(make(dtype=dtype, norm=norm), cloud(7, 4, -1.0, dtype), ragged_edges())


@pytest.mark.parametrize("options", [{"norm": None}, {"norm": "batch", "mass": True}, {"act": "tanh"}], ids=str)
def test_outputs_and_views_lie_on_the_manifold(options, dtype, curvature):
    block = make(dtype=dtype, curvature=curvature, **options)
    x, edge_index = cloud(7, 4, curvature, dtype, scale=2), ragged_edges()
    assert_on_manifold(block.views(x, x, edge_index), curvature)
    assert_on_manifold(block(x, edge_index), curvature)


def test_isolated_nodes_see_themselves_alone(dtype, curvature):
    block, edge_index = make(dtype=dtype, curvature=curvature, norm=None, act=None), ragged_edges()
    x = cloud(7, 4, curvature, dtype)
    views = block.views(x, x, edge_index)[[0, 6]]
    assert torch.equal(views[:, :2], lorentz.origin(3, curvature, dtype=dtype).expand(2, 2, -1))
    torch.testing.assert_close(views[:, 2], block.linear(x[[0, 6]], 1))
    out = block(x, edge_index)[[0, 6]]
    along = F.cosine_similarity(out[:, 1:], views[:, 2, 1:])
    torch.testing.assert_close(along, torch.ones(2, dtype=dtype))
    others = cloud(7, 4, curvature, dtype)
    others[[0, 6]] = x[[0, 6]]
    assert torch.equal(block(others, edge_index)[[0, 6]], out)


@pytest.mark.parametrize("norm", NORMS)
def test_no_edges_at_all(norm, dtype):
    block, x = make(dtype=dtype, norm=norm), cloud(3, 4, -1.0, dtype).requires_grad_()
    out = block(x, torch.empty(2, 0, dtype=torch.long))
    assert_on_manifold(out)
    out[:, 1:].square().sum().backward()
    assert torch.isfinite(x.grad).all()
    assert block.eval()(x[:0], torch.empty(2, 0, dtype=torch.long)).shape == (0, 4)


def view(block, number):
    def layer(x, edge_index):
        x_source, x_target = (x, x) if isinstance(x, torch.Tensor) else x
        return block.views(x_source, x_target, edge_index)[:, number]

    return layer


@pytest.mark.parametrize("mass", [False, True])
def test_differences_keep_the_local_translation_theorem(mass, dtype, curvature):
    block, x = make(dtype=dtype, curvature=curvature, mass=mass), cloud(7, 4, curvature, dtype)
    assert_translation_invariant(block.conv, x, ragged_edges(), curvature)
    assert_translation_invariant(view(block, 0), x, ragged_edges(), curvature)


def test_the_other_views_and_the_block_see_positions():
    block, x = make(norm=None), cloud(7, 4, -1.0, torch.float64)
    for layer in (block, view(block, 1), view(block, 2)):
        with pytest.raises(AssertionError, match="moving a neighbourhood"):
            assert_translation_invariant(layer, x, ragged_edges())


@pytest.mark.parametrize("norm", [None, "batch"])
@pytest.mark.parametrize(("radius", "tolerance"), [(1.0, 2e-5), (4.0, 2e-5), (8.0, 1e-3)])
def test_float32_agrees_with_float64_far_from_the_origin(radius, tolerance, norm):
    direction = F.normalize(torch.randn(1, 4, dtype=torch.float64))
    center = lorentz.exp0(F.pad(radius * direction, (1, 0)))
    spread = lorentz.lift(0.5 * torch.randn(7, 4, dtype=torch.float64))
    x = lorentz.lift(lorentz.oplus(spread, center)[:, 1:].float())
    block = make(dtype=torch.float32, norm=norm)
    exact = copy.deepcopy(block).double()(lorentz.lift(x[:, 1:].double()), ragged_edges())
    torch.testing.assert_close(block(x, ragged_edges()).double(), exact, rtol=0, atol=tolerance)


ways = pytest.mark.parametrize("fast", [True, *nightly(False)], ids=["along random directions", "entry by entry"])


@ways
def test_gradcheck(fast, curvature):
    block = make(dim_in=2, dim_out=2, K=2, curvature=curvature, norm=None, act="tanh", mass=True)
    space = torch.randn(7, 2, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(13, dtype=torch.float64, requires_grad=True)

    def run(space, weight, *parameters):
        return block(lorentz.lift(space, curvature), smooth_edges(), weight)

    assert torch.autograd.gradcheck(run, (space, weight, *block.parameters()), fast_mode=fast)


@ways
def test_second_derivatives_are_right_with_a_self_loop_too(fast):
    block = make(dim_in=2, dim_out=2, K=2, curvature=-0.3, norm=None, act="tanh")
    space = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(5, dtype=torch.float64, requires_grad=True)
    edge_index = torch.tensor([[0, 1, 2, 3, 1], [1, 1, 0, 0, 2]])

    def run(space, weight):
        return block(lorentz.lift(space, -0.3), edge_index, weight)

    assert torch.autograd.gradgradcheck(run, (space, weight), fast_mode=fast)


@once
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_both_backends_give_the_same_gradients(norm, weighted, curvature):
    block = make(curvature=curvature, norm=norm, act="tanh", mass=True, points="trainable")
    values = torch.rand(13, dtype=torch.float64)
    values[smooth_edges()[1] == 5] = 0
    start, pull = torch.randn(7, 4, dtype=torch.float64), torch.randn(7, 4, dtype=torch.float64)
    found = []
    for backend in ("reference", "cpu"):
        block.conv.backend = backend
        block.zero_grad()
        space, weight = start.clone().requires_grad_(), values.clone().requires_grad_()
        out = block(lorentz.lift(space, curvature), smooth_edges(), weight if weighted else None)
        (out * pull).sum().backward()
        gradients = {name: parameter.grad.clone() for name, parameter in block.named_parameters()}
        found.append({"x": space.grad, **gradients, **({"weight": weight.grad} if weighted else {})})
    assert all(gradient.abs().max() > 1e-6 for gradient in found[0].values())
    for name, expected in found[0].items():
        torch.testing.assert_close(found[1][name], expected, rtol=1e-9, atol=1e-11, msg=name)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("case", ["coincident", "origin", "kernel point", "radius 8", "radius 16", "radius 38"])
def test_gradients_are_finite_in_hard_places(norm, case):
    block = make(dtype=torch.float32, norm=norm, mass=True)
    space = torch.randn(7, 4)
    if case == "coincident":
        space = space[:1].repeat(7, 1)
    elif case == "origin":
        space = torch.zeros(7, 4)
    elif case == "kernel point":
        space[2:] = 0
        space[1] = block.conv.points[0, 1:].detach()
    else:
        space = F.normalize(space) * torch.sinh(torch.tensor(float(case.split()[1])))
    space.requires_grad_()
    out = block(lorentz.lift(space), ragged_edges())
    assert_on_manifold(out)
    out.square().sum().backward()
    for name, gradient in [("x", space.grad), *((n, p.grad) for n, p in block.named_parameters())]:
        assert gradient is not None, name
        assert torch.isfinite(gradient).all(), name


@pytest.mark.parametrize("learned", ["parameter", "module"])
@pytest.mark.parametrize("norm", [None, "batch"])
def test_gradient_reaches_a_learned_curvature(learned, norm):
    if learned == "parameter":
        curvature = leaf = torch.nn.Parameter(torch.tensor(-0.8, dtype=torch.float64))
    else:
        curvature = LearnedCurvature(-0.8).double()
        leaf = curvature.log_curvature
    block = make(curvature=curvature, norm=norm, act="tanh")
    space, edge_index = torch.randn(7, 4, dtype=torch.float64), ragged_edges()
    assert sum(parameter is leaf for parameter in block.parameters()) == 1

    def loss():
        return block(lorentz.lift(space, curvature), edge_index, torch.ones(13)).square().sum()

    (gradient,) = torch.autograd.grad(loss(), leaf)
    losses = []
    for step in (1e-5, -2e-5):
        with torch.no_grad():
            leaf += step
            losses.append(loss())
    assert torch.isfinite(gradient) and gradient.abs() > 1e-3
    torch.testing.assert_close(gradient, (losses[0] - losses[1]) / 2e-5, rtol=1e-6, atol=1e-8)
    with torch.no_grad():
        leaf.fill_(-2.0 if learned == "parameter" else 0.7)
    assert_on_manifold(block(lorentz.lift(space, curvature), edge_index), curvature)


def test_mass_is_that_of_the_differences(curvature):
    x, edge_index = cloud(7, 4, curvature, torch.float64), ragged_edges()
    block = make(curvature=curvature, mass=True)
    with torch.no_grad():
        block.conv.mass.scale.fill_(1.0)
        block.conv.mass.shift.zero_()
    plain = literal_views(block, x, x, edge_index, [1.0] * 13, curvature)
    views = block.views(x, x, edge_index)
    torch.testing.assert_close(views[:, 1:], plain[:, 1:], rtol=0, atol=1e-11)
    factor = (views[:, 0, 1:] / plain[:, 0, 1:]).mean(1)
    counts = torch.bincount(edge_index[1], minlength=7).double()
    # One neighbor, or one neighbor twice: the messages coincide, and the mass is their number.
    torch.testing.assert_close(torch.expm1(factor - 1)[[2, 4]], counts[[2, 4]])
    assert torch.expm1(factor - 1)[1] > counts[1] + 1e-6


def test_dropout_is_drawn_once_a_node_and_only_in_training():
    block, edge_index = make(dropout=0.5, norm="layer"), ragged_edges()
    x, targets = cloud(7, 4, -1.0, torch.float64), cloud(4, 4, -1.0, torch.float64)
    bare = copy.deepcopy(block)
    bare.dropout = 0.0

    def dropped(*ends):
        torch.manual_seed(5)
        return [lorentz.lift(F.dropout(end[:, 1:], 0.5)) for end in ends]

    def drawn(*arguments, **options):
        torch.manual_seed(5)
        return block(*arguments, **options)

    (thinned,) = dropped(x)
    assert (thinned == 0).any()
    torch.testing.assert_close(drawn(x, edge_index), bare(thinned, edge_index))
    torch.testing.assert_close(drawn((x, targets), sampled_edges()), bare(tuple(dropped(x, targets)), sampled_edges()))
    # A node of a mini-batch is the same as source and as target.
    expected = bare((thinned, thinned[:4]), sampled_edges())
    torch.testing.assert_close(drawn(x, sampled_edges(), size=(7, 4)), expected)
    assert not torch.allclose(block(x, edge_index), block(x, edge_index))
    assert torch.equal(block.eval()(x, edge_index), bare(x, edge_index))


def test_every_kind_of_neighborhood_gives_the_same():
    block, x, edge_index = make(), cloud(7, 4, -1.0, torch.float64), ragged_edges()
    weight = torch.rand(edge_index.size(1), dtype=torch.float64)
    expected = block(x, edge_index, weight)
    assert not torch.allclose(block(x, edge_index), expected)
    assert torch.equal(block(x, edge_index.int(), weight), expected)
    assert torch.equal(block(x, EdgeIndex(edge_index, sparse_size=(7, 7)), weight), expected)
    torch.testing.assert_close(block(x, hkconv.neighbors(edge_index, 7), weight), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch says that sparse CSR is in beta
        coo = torch.sparse_coo_tensor(edge_index.flip(0), weight, (7, 7)).coalesce()
        csr = to_torch_csr_tensor(edge_index.flip(0), weight, size=(7, 7))
        for matrix in (coo, csr, coo.to_sparse_csc()):
            torch.testing.assert_close(block(x, matrix), expected)


@pytest.mark.parametrize("weights", [torch.float64, torch.bfloat16, torch.int64], ids=str)
def test_weights_may_have_another_type_than_points(weights):
    block, x, edge_index = make(dtype=torch.float32), cloud(7, 4, -1.0, torch.float32), ragged_edges()
    weight = torch.randint(1, 100, (13,)).to(weights)
    out = block(x, edge_index, weight)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, block(x, edge_index, weight.float()))


def test_pyg_module_habits(dtype):
    block = make(dtype=dtype, norm="layer")
    x, edge_index = cloud(7, 4, -1.0, dtype), ragged_edges()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert_module(block, x, edge_index, expected_size=(7, 4), atol=1e-5)
        assert_module(block, (x, x[:4].clone()), sampled_edges(), expected_size=(4, 4), atol=1e-5, size=(7, 4))


@pytest.mark.parametrize("norm", NORMS)
def test_the_first_points_of_a_mini_batch_are_its_targets(norm, dtype):
    block, x, edge_index = make(dtype=dtype, norm=norm).eval(), cloud(7, 4, -1.0, dtype), sampled_edges()
    expected = block((x, x[:4].clone()), edge_index)
    assert expected.shape == (4, 4)
    torch.testing.assert_close(block(x, edge_index, size=(7, 4)), expected)
    torch.testing.assert_close(block(x, hkconv.neighbors(edge_index, (7, 4)), size=(7, 4)), expected)
    # Nothing of a target hangs on the others.
    torch.testing.assert_close(block(x, ragged_edges())[:4], expected)
    assert torch.equal(block(x, ragged_edges(), size=(7, 7)), block(x, ragged_edges()))


def test_both_ends_of_a_mini_batch_get_their_gradient():
    block, edge_index = make(norm=None), sampled_edges()
    start, pull = torch.randn(7, 4, dtype=torch.float64), torch.randn(4, 4, dtype=torch.float64)
    space, sources, targets = (s.clone().requires_grad_() for s in (start, start, start[:4]))
    (block(lorentz.lift(space), edge_index, size=(7, 4)) * pull).sum().backward()
    (block((lorentz.lift(sources), lorentz.lift(targets)), edge_index) * pull).sum().backward()
    expected = sources.grad + F.pad(targets.grad, (0, 0, 0, 3))
    assert (sources.grad[:4].abs().max() > 1e-3) and (targets.grad.abs().max() > 1e-3)
    torch.testing.assert_close(space.grad, expected)


def test_batch_norm_sees_the_targets_alone():
    block, x, edge_index = make(norm="batch", act=None), cloud(7, 4, -1.0, torch.float64), sampled_edges()
    out = block(x, edge_index, size=(7, 4))
    views = literal_views(block, x, x[:4], edge_index, [1.0] * edge_index.size(1), -1.0)
    assert_equal(out, literal_output(block, views, -1.0, "batch"), torch.float64)
    torch.testing.assert_close(out[:, 1:].mean(0), block.norm.norm.module.bias)
    bare = make(norm=None, act=None)
    bare.load_state_dict(block.state_dict(), strict=False)
    space = bare(x, edge_index, size=(7, 4))[:, 1:]
    torch.testing.assert_close(block.norm.norm.module.running_mean, 0.1 * space.mean(0))
    assert not torch.allclose(block(x, ragged_edges())[:4], out)


@pytest.fixture
def fresh_compiler():
    """All layers share one forward, of which torch keeps only so many compiled variants."""
    torch.compiler.reset()


def with_gradients(layer, block, *arguments):
    block.zero_grad()
    space = arguments[0][:, 1:].clone().requires_grad_()
    out = layer(lorentz.lift(space), *arguments[1:])
    out[:, 1:].square().sum().backward()
    return [out.detach(), space.grad, *(parameter.grad.clone() for parameter in block.parameters())]


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("compiler", ["aot_eager", *nightly("inductor")])
def test_compiles_without_a_graph_break(compiler):
    block = make(dtype=torch.float32, norm="batch", mass=True)
    arguments = cloud(7, 4, -1.0, torch.float32), ragged_edges(), torch.rand(13)
    expected = with_gradients(block, block, *arguments)
    compiled = torch.compile(block, fullgraph=True, backend=compiler)
    for found, wanted in zip(with_gradients(compiled, block, *arguments), expected):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize("backend", ["reference"], indirect=True)
def test_exports_through_the_reference_for_graphs_of_any_size():
    block, x, edge_index = make().eval(), cloud(7, 4, -1.0, torch.float64), ragged_edges()
    sizes = {"x": {0: torch.export.Dim("nodes")}, "edge_index": {1: torch.export.Dim("edges")}}
    program = torch.export.export(block, (x, edge_index), dynamic_shapes=sizes).module()
    torch.testing.assert_close(program(x, edge_index), block(x, edge_index))
    fewer = cloud(5, 4, -1.0, torch.float64), torch.tensor([[0, 1, 4, 2], [1, 0, 3, 3]])
    torch.testing.assert_close(program(*fewer), block(*fewer))


def test_autocast_leaves_the_geometry_in_float32():
    block, edge_index = make(dtype=torch.float32), ragged_edges()
    x = cloud(7, 4, -1.0, torch.float32)
    expected = block(x, edge_index)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = block(x, edge_index)
        of_half = block(x.bfloat16(), edge_index)
    assert out.dtype == of_half.dtype == torch.float32
    assert torch.equal(out, expected)
    assert torch.isfinite(of_half).all()
    torch.testing.assert_close(of_half, block(x.bfloat16().float(), edge_index))


@pytest.mark.parametrize("options", [{}, {"norm": "layer", "mass": True, "points": "trainable"}], ids=str)
def test_deepcopy_pickle_and_state_dict(options):
    x, edge_index = cloud(7, 4, -1.0, torch.float64), ragged_edges()
    block = make(**options)
    block(x, edge_index)
    block.eval()
    expected = block(x, edge_index)
    assert torch.equal(copy.deepcopy(block)(x, edge_index), expected)
    assert torch.equal(pickle.loads(pickle.dumps(block))(x, edge_index), expected)
    other = make(**options).eval()
    assert not torch.allclose(other(x, edge_index), expected)
    other.load_state_dict(block.state_dict())
    assert torch.equal(other(x, edge_index), expected)


@once
def test_reset_parameters_draws_anew_and_gives_views_equal_weights():
    block = make(points="trainable", mass=True)
    before = copy.deepcopy(block.state_dict())
    with torch.no_grad():
        block.conv.points.copy_(cloud(3, 4, -1.0, torch.float64))
    block.reset_parameters()
    assert not block.gate_weight.any() and not block.gate_mix.any() and not block.conv.mass.shift.any()
    torch.testing.assert_close(block.conv.points.data, hkconv.kernel_points(3, 4))
    assert torch.equal(block.norm.norm.module.weight.detach(), torch.full((3,), 3**-0.5, dtype=torch.float64))
    after = block.state_dict()
    assert all(not torch.equal(before[f"{m}.weight"], after[f"{m}.weight"]) for m in ("conv.linear", "linear"))


@once
def test_options_reach_the_convolution():
    points = cloud(3, 4, -0.3, torch.float32)
    block = HKBlock(4, 3, 3, points=points, mass=True, curvature=-0.3, backend="reference")
    torch.testing.assert_close(block.conv.points, points)
    assert block.conv.backend == "reference" and block.conv.mass is not None and block.conv.dropout == 0
    assert HKBlock(4, 3, 3).conv.mass is None


@once
def test_repr():
    assert str(HKBlock(4, 8, 3)) == "HKBlock(4, 8, kernel_size=3)"


@once
def test_the_example_of_the_docstring_runs():
    (example,) = (found for found in doctest.DocTestFinder(recurse=False).find(HKBlock) if found.examples)
    result = doctest.DocTestRunner().run(example)
    assert result.attempted == 6 and result.failed == 0


@once
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel_size": 0}, "kernel_size must be at least 1, got 0"),
        ({"in_dim": 0}, "in_dim must be at least 1, got 0"),
        ({"out_dim": 0}, "out_dim must be at least 1, got 0"),
        ({"curvature": 1.0}, "curvature must be negative and finite, got 1.0"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"dropout": -0.1}, r"dropout must lie in \[0, 1\), got -0.1"),
        ({"norm": "group"}, "norm must be None, 'layer' or 'batch', got 'group'"),
        ({"points": "grid"}, "points must be 'optimal', 'random', 'trainable' or a tensor, got 'grid'"),
        ({"backend": "tpu"}, "backend must be one of auto, reference"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(InputError, match=message):
        HKBlock(**{"in_dim": 4, "out_dim": 3, "kernel_size": 3, **options})


def test_bad_points_edges_weights_and_sizes():
    block, x, edge_index = make(), cloud(7, 4, -1.0, torch.float64), ragged_edges()
    with pytest.raises(InputError, match=r"x must have 5 coordinates for points of dimension 4.*got 4"):
        block(x[:, 1:], edge_index)
    with pytest.raises(InputError, match=r"x\[1\] must have 5 coordinates"):
        block((x, x[:, 1:]), edge_index)
    with pytest.raises(InputError, match=r"x must be \(x_source, x_target\)"):
        block((x, None), edge_index)
    with pytest.raises(InputError, match=r"edge_index\[1\] \(targets\) must lie in \[0, 4\), got values from 1 to 5"):
        block(x, edge_index, size=(7, 4))
    with pytest.raises(InputError, match=r"edge_weight must have shape \(13,\), got \(4,\)"):
        block(x, edge_index, torch.ones(4))
    with pytest.raises(InputError, match="edge_weight must be non-negative"):
        block(x, edge_index, -torch.ones(13))
    with pytest.raises(InputError, match=r"size must be \(7, at most 7\) for 7 points, got \(7, 8\)"):
        block(x, edge_index, size=(7, 8))
    with pytest.raises(InputError, match=r"size must be \(7, at most 7\) for 7 points, got \(6, 4\)"):
        block(x, edge_index, size=(6, 4))
    with pytest.raises(InputError, match=r"size must equal the number of points \(7, 4\), got \(7, 5\)"):
        block((x, x[:4]), sampled_edges(), size=(7, 5))
    with pytest.raises(InputError, match=r"graph with \(sources, targets\) = \(7, 7\), x has \(7, 4\) points"):
        block(x, hkconv.neighbors(edge_index, 7), size=(7, 4))
    off = x.clone()
    off[2, 0] += 1
    block(off, edge_index)
    with hkconv.debug(), pytest.raises(InputError, match=r"x is off the manifold.*first in row 2"):
        block(off, edge_index)


@pytest.mark.parametrize("bad", [-1, 50, 2_000_000_000])
def test_a_structure_that_was_changed_is_refused(bad, dtype):
    structure = hkconv.neighbors(torch.randint(50, (2, 200)), 50)
    x, block = lorentz.lift(torch.randn(50, 3, dtype=dtype)), HKBlock(3, 4, 3).to(dtype)
    block(x, structure)
    structure.source[5] = bad
    with pytest.raises(InputError, match=r"these neighbors must lie in \[0, 50\), as hkconv.neighbors makes them"):
        block(x, structure)
