import copy
import pickle
import shutil
import warnings

import geoopt
import literal
import pytest
import torch
from nights import nightly
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import Sequential
from torch_geometric.testing import assert_module
from torch_geometric.utils import to_torch_csr_tensor

import hkconv
from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.nn import HDistance, HEmbedding, HKBlock, HKConv, global_centroid_pool, hk_conv
from hkconv.nn.common import drop_ends
from hkconv.ops import reference
from hkconv.testing import assert_on_manifold, assert_permutation_equivariant, assert_translation_invariant

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11}
VARIANTS = {
    "paper": {},
    "act": {"act": "relu"},
    "direct": {"relative": False},
    "random": {"points": "random"},
    "trainable": {"points": "trainable"},
    "attention": {"attention": "distance"},
    "mass": {"mass": True},
    "everything": {"act": "tanh", "points": "trainable", "attention": "distance", "mass": True},
}


@pytest.fixture(autouse=True, params=["reference", "fused"])
def backend(request, monkeypatch):
    """Every test of this file runs with plain PyTorch and with the fused operator wherever that covers the layer."""
    if request.param == "reference":
        monkeypatch.setattr(hk_conv, "choose_backend", lambda *arguments: "reference")


def ragged_edges():
    """Node 0 isolated, node 1 a hub, a repeated edge, a self loop; node 6 only a source."""
    source = [0, 2, 3, 4, 5, 6, 2, 3, 1, 4, 2, 2]
    target = [1, 1, 1, 1, 1, 1, 3, 2, 5, 5, 4, 4]
    return torch.tensor([[*source, 3], [*target, 3]])


def cloud(n, dim, curvature, dtype, scale=1.0):
    return lorentz.lift(torch.randn(n, dim, dtype=torch.float64) * scale, curvature).to(dtype)


def make(dim_in=4, dim_out=3, K=3, dtype=torch.float64, curvature=-1.0, **options):
    conv = HKConv(dim_in, dim_out, K, curvature=curvature, **options).to(dtype)
    with torch.no_grad():
        for name, parameter in conv.named_parameters():
            if any(part in name for part in ("bias", "gate", "mass", "edge")):  # what starts at zero
                parameter.uniform_(-0.5, 0.5)
    return conv


def literal_output(conv, x_source, x_target, edge_index, weights, curvature, relative=True, act=lambda t: t, attr=None):
    double = copy.deepcopy(conv).double()
    linear = {name: value.detach() for name, value in double.linear.named_tensors().items()}
    return literal.hkconv(
        [lorentz.lift(x[1:].double(), curvature) for x in x_source],
        [lorentz.lift(x[1:].double(), curvature) for x in x_target],
        edge_index.t().tolist(),
        weights,
        linear,
        list(double.points.detach()),
        curvature,
        act,
        relative,
        None if attr is None else list(attr.double() @ double.edge_map.detach().T),
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize("act", [None, "relu"])
def test_equals_the_papers_equations(dtype, curvature, weighted, relative, act):
    x, edge_index = cloud(7, 4, curvature, dtype), ragged_edges()
    weights = torch.rand(edge_index.size(1), dtype=dtype) if weighted else None
    if weighted:
        weights[edge_index[1] == 2] = 0  # all weights of a neighborhood vanish
    conv = make(dtype=dtype, curvature=curvature, relative=relative, act=act)
    listed = [1.0] * edge_index.size(1) if weights is None else weights.tolist()
    tau = (lambda t: t) if act is None else torch.relu
    expected = literal_output(conv, x, x, edge_index, listed, curvature, relative, tau)
    torch.testing.assert_close(
        conv(x, edge_index, weights).double(), expected, rtol=0, atol=TOLERANCE[dtype] * max(1, expected.abs().max())
    )


@pytest.mark.parametrize("K", [1, 2, 5, 9])
def test_equals_the_papers_equations_for_any_number_of_kernel_points(K):
    x, edge_index = cloud(7, 4, -1.0, torch.float64), ragged_edges()
    conv = make(K=K)
    expected = literal_output(conv, x, x, edge_index, [1.0] * edge_index.size(1), -1.0)
    torch.testing.assert_close(conv(x, edge_index), expected, rtol=0, atol=1e-11)


def test_bipartite_equals_the_papers_equations(dtype, curvature):
    x_source, x_target = cloud(6, 4, curvature, dtype), cloud(3, 4, curvature, dtype)
    edge_index = torch.tensor([[0, 1, 2, 5, 5, 3], [0, 0, 0, 2, 0, 2]])
    conv = make(dtype=dtype, curvature=curvature)
    expected = literal_output(conv, x_source, x_target, edge_index, [1.0] * 6, curvature)
    out = conv((x_source, x_target), edge_index, size=(6, 3))
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=TOLERANCE[dtype] * 10)


def test_attention_weights_are_the_softmax_of_the_papers_scores(curvature):
    x, edge_index = cloud(7, 4, curvature, torch.float64), ragged_edges()
    conv = make(curvature=curvature, attention="distance")
    parts = [{n: v.detach() for n, v in m.named_tensors().items()} for m in (conv.query, conv.key)]
    query, key = ([literal.hlinear(p, **part, k=curvature) for p in x] for part in parts)
    edges = edge_index.t().tolist()
    score = torch.stack([-(literal.dist(query[t], key[s], curvature) ** 2) / conv.out_dim**0.5 for s, t in edges])
    weight = torch.empty_like(score)
    for target in range(7):
        found = edge_index[1] == target
        weight[found] = score[found].softmax(0)
    expected = literal_output(conv, x, x, edge_index, weight.tolist(), curvature)
    torch.testing.assert_close(conv(x, edge_index), expected, rtol=0, atol=1e-11)


def test_mass_is_the_lorentz_norm_of_the_neighbors_sum(curvature):
    """With no shift and unit scale the spatial part grows by 1 + log(1 + M); M counts coinciding messages."""
    x, edge_index = cloud(7, 4, curvature, torch.float64), ragged_edges()
    conv = make(curvature=curvature, mass=True)
    with torch.no_grad():
        conv.mass.scale.fill_(1.0)
        conv.mass.shift.zero_()
    plain = literal_output(conv, x, x, edge_index, [1.0] * edge_index.size(1), curvature)
    factor = (conv(x, edge_index)[:, 1:] / plain[:, 1:]).mean(1)
    counts = torch.bincount(edge_index[1], minlength=7).double()
    assert torch.isnan(factor[[0, 6]]).all()  # the origin, whatever its factor: nodes without neighbors
    mass = torch.expm1(factor - 1)
    single = counts == 1
    torch.testing.assert_close(mass[single], counts[single])
    torch.testing.assert_close(mass[4], counts[4])  # one neighbor twice: both messages coincide
    assert mass[1] > counts[1] + 1e-6


@pytest.mark.parametrize("variant", VARIANTS)
def test_outputs_lie_on_the_manifold_and_isolated_nodes_at_the_origin(variant, dtype, curvature):
    conv = make(dtype=dtype, curvature=curvature, **VARIANTS[variant])
    x, edge_index = cloud(7, 4, curvature, dtype, scale=2), ragged_edges()
    out = conv(x, edge_index)
    assert_on_manifold(out, curvature)
    assert torch.equal(out[[0, 6]], lorentz.origin(3, curvature, dtype=dtype).expand(2, -1))


@pytest.mark.parametrize("variant", VARIANTS)
def test_permutation_equivariance(variant, dtype):
    conv = make(dtype=dtype, **VARIANTS[variant])
    assert_permutation_equivariant(conv, cloud(7, 4, -1.0, dtype), ragged_edges())


@pytest.mark.parametrize("variant", ["paper", "act", "random", "trainable", "mass"])
def test_local_translation_theorem(variant, dtype, curvature):
    conv = make(dtype=dtype, curvature=curvature, **VARIANTS[variant])
    assert_translation_invariant(conv, cloud(7, 4, curvature, dtype), ragged_edges(), curvature)


def test_a_layer_that_sees_positions_is_not_translation_invariant():
    conv = make(relative=False)
    with pytest.raises(AssertionError, match="moving a neighbourhood"):
        assert_translation_invariant(conv, cloud(7, 4, -1.0, torch.float64), ragged_edges())


@pytest.mark.parametrize(("radius", "tolerance"), [(1.0, 2e-5), (4.0, 2e-5), (8.0, 1e-3)])
def test_float32_agrees_with_float64_far_from_the_origin(radius, tolerance):
    direction = torch.nn.functional.normalize(torch.randn(1, 4, dtype=torch.float64))
    center = lorentz.exp0(torch.nn.functional.pad(radius * direction, (1, 0)))
    spread = lorentz.lift(0.5 * torch.randn(7, 4, dtype=torch.float64))
    x = lorentz.lift(lorentz.oplus(spread, center)[:, 1:].float())
    conv = make(dtype=torch.float32)
    exact = copy.deepcopy(conv).double()(lorentz.lift(x[:, 1:].double()), ragged_edges())
    torch.testing.assert_close(conv(x, ragged_edges()).double(), exact, rtol=0, atol=tolerance)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradcheck(variant, curvature):
    conv = make(dim_in=2, dim_out=2, K=2, curvature=curvature, **VARIANTS[variant])
    space = torch.randn(7, 2, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(13, dtype=torch.float64, requires_grad=True)
    # A self loop sits exactly at the tip of d's cone, where there is no derivative to check.
    edge_index = ragged_edges()
    edge_index[:, -1] = torch.tensor([5, 3])

    def run(space, weight, *parameters):
        return conv(lorentz.lift(space, curvature), edge_index, weight)

    assert torch.autograd.gradcheck(run, (space, weight, *conv.parameters()))


def test_second_derivatives_are_right_with_a_self_loop_too(curvature):
    conv = make(dim_in=2, dim_out=2, K=2, curvature=curvature)
    space = torch.randn(4, 2, dtype=torch.float64, requires_grad=True)
    edge_index = torch.tensor([[0, 1, 2, 3, 1], [1, 1, 0, 0, 2]])
    assert torch.autograd.gradgradcheck(lambda s: conv(lorentz.lift(s, curvature), edge_index), (space,))


def test_gradient_reaches_a_learned_curvature():
    curvature = torch.nn.Parameter(torch.tensor(-0.8, dtype=torch.float64))
    conv = make(curvature=curvature)
    space = torch.randn(7, 4, dtype=torch.float64)
    edge_index = ragged_edges()
    assert any(p is curvature for p in conv.parameters())
    assert torch.autograd.gradcheck(lambda k: conv(lorentz.lift(space, k), edge_index), (curvature,))
    with torch.no_grad():
        curvature.fill_(-2.0)
    assert_on_manifold(conv(lorentz.lift(space, -2.0), edge_index), -2.0)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("case", ["coincident", "origin", "kernel point", "radius 20", "radius 38"])
def test_gradients_are_finite_in_hard_places(variant, case, dtype):
    conv = make(dtype=dtype, **VARIANTS[variant])
    space = torch.randn(7, 4, dtype=dtype)
    if case == "coincident":
        space = space[:1].repeat(7, 1)
    elif case == "origin":
        space = torch.zeros(7, 4, dtype=dtype)
    elif case == "kernel point":
        space[2:] = 0
        space[1] = conv.points[0, 1:].detach()
    else:
        radius = float(case.split()[1])
        space = torch.nn.functional.normalize(space) * torch.sinh(torch.tensor(radius, dtype=dtype))
    space.requires_grad_()
    conv(lorentz.lift(space), ragged_edges()).square().sum().backward()
    for name, gradient in [("x", space.grad), *((n, p.grad) for n, p in conv.named_parameters())]:
        assert gradient is not None, name
        assert torch.isfinite(gradient).all(), name


def test_pyg_module_habits(dtype):
    conv = make(dtype=dtype)
    x, edge_index = cloud(7, 4, -1.0, dtype), ragged_edges()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch says that sparse CSR is in beta
        assert_module(conv, x, edge_index, expected_size=(7, 4), atol=1e-5)
        both = (x, x[:4].clone())
        bipartite = edge_index[:, edge_index[1] < 4]
        assert_module(conv, both, bipartite, expected_size=(4, 4), atol=1e-5)
        assert_module(conv, both, bipartite, expected_size=(4, 4), atol=1e-5, size=(7, 4))


def test_every_kind_of_neighborhood_gives_the_same():
    conv, x, edge_index = make(), cloud(7, 4, -1.0, torch.float64), ragged_edges()
    weight = torch.rand(edge_index.size(1), dtype=torch.float64)
    expected = conv(x, edge_index, weight)
    assert torch.equal(conv(x, edge_index.int(), weight), expected)
    assert torch.equal(conv(x, EdgeIndex(edge_index, sparse_size=(7, 7)), weight), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        coo = torch.sparse_coo_tensor(edge_index.flip(0), weight, (7, 7)).coalesce()
        csr = to_torch_csr_tensor(edge_index.flip(0), weight, size=(7, 7))
        for matrix in (coo, csr, coo.to_sparse_csc()):
            torch.testing.assert_close(conv(x, matrix), expected)


def test_deepcopy_pickle_and_state_dict():
    x, edge_index = cloud(7, 4, -1.0, torch.float64), ragged_edges()
    for options in VARIANTS.values():
        conv = make(**options)
        expected = conv(x, edge_index)
        assert torch.equal(copy.deepcopy(conv)(x, edge_index), expected)
        assert torch.equal(pickle.loads(pickle.dumps(conv))(x, edge_index), expected)
        other = make(**options)
        other.load_state_dict(conv.state_dict())
        assert torch.equal(other(x, edge_index), expected)


def test_repr():
    assert str(HKConv(4, 8, 3)) == "HKConv(4, 8, kernel_size=3)"


def test_reset_parameters_draws_anew_and_returns_trainable_points():
    conv = make(points="trainable", attention="distance", mass=True)
    before = copy.deepcopy(conv.state_dict())
    with torch.no_grad():
        conv.points.copy_(cloud(3, 4, -1.0, torch.float64))
        conv.mass.shift.fill_(3.0)
    conv.reset_parameters()
    assert torch.equal(conv.mass.shift, torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(conv.points.data, hkconv.kernel_points(3, 4))
    assert all(
        not torch.equal(before[f"{m}.weight"], conv.state_dict()[f"{m}.weight"]) for m in ("linear", "query", "key")
    )


@pytest.fixture
def fresh_compiler():
    """All layers share one forward, of which torch keeps only so many compiled variants."""
    torch.compiler.reset()


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize(
    "variant", ["paper", "everything", *nightly(*(name for name in VARIANTS if name not in ("paper", "everything")))]
)
def test_compiles_without_a_graph_break(variant):
    conv = make(dtype=torch.float32, **VARIANTS[variant])
    x, edge_index = cloud(7, 4, -1.0, torch.float32), ragged_edges()
    compiled = torch.compile(conv, fullgraph=True, backend="aot_eager")
    space = x[:, 1:].clone().requires_grad_()
    out = compiled(lorentz.lift(space), edge_index)
    torch.testing.assert_close(out, conv(x, edge_index))
    out.sum().backward()
    assert torch.isfinite(space.grad).all()


@pytest.mark.parametrize("backend", [*nightly("reference"), "fused"], indirect=True)
@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.skipif(shutil.which("c++") is None, reason="torch.compile's default backend needs a C++ compiler")
def test_compiles_with_the_default_backend():
    conv = make(dtype=torch.float32)
    x, edge_index = cloud(7, 4, -1.0, torch.float32), ragged_edges()
    compiled = torch.compile(conv, fullgraph=True)
    torch.testing.assert_close(compiled(x, edge_index), conv(x, edge_index), rtol=1e-5, atol=1e-5)


def test_autocast_leaves_the_geometry_in_float32():
    conv = make(dtype=torch.float32, attention="distance")
    x, edge_index = cloud(7, 4, -1.0, torch.float32), ragged_edges()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = conv(x, edge_index)
    assert torch.equal(out, conv(x, edge_index))
    half = x.bfloat16()
    torch.testing.assert_close(conv(half, edge_index), conv(half.float(), edge_index))


def test_dropout_acts_once_a_node_on_spatial_coordinates_only():
    conv = make(dropout=0.5)
    x = cloud(4, 4, -1.0, torch.float64)
    torch.manual_seed(3)
    dropped, target = drop_ends((x,), None, 0.5, -1.0)
    assert target is dropped
    assert_on_manifold(dropped)
    ratio = dropped[:, 1:] / x[:, 1:]
    assert {round(r, 9) for r in ratio.flatten().tolist()} == {0.0, 2.0}
    # Node 0 sees a copy of itself: after one common draw the relative feature is still the origin.
    loop = torch.tensor([[0], [0]])
    torch.manual_seed(5)
    noisy = conv(x[:1], loop)
    torch.testing.assert_close(noisy, conv.eval()(x[:1], loop), rtol=0, atol=1e-12)
    edges = ragged_edges()
    assert torch.equal(conv(cloud(7, 4, -1.0, torch.float64)[:7], edges).isfinite().all(), torch.tensor(True))


def test_trainable_points_stay_finite_and_on_the_manifold_while_training():
    """HKN-train prints NaN in the paper's table; here its points walk the manifold with a large step."""
    conv = HKConv(3, 3, 5, points="trainable")
    head = HDistance(3, 2)
    x = cloud(30, 3, -1.0, torch.float32)
    edge_index = torch.randint(30, (2, 120))
    y = (x[:, 1] > 0).long()
    start = conv.points.detach().clone()
    optimizer = hkconv.RiemannianAdam([*conv.parameters(), *head.parameters()], lr=0.1)
    for _ in range(200):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(-head(conv(x, edge_index)), y)
        assert torch.isfinite(loss)
        loss.backward()
        optimizer.step()
    assert isinstance(conv.points, geoopt.ManifoldParameter)
    assert_on_manifold(conv.points.detach())
    assert (conv.points - start).abs().max() > 0.05


def test_given_points_are_used_and_checked():
    points = cloud(3, 4, -1.0, torch.float64)
    conv = HKConv(4, 3, 3, points=points).double()
    torch.testing.assert_close(conv.points, points, rtol=0, atol=1e-6)
    with pytest.raises(InputError, match=r"points must have shape \(3, 5\), got \(2, 5\)"):
        HKConv(4, 3, 3, points=points[:2])
    with pytest.raises(InputError, match=r"points is off the manifold.*first in row 1"):
        HKConv(4, 3, 3, points=points + torch.tensor([[0.0], [1.0], [0.0]]))


def test_random_points_follow_the_global_seed_and_differ_between_layers():
    torch.manual_seed(1)
    first, second = HKConv(4, 3, 3, points="random"), HKConv(4, 3, 3, points="random")
    torch.manual_seed(1)
    assert torch.equal(HKConv(4, 3, 3, points="random").points, first.points)
    assert not torch.equal(first.points, second.points)


def test_double_keeps_points_on_the_manifold_to_rounding():
    conv = HKConv(4, 3, 6).double()
    assert_on_manifold(conv.points, tolerance=1e-15)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel_size": 0}, "kernel_size must be at least 1, got 0"),
        ({"in_dim": 0}, "in_dim must be at least 1, got 0"),
        ({"curvature": 1.0}, "curvature must be negative and finite, got 1.0"),
        ({"curvature": 0.0}, "curvature must be negative and finite, got 0.0"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"attention": "dot"}, "attention must be None or 'distance', got 'dot'"),
        ({"points": "grid"}, "points must be 'optimal', 'random', 'trainable' or a tensor, got 'grid'"),
        ({"backend": "tpu"}, "backend must be one of auto, reference"),
        ({"edge_dim": 0}, "edge_dim must be at least 1, or None, got 0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(InputError, match=message):
        HKConv(**{"in_dim": 4, "out_dim": 3, "kernel_size": 3, **options})


@pytest.mark.parametrize(
    ("edge_index", "message"),
    [
        (torch.tensor([[0, 7], [1, 1]]), r"edge_index\[0\] \(sources\) must lie in \[0, 7\), got values from 0 to 7"),
        (torch.tensor([[0, 1], [-1, 1]]), r"edge_index\[1\] \(targets\) must lie in \[0, 7\), got values from -1"),
        (torch.zeros(3, 2, dtype=torch.long), r"edge_index must have shape \(2, edges\), got \(3, 2\)"),
        (torch.zeros(2, 2), "edge_index must hold integers, got torch.float32"),
    ],
)
def test_bad_edges(edge_index, message):
    with pytest.raises(InputError, match=message):
        make()(cloud(7, 4, -1.0, torch.float64), edge_index)


@pytest.mark.parametrize("layer", [HKConv(4, 3, 2), HKBlock(4, 3, 2)], ids=["conv", "block"])
def test_points_that_are_no_rows_of_a_tensor_are_blamed_on_x(layer):
    x, edge_index = cloud(6, 4, -1.0, torch.float32), torch.tensor([[0, 1], [1, 2]])
    with pytest.raises(InputError, match=r"^x must have shape \(nodes, 5\), a point a row, got \(2, 3, 5\)$"):
        layer(x.reshape(2, 3, 5), edge_index)
    with pytest.raises(InputError, match=r"^x is a NumPy array; pass torch.from_numpy\(x\)$"):
        layer(x.numpy(), edge_index)
    with pytest.raises(InputError, match=r"^x\[0\] is a NumPy array; pass torch.from_numpy\(x\[0\]\)$"):
        layer((x.numpy(), x), edge_index)


def test_bad_points_weights_and_sizes():
    conv, x, edge_index = make(), cloud(7, 4, -1.0, torch.float64), ragged_edges()
    with pytest.raises(InputError, match=r"x must have 5 coordinates for points of dimension 4.*got 4"):
        conv(x[:, 1:], edge_index)
    with pytest.raises(InputError, match=r"x\[1\] must have 5 coordinates"):
        conv((x, x[:, 1:]), edge_index)
    with pytest.raises(InputError, match=r"edge_weight must have shape \(13,\), got \(4,\)"):
        conv(x, edge_index, torch.ones(4))
    with pytest.raises(InputError, match="edge_weight must be non-negative"):
        conv(x, edge_index, -torch.ones(13))
    with pytest.raises(InputError, match=r"size must be \(7, at most 7\) for 7 points, got \(7, 8\)"):
        conv(x, edge_index, size=(7, 8))
    with pytest.raises(InputError, match="x must be \\(x_source, x_target\\)"):
        conv((x, None), edge_index)
    off = x.clone()
    off[2, 0] += 1
    conv(off, edge_index)
    with hkconv.debug(), pytest.raises(InputError, match=r"x is off the manifold.*first in row 2"):
        conv(off, edge_index)


def test_no_edges_at_all():
    out = make()(cloud(3, 4, -1.0, torch.float64), torch.empty(2, 0, dtype=torch.long))
    assert torch.equal(out, lorentz.origin(3, dtype=torch.float64).expand(3, -1))


def test_trains_inside_pyg_sequential_and_dataloader():
    """A plain PyG script: graphs of two kinds (stars and paths) of mixed sizes are told apart."""

    def graph(star, n):
        ends = torch.arange(1, n)
        starts = torch.zeros(n - 1, dtype=torch.long) if star else ends - 1
        both = torch.stack([torch.cat([starts, ends]), torch.cat([ends, starts])])
        return Data(x=torch.randn(n, 3), edge_index=both, y=torch.tensor([int(star)]))

    graphs = [graph(bool(i % 2), 4 + i % 7) for i in range(60)]
    model = Sequential(
        "x, edge_index, batch",
        [
            (HEmbedding(3, 8), "x -> x"),
            (HKConv(8, 8, 4, mass=True), "x, edge_index -> x"),
            (HKConv(8, 8, 4), "x, edge_index -> x"),
            (global_centroid_pool, "x, batch -> x"),
            (HDistance(8, 2), "x -> x"),
        ],
    )
    optimizer = hkconv.RiemannianAdam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(40):
        for batch in DataLoader(graphs, batch_size=20, shuffle=True):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(-model(batch.x, batch.edge_index, batch.batch), batch.y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert sum(losses[-6:]) / 6 < 0.5 * sum(losses[:6]) / 6


def test_a_random_activation_draws_the_same_when_a_piece_is_computed_again(monkeypatch):
    monkeypatch.setattr(reference, "NUMBERS_AT_ONCE", 600)
    draws = []

    def act(x):
        draws.append(torch.rand(()))
        return x * draws[-1]

    conv = HKConv(3, 4, 2, act=act)
    x = lorentz.lift(torch.randn(20, 3)).requires_grad_()
    out = conv(x, torch.randint(20, (2, 300)))
    before = len(draws)
    out.sum().backward()
    assert before > 1 and sorted(draws[:before]) == sorted(draws[before:])


def test_pieces_of_edges_change_nothing(monkeypatch, dtype):
    conv = HKConv(3, 4, 2, act="tanh").to(dtype)
    x, edge_index = lorentz.lift(torch.randn(20, 3, dtype=dtype)), torch.randint(20, (2, 300))
    found, largest = [], []
    for numbers in (10**6, 600):
        monkeypatch.setattr(reference, "NUMBERS_AT_ONCE", numbers)
        point, sizes = x.clone().requires_grad_(), [0]
        with torch.autograd.graph.saved_tensors_hooks(lambda t, sizes=sizes: sizes.append(t.numel()) or t, lambda t: t):
            out = conv(point, edge_index)
        found.append([out, *torch.autograd.grad(out.square().sum(), [point, *conv.parameters()])])
        largest.append(max(sizes))
    assert largest[1] < 300 * 2 * 4 <= largest[0]
    for whole, parts in zip(*found):
        torch.testing.assert_close(parts, whole, rtol=1e-4 if dtype == torch.float32 else 1e-11, atol=1e-7)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_first_points_are_the_targets_where_size_says_so(variant, dtype):
    conv, start = make(dtype=dtype, **VARIANTS[variant]), torch.randn(7, 4, dtype=dtype)
    edge_index = ragged_edges()
    edge_index, weight = edge_index[:, edge_index[1] < 4], torch.rand(9, dtype=dtype)
    space, sources, targets = (s.clone().requires_grad_() for s in (start, start, start[:4]))
    out = conv(lorentz.lift(space), edge_index, weight, size=(7, 4))
    expected = conv((lorentz.lift(sources), lorentz.lift(targets)), edge_index, weight)
    assert out.shape == (4, 4)
    close = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-11}
    torch.testing.assert_close(out, expected, **close)
    pull = torch.randn(4, 4, dtype=dtype)
    for result in (out, expected):
        (result * pull).sum().backward()
    assert targets.grad.abs().max() > 1e-3
    torch.testing.assert_close(space.grad, sources.grad + torch.nn.functional.pad(targets.grad, (0, 0, 0, 3)), **close)


def test_targets_by_size_are_dropped_as_the_sources_they_are():
    conv, x, edge_index = make(dropout=0.5), cloud(7, 4, -1.0, torch.float64), ragged_edges()
    edge_index = edge_index[:, edge_index[1] < 4]
    torch.manual_seed(3)
    dropped = lorentz.lift(torch.nn.functional.dropout(x[:, 1:], 0.5))
    torch.manual_seed(3)
    out = conv(x, edge_index, size=(7, 4))
    expected = conv.eval()((dropped, dropped[:4]), edge_index)
    torch.testing.assert_close(out, expected)
    assert not torch.allclose(conv(x, edge_index, size=(7, 4)), expected)


def test_sizes_of_all_none_and_too_many_targets():
    conv, x, edge_index = make(), cloud(7, 4, -1.0, torch.float64), ragged_edges()
    assert torch.equal(conv(x, edge_index, size=(7, 7)), conv(x, edge_index))
    assert conv(x, edge_index[:, :0], size=(7, 0)).shape == (0, 4)
    with pytest.raises(InputError, match=r"edge_index\[1\] \(targets\) must lie in \[0, 4\), got values from 1 to 5"):
        conv(x, edge_index, size=(7, 4))
    with pytest.raises(InputError, match=r"size must be \(7, at most 7\) for 7 points, got \(6, 4\)"):
        conv(x, edge_index, size=(6, 4))
    with pytest.raises(InputError, match=r"size must be \(7, at most 7\) for 7 points, got \(7, -1\)"):
        conv(x, edge_index, size=(7, -1))
    with pytest.raises(InputError, match=r"size must equal the number of points \(7, 4\), got \(7, 3\)"):
        conv((x, x[:4]), edge_index, size=(7, 3))


def test_targets_may_be_as_many_as_coordinates(generator):
    """Three of seven points, of three coordinates each: the first three are the targets, and no others."""
    conv = HKConv(2, 2, 3)
    x = lorentz.lift(torch.randn(7, 2, generator=generator))
    edge_index = torch.stack(
        [torch.randint(7, (12,), generator=generator), torch.randint(3, (12,), generator=generator)]
    )
    out = conv(x, edge_index, size=(7, 3))
    torch.testing.assert_close(out, conv((x, x[:3]), edge_index))


def with_attributes(dtype=torch.float64, **options):
    """A layer, points, edges and their attributes."""
    edge_index, curvature = ragged_edges(), options.get("curvature", -1.0)
    attr = torch.randn(edge_index.size(1), 2, dtype=dtype)
    return make(dtype=dtype, edge_dim=2, **options), cloud(7, 4, curvature, dtype), edge_index, attr


@pytest.mark.parametrize("relative", [True, False])
@pytest.mark.parametrize("act", [None, "relu"])
def test_attributes_move_the_relative_features(dtype, curvature, relative, act):
    conv, x, edge_index, attr = with_attributes(dtype, curvature=curvature, relative=relative, act=act)
    weight = torch.rand(edge_index.size(1), dtype=dtype)
    tau = (lambda t: t) if act is None else torch.relu
    expected = literal_output(conv, x, x, edge_index, weight.tolist(), curvature, relative, tau, attr)
    torch.testing.assert_close(
        conv(x, edge_index, weight, edge_attr=attr).double(),
        expected,
        rtol=0,
        atol=TOLERANCE[dtype] * max(1, expected.abs().max()),
    )


def test_attributes_of_a_bipartite_graph(dtype, curvature):
    conv, x, edge_index, attr = with_attributes(dtype, curvature=curvature)
    edge_index, attr = edge_index[:, edge_index[1] < 4], attr[edge_index[1] < 4]
    expected = literal_output(conv, x, x[:4], edge_index, [1.0] * edge_index.size(1), curvature, attr=attr)
    out = conv((x, x[:4].clone()), edge_index, edge_attr=attr)
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=TOLERANCE[dtype] * 10)
    torch.testing.assert_close(conv(x, edge_index, size=(7, 4), edge_attr=attr), out)


def test_attributes_follow_the_edges_as_they_were_given():
    conv, x, edge_index, attr = with_attributes()
    weight = torch.rand(edge_index.size(1), dtype=torch.float64)
    expected = conv(x, edge_index, weight, edge_attr=attr)
    for given in (hkconv.neighbors(edge_index, 7), EdgeIndex(edge_index, sparse_size=(7, 7))):
        torch.testing.assert_close(conv(x, given, weight, edge_attr=attr), expected)
    single = edge_index[:, :-2]  # a sparse matrix holds no edge twice
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        matrix = torch.sparse_coo_tensor(single.flip(0), weight[:-2], (7, 7)).coalesce()
        by_column = matrix.to_sparse_csc()
    expected, by_row = conv(x, single, weight[:-2], edge_attr=attr[:-2]), (single[1] * 7 + single[0]).argsort()
    torch.testing.assert_close(conv(x, matrix, edge_attr=attr[by_row]), expected)
    order = (single[0] * 7 + single[1]).argsort()
    torch.testing.assert_close(conv(x, by_column, edge_attr=attr[order]), expected)


def test_attention_weighs_the_nodes_whatever_the_attributes(curvature):
    conv, x, edge_index, attr = with_attributes(curvature=curvature, attention="distance")
    weight = conv._attend(conv.query(x), conv.key(x), hkconv.ops.neighbors.read_edges(edge_index, None, (7, 7)))
    expected = literal_output(conv, x, x, edge_index, weight.tolist(), curvature, attr=attr)
    torch.testing.assert_close(conv(x, edge_index, edge_attr=attr), expected, rtol=0, atol=1e-11)


@pytest.mark.parametrize("variant", VARIANTS)
def test_starts_as_the_layer_without_attributes_and_learns_them(variant, dtype, curvature):
    conv, x, edge_index, attr = with_attributes(dtype, curvature=curvature, **VARIANTS[variant])
    torch.nn.init.zeros_(conv.edge_map)
    plain = make(dtype=dtype, curvature=curvature, **VARIANTS[variant])
    plain.load_state_dict({name: value for name, value in conv.state_dict().items() if name != "edge_map"})
    out = conv(x, edge_index, edge_attr=attr)
    torch.testing.assert_close(out, plain(x, edge_index), rtol=0, atol=10 * TOLERANCE[dtype])
    out[:, 1:].sum().backward()
    assert (conv.edge_map.grad != 0).any()
    assert not HKConv(4, 3, 3, edge_dim=2).edge_map.any()


@pytest.mark.parametrize("variant", ["paper", "act", "mass"])
def test_local_translation_theorem_with_attributes(variant, dtype, curvature):
    conv, x, edge_index, attr = with_attributes(dtype, curvature=curvature, **VARIANTS[variant])
    assert_translation_invariant(lambda *given: conv(*given, edge_attr=attr), x, edge_index, curvature)


@pytest.mark.parametrize("variant", VARIANTS)
def test_permutation_equivariance_with_attributes(variant, dtype):
    conv, x, edge_index, attr = with_attributes(dtype, **VARIANTS[variant])
    assert_permutation_equivariant(conv, x, edge_index, edge_attr=attr)


@pytest.mark.parametrize("variant", ["paper", "direct", "everything"])
def test_gradcheck_with_attributes(variant, curvature):
    conv = make(dim_in=2, dim_out=2, K=2, curvature=curvature, edge_dim=2, **VARIANTS[variant])
    space, attr, weight = (torch.randn(size, dtype=torch.float64) for size in ((7, 2), (13, 2), (13,)))
    edge_index = ragged_edges()
    edge_index[:, -1] = torch.tensor([5, 3])  # see test_gradcheck
    inputs = [value.requires_grad_() for value in (space, attr, weight.abs())]

    def run(space, attr, weight, *parameters):
        return conv(lorentz.lift(space, curvature), edge_index, weight, edge_attr=attr)

    assert torch.autograd.gradcheck(run, (*inputs, *conv.parameters()))


@pytest.mark.parametrize("case", ["coincident", "origin", "radius 20"])
def test_gradients_with_attributes_are_finite_in_hard_places(case, dtype):
    conv, _, edge_index, attr = with_attributes(dtype)
    space = torch.randn(7, 4, dtype=dtype)
    space = {"coincident": space[:1].repeat(7, 1), "origin": 0 * space, "radius 20": space * 2e8}[case]
    space.requires_grad_()
    conv(lorentz.lift(space), edge_index, edge_attr=attr).square().sum().backward()
    for gradient in (space.grad, *(parameter.grad for parameter in conv.parameters())):
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize(("radius", "tolerance"), [(4.0, 2e-5), (8.0, 1e-3)])
def test_float32_attributes_agree_with_float64_far_from_the_origin(radius, tolerance):
    conv, spread, edge_index, attr = with_attributes(torch.float32)
    direction = torch.nn.functional.normalize(torch.randn(1, 4, dtype=torch.float64))
    center = lorentz.exp0(torch.nn.functional.pad(radius * direction, (1, 0)))
    x = lorentz.lift(lorentz.oplus(lorentz.lift(spread[:, 1:].double() / 2), center)[:, 1:].float())
    exact = copy.deepcopy(conv).double()(lorentz.lift(x[:, 1:].double()), edge_index, edge_attr=attr.double())
    torch.testing.assert_close(conv(x, edge_index, edge_attr=attr).double(), exact, rtol=0, atol=tolerance)


@pytest.mark.usefixtures("fresh_compiler")
def test_compiles_with_attributes_without_a_graph_break():
    conv, x, edge_index, attr = with_attributes(torch.float32)
    compiled = torch.compile(conv, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, edge_index, edge_attr=attr), conv(x, edge_index, edge_attr=attr))


def test_reset_parameters_and_copies_keep_to_the_attributes():
    conv, x, edge_index, attr = with_attributes()
    assert torch.equal(copy.deepcopy(conv)(x, edge_index, edge_attr=attr), conv(x, edge_index, edge_attr=attr))
    conv.reset_parameters()
    assert not conv.edge_map.any()


def test_bad_attributes():
    conv, x, edge_index, attr = with_attributes()
    for bad, found in ((None, "none"), (attr[:-1], r"\(12, 2\)"), (attr[:, :1], r"\(13, 1\)"), (attr[0], r"\(2,\)")):
        with pytest.raises(InputError, match=rf"edge_attr must have shape .* \(13, 2\), got {found}"):
            conv(x, edge_index, edge_attr=bad)
    with pytest.raises(InputError, match="edge_attr must be left out where edge_dim is None"):
        make()(x, edge_index, edge_attr=attr)
    attr[3, 1] = torch.nan
    with hkconv.debug(), pytest.raises(InputError, match="edge_attr contains NaN or Inf, first in row 3"):
        conv(x, edge_index, edge_attr=attr)


def test_attributes_of_no_edges():
    conv, x, _, attr = with_attributes()
    out = conv(x, torch.empty(2, 0, dtype=torch.long), edge_attr=attr[:0])
    assert torch.equal(out, lorentz.origin(3, dtype=torch.float64).expand(7, -1))
