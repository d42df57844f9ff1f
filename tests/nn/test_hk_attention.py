"""HKAttention against the paper's three equations, one pair at a time, and what masks and caches must not change."""

import literal
import pytest
import torch

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.geometry.curvature import LearnedCurvature
from hkconv.nn import AttentionCache, HKAttention
from hkconv.ops.rows import view_gates
from hkconv.testing import assert_on_manifold

DIM, HEADS, KERNELS = 6, 2, 3


# What values are seen as: the paper's differences, HyboNet's values themselves, or both and the position's own.
KINDS = {"kernel": {}, "centroid": {"aggregation": "centroid"}, "views": {"form": "views"}}
of_each = pytest.mark.parametrize("kind", KINDS)


def make(kind="kernel", dtype=torch.float64, **options):
    """A layer with nothing left at its initial zeros."""
    layer = HKAttention(DIM, HEADS, kernel_size=KERNELS, **KINDS[kind], **options).to(dtype)
    with torch.no_grad():
        for parameter in layer.parameters():
            if parameter.dim():
                parameter.add_(0.3 * torch.randn_like(parameter))
    return layer.eval()


def sequences(batch, length, dtype=torch.float64, curvature=-1.0, spread=0.7):
    return lorentz.lift(spread * torch.randn(batch, length, DIM, dtype=torch.float64), curvature).to(dtype)


def head(x, number, k):
    """The points of one head, cut out of the space of one sequence's points."""
    n = DIM // HEADS
    return [literal.lift(p[1 + number * n : 1 + (number + 1) * n], k) for p in x]


def parameters(linear, index=None):
    tensors = {name: value.detach().double() for name, value in linear.named_tensors().items()}
    return tensors if index is None else {name: value[index] for name, value in tensors.items()}


def message(layer, number, v_j, v_i, k):
    if v_i is None:
        return v_j
    z = literal.translate(v_i, literal.origin(len(v_i) - 1, k), v_j, k)
    maps = [parameters(layer.linear, number * KERNELS + i) for i in range(KERNELS)]
    transformed = [literal.hlinear(z, **m, k=k) for m in maps]
    return literal.centroid(transformed, [literal.dist(z, p, k) for p in layer.points.double()], k)


def literally(layer, query, key, seen, k=-1.0):
    """One sequence; ``seen(i, j)`` says whether query i may look at key j."""
    by = {name: parameters(getattr(layer, name)) for name in ("query", "key", "value", "out")}
    q, keys, values = (
        [literal.hlinear(p, **by[name], k=k) for p in x] for name, x in (("query", query), ("key", key), ("value", key))
    )
    rows, neighbors, own = ([[] for _ in query] for _ in range(3))
    n = DIM // HEADS
    for number in range(HEADS):
        hq, hk, hv = (head(x, number, k) for x in (q, keys, values))
        for i in range(len(query)):
            at = [j for j in range(len(key)) if seen(i, j)]
            score = torch.tensor([-(literal.dist(hq[i], hk[j], k) ** 2) / n**0.5 for j in at], dtype=torch.float64)
            v_i = hv[i] if layer.aggregation == "kernel" else None
            share, zero = list(score.softmax(0)), torch.zeros(n).double()
            found = [message(layer, number, hv[j], v_i, k) for j in at]
            rows[i].append(literal.centroid(found, share, k)[1:] if at else zero)
            if layer.form == "views":
                neighbors[i].append(literal.centroid([hv[j] for j in at], share, k)[1:] if at else zero)
                own[i].append(hv[i][1:])
    points = [literal.lift(torch.cat(row), k) for row in rows]
    if layer.form == "views":
        views = [[literal.lift(torch.cat(row), k) for row in view] for view in (rows, neighbors, own)]
        gates = layer.gate_weight.detach().double(), layer.gate_mix.detach().double()
        points = [literal.centroid(y, literal.hkblock_gates(y, *gates), k) for y in zip(*views)]
    return torch.stack([literal.hlinear(point, **by["out"], k=k) for point in points])


PADDING = torch.tensor([[False] * 5, [False, False, False, True, True], [True, False, True, False, False]])


@pytest.fixture(params=["reference", "auto"])
def backend(request):
    return request.param


@pytest.mark.parametrize("causal", [False, True], ids=["all", "causal"])
@pytest.mark.parametrize("masked", [False, True], ids=["whole", "padded"])
@of_each
@torch.no_grad()
def test_equals_the_three_equations(kind, masked, causal, curvature, backend):
    layer, x = make(kind, curvature=curvature, backend=backend), sequences(3, 5, curvature=curvature)
    out = layer(x, key_padding_mask=PADDING if masked else None, causal=causal)
    for b in range(3):

        def seen(i, j, b=b):
            return not (masked and PADDING[b, j]) and not (causal and j > i)

        expected = literally(layer, x[b], x[b], seen, curvature)
        torch.testing.assert_close(out[b], expected, rtol=1e-10, atol=1e-10)
    assert_on_manifold(out, curvature)


@torch.no_grad()
def test_cross_attention_equals_the_equations(curvature, backend):
    layer = make("centroid", curvature=curvature, backend=backend)
    query, memory = sequences(3, 4, curvature=curvature), sequences(3, 5, curvature=curvature)
    out = layer(query, memory, key_padding_mask=PADDING)
    for b in range(3):
        expected = literally(layer, query[b], memory[b], lambda i, j, b=b: not PADDING[b, j], curvature)
        torch.testing.assert_close(out[b], expected, rtol=1e-10, atol=1e-10)


@of_each
@torch.no_grad()
def test_permuting_positions_permutes_the_output(kind, backend):
    layer, x = make(kind, backend=backend), sequences(3, 5)
    order = torch.randperm(5)
    out = layer(x, key_padding_mask=PADDING)
    permuted = layer(x[:, order], key_padding_mask=PADDING[:, order])
    torch.testing.assert_close(permuted, out[:, order], rtol=1e-12, atol=1e-12)


@of_each
def test_causal_attention_leaks_no_gradient_from_the_future(kind, backend):
    layer, space = make(kind, backend=backend), sequences(2, 6)[..., 1:].requires_grad_()
    for i in range(6):
        out = layer(lorentz.lift(space), causal=True)
        (gradient,) = torch.autograd.grad(out[:, i].square().sum(), space)
        assert (gradient[:, i + 1 :] == 0).all()
        # The first position sees itself alone, and relative to itself it is the origin wherever it is.
        if i > 0 or kind != "kernel":
            assert (gradient[:, : i + 1].abs().amax(-1) > 0).all()


@of_each
def test_padding_leaks_no_gradient(kind, backend):
    layer, space = make(kind, backend=backend), sequences(3, 5)[..., 1:].requires_grad_()
    out = layer(lorentz.lift(space), key_padding_mask=PADDING)
    (gradient,) = torch.autograd.grad(out[~PADDING].square().sum(), space)
    assert (gradient[PADDING] == 0).all()
    assert (gradient[~PADDING].abs().amax(-1) > 0).all()


@pytest.mark.parametrize("steps", [[1] * 6, [2, 1, 3], [6]], ids=str)
@of_each
@torch.no_grad()
def test_incremental_decoding_equals_the_full_pass(kind, steps, dtype, backend):
    layer, x = make(kind, dtype, backend=backend), sequences(3, 6, dtype)
    cache = AttentionCache()
    parts = [layer(part, causal=True, cache=cache) for part in x.split(steps, dim=1)]
    torch.testing.assert_close(torch.cat(parts, dim=1), layer(x, causal=True))


@torch.no_grad()
def test_reordered_cache_goes_on_with_the_chosen_sequences(backend):
    layer, x = make(backend=backend), sequences(3, 6)
    index = torch.tensor([2, 0, 0, 1])
    cache = AttentionCache()
    layer(x[:, :4], causal=True, cache=cache)
    cache.reorder(index)
    out = layer(x[index, 4:], causal=True, cache=cache)
    torch.testing.assert_close(out, layer(x, causal=True)[index, 4:])


@torch.no_grad()
def test_cross_attention_projects_its_memory_once():
    layer = make("centroid")
    query, memory = sequences(3, 4), sequences(3, 5)
    cache, calls = AttentionCache(), []
    layer.value.register_forward_hook(lambda *_: calls.append(1))
    parts = [layer(part, memory, key_padding_mask=PADDING, cache=cache) for part in query.split(1, dim=1)]
    assert len(calls) == 1
    torch.testing.assert_close(torch.cat(parts, dim=1), layer(query, memory, key_padding_mask=PADDING))


@pytest.mark.parametrize("kind", ["kernel", "centroid"])
def test_a_sequence_of_padding_alone_gives_the_map_of_the_origin_and_finite_gradients(kind, dtype, backend):
    layer, space = make(kind, dtype, backend=backend), sequences(2, 3, dtype)[..., 1:].requires_grad_()
    padding = torch.tensor([[True] * 3, [False] * 3])
    out = layer(lorentz.lift(space), key_padding_mask=padding)
    expected = layer.out(lorentz.origin(DIM, dtype=dtype))
    torch.testing.assert_close(out[0], expected.expand(3, -1))
    out.sum().backward()
    assert space.grad.isfinite().all() and (space.grad[0] == 0).all()
    assert all(p.grad.isfinite().all() for p in layer.parameters())


def test_a_position_that_sees_nothing_is_left_with_the_view_of_itself(dtype, backend):
    layer, space = make("views", dtype, backend=backend), sequences(1, 3, dtype)[..., 1:].requires_grad_()
    x = lorentz.lift(space)
    out = layer(x, key_padding_mask=torch.tensor([[True] * 3]))
    origin = lorentz.origin(DIM, dtype=dtype).expand(3, -1)
    views = torch.stack([origin, origin, layer._merge(layer._split(layer.value(x)))[0]], dim=1)
    expected = layer.out(lorentz.centroid(views, view_gates(views, layer.gate_weight, layer.gate_mix)))
    torch.testing.assert_close(out[0], expected)
    (gradient,) = torch.autograd.grad(out[0, 1].square().sum(), space)
    assert (gradient[0, 1] != 0).any() and (gradient[0, [0, 2]] == 0).all()


def test_gradients_of_all_views_are_those_of_differences(backend):
    layer = make("views", backend=backend)
    space, parameters = sequences(2, 4)[..., 1:].requires_grad_(), dict(layer.named_parameters())

    def call(space, *values):
        given = dict(zip(parameters, values))
        options = {"causal": True, "key_padding_mask": PADDING[1:, 1:]}
        return torch.func.functional_call(layer, given, (lorentz.lift(space),), options)

    values = [value.detach().requires_grad_() for value in parameters.values()]
    assert torch.autograd.gradcheck(call, (space, *values), atol=1e-6, rtol=1e-4, fast_mode=True)


@torch.no_grad()
def test_fresh_views_have_equal_weights_and_closed_ones_leave_the_paper_s_attention():
    layer, paper, x = HKAttention(DIM, HEADS, form="views").double(), HKAttention(DIM, HEADS).double(), sequences(2, 5)
    layer.load_state_dict({**layer.state_dict(), **paper.state_dict()})
    fresh = layer(x, causal=True)
    found = []
    layer.out.register_forward_pre_hook(lambda _, points: found.append(points[0]))
    layer(x, causal=True)
    mixed = found.pop()
    # Gates that are open for one view alone: its weight is 1 to the last digit.
    for view in range(3):
        layer.gate_mix.zero_()[:, view] = 1e3
        layer(x, causal=True)
    expected = lorentz.centroid(torch.stack(found, dim=-2))
    torch.testing.assert_close(mixed, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(layer.out(found[0]), paper(x, causal=True), rtol=1e-12, atol=1e-12)
    assert not torch.allclose(fresh, paper(x, causal=True), atol=1e-3)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e3, 1e8])
@of_each
def test_is_finite_and_on_the_manifold_for_near_and_far_inputs(kind, scale, backend):
    layer = make(kind, torch.float32, backend=backend)
    space = (scale * torch.randn(2, 5, DIM)).requires_grad_()
    out = layer(lorentz.lift(space), causal=True)
    assert_on_manifold(out)
    out.sum().backward()
    assert space.grad.isfinite().all() and all(p.grad.isfinite().all() for p in layer.parameters())


def test_autocast_and_half_inputs_compute_in_float32(backend):
    layer, x = make(dtype=torch.float32, backend=backend), sequences(2, 5, torch.bfloat16)
    expected = layer(x.float())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = layer(x)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, expected)


def test_dropout_acts_in_training_alone():
    layer, x = make(dropout=0.5), sequences(2, 5)
    assert torch.equal(layer(x), layer(x))
    layer.train()
    assert not torch.allclose(layer(x), layer(x))
    assert_on_manifold(layer(x))


def test_learned_curvature_gets_its_gradient(backend):
    curvature = LearnedCurvature(-0.7).double()
    layer = make(curvature=curvature, backend=backend)
    space = sequences(2, 4)[..., 1:]

    def loss(log_curvature):
        with torch.no_grad():
            curvature.log_curvature.copy_(log_curvature)
        return layer(lorentz.lift(space, curvature), causal=True)[..., 1:].square().sum()

    at = curvature.log_curvature.detach().clone()
    (gradient,) = torch.autograd.grad(loss(at), curvature.log_curvature)
    with torch.no_grad():
        difference = (loss(at + 1e-5) - loss(at - 1e-5)) / 2e-5
    torch.testing.assert_close(gradient, difference, rtol=1e-6, atol=1e-9)


@torch.no_grad()
def test_fresh_heads_have_queries_and_keys_of_length_sqrt_n_and_unit_values_and_scores_that_differ():
    layer, x = HKAttention(64, 4), lorentz.lift(torch.randn(2, 50, 64))
    query, key, value = (layer._split(linear(x))[..., 1:] for linear in (layer.query, layer.key, layer.value))
    for points, length in ((query, 4.0), (key, 4.0), (value, 1.0)):
        assert abs(points.norm(dim=-1).square().mean().sqrt() - length) < 0.01
    scores = lorentz.dist(lorentz.lift(query).unsqueeze(3), lorentz.lift(key).unsqueeze(2)).square() / 4
    assert scores.std(-1).mean() > 0.3


def test_reset_repr_and_bad_input():
    layer = make()
    layer.reset_parameters()
    assert (layer.linear.bias == 0).all() and (layer.out.gate_weight == 0).all()
    assert str(layer) == "HKAttention(6, num_heads=2, kernel_size=3, aggregation='kernel')"
    x = sequences(2, 4)
    with pytest.raises(InputError, match="dim must be a multiple of num_heads, got 6 and 4"):
        HKAttention(6, 4)
    with pytest.raises(InputError, match="kernel_size must be at least 1, got 0"):
        HKAttention(4, 2, kernel_size=0)
    with pytest.raises(InputError, match="aggregation must be 'kernel' or 'centroid', got 'mean'"):
        HKAttention(6, 2, aggregation="mean")
    assert str(make("views")) == "HKAttention(6, num_heads=2, kernel_size=3, form='views', aggregation='kernel')"
    with pytest.raises(InputError, match="form must be 'paper' or 'views', got 'view'"):
        HKAttention(6, 2, form="view")
    with pytest.raises(InputError, match="form='views' needs aggregation='kernel'"):
        HKAttention(6, 2, aggregation="centroid", form="views")
    with pytest.raises(InputError, match="cross attention needs aggregation='centroid'"):
        layer(x, x)
    with pytest.raises(InputError, match="a cache needs causal=True"):
        layer(x, cache=AttentionCache())
    with pytest.raises(InputError, match=r"key_padding_mask must have shape \(2, 4\), got \(2, 3\)"):
        layer(x, key_padding_mask=torch.zeros(2, 3, dtype=torch.bool))
    with pytest.raises(InputError, match="query must have shape"):
        layer(x[0])
    cache = AttentionCache()
    layer(x, causal=True, cache=cache)
    with pytest.raises(InputError, match="cache holds 2 sequences, got 1"):
        layer(x[:1], causal=True, cache=cache)


@of_each
def test_compiles_as_one_graph_with_the_same_gradients(kind):
    layer, x = make(kind), sequences(2, 5)
    found = []
    for call in (layer, torch.compile(layer, fullgraph=True, backend="aot_eager")):
        layer.zero_grad()
        call(x, causal=True).square().sum().backward()
        found.append([parameter.grad.clone() for parameter in layer.parameters()])
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(*found))
