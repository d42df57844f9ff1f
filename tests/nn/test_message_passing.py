import copy
import tempfile
import warnings
from pathlib import Path

import literal
import pytest
import torch
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import MessagePassing, summary, to_hetero_with_bases
from torch_geometric.utils import get_embeddings, get_num_hops

import hkconv
from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.nn import HDistance, HEmbedding, HKBlock, HKConv
from hkconv.testing import assert_on_manifold

LAYERS = [HKConv, HKBlock]
of_each_layer = pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.__name__)
# Node 0 has no neighbors, node 3 a single one, edge 5 is a loop.
EDGES = torch.tensor([[0, 2, 4, 1, 2, 4, 3], [1, 1, 1, 2, 3, 4, 4]])
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-11}


def cloud(n, dim, curvature, dtype):
    return lorentz.lift(torch.randn(n, dim, dtype=torch.float64), curvature).to(dtype)


def make(layer, dtype, **options):
    made = layer(4, 3, 3, **options).to(dtype)
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if any(part in name for part in ("bias", "gate", "mass", "edge")):  # what starts at zero
                parameter.uniform_(-0.5, 0.5)
    return made


def literal_masked(messages, weights, masks, curvature, nodes=5):
    """The centroid of what the edges bring and of the origin, one node after the other."""
    start, rows = literal.origin(3, curvature), []
    for node in range(nodes):
        mine = [(m, w * k, w * (1 - k)) for (t, m), w, k in zip(messages, weights, masks) if t == node]
        points, kept, lost = [m for m, _, _ in mine], [k for _, k, _ in mine], sum(g for _, _, g in mine)
        rows.append(literal.centroid([*points, start], [*kept, lost], curvature) if mine else start)
    return torch.stack(rows)


def literal_conv(conv, x, weights, masks, curvature):
    double = copy.deepcopy(conv).double()
    linear = {name: value.detach() for name, value in double.linear.named_tensors().items()}
    points = [lorentz.lift(p[1:].double(), curvature) for p in x]
    kernel = list(double.points.detach())
    alone = [
        (t, literal.hkconv(points, points, [(s, t)], [1.0], linear, kernel, curvature)[t])
        for s, t in EDGES.t().tolist()
    ]
    return literal_masked(alone, weights, masks, curvature)


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("weighted", [False, True])
def test_masks_leave_their_share_to_the_origin(dtype, curvature, backend, weighted):
    x, mask = cloud(5, 4, curvature, dtype), torch.randn(7, dtype=dtype)
    weight = torch.rand(7, dtype=dtype) if weighted else None
    conv = make(HKConv, dtype, curvature=curvature, backend=backend)
    set_masks(conv, mask, EDGES)
    listed = [1.0] * 7 if weight is None else weight.tolist()
    expected = literal_conv(conv, x, listed, mask.double().sigmoid().tolist(), curvature)
    atol = TOLERANCE[dtype] * max(1, expected.abs().max())
    torch.testing.assert_close(conv(x, EDGES, weight).double(), expected, rtol=0, atol=atol)
    found = hkconv.neighbors(EDGES, 5)
    torch.testing.assert_close(conv(x, found, weight).double(), expected, rtol=0, atol=atol)


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_masks_act_in_both_views_of_a_block(dtype, curvature, backend):
    x, mask, weight = cloud(5, 4, curvature, dtype), torch.rand(7, dtype=dtype), torch.rand(7, dtype=dtype)
    block = make(HKBlock, dtype, curvature=curvature, backend=backend)
    set_masks(block, mask, EDGES, apply_sigmoid=False)
    differences, neighbors, _ = block.views(x, x, EDGES, weight).unbind(1)
    expected = literal_conv(block.conv, x, weight.tolist(), mask.tolist(), curvature)
    atol = TOLERANCE[dtype] * max(1, expected.abs().max())
    torch.testing.assert_close(differences.double(), expected, rtol=0, atol=atol)
    mapped = copy.deepcopy(block).double().linear(lorentz.lift(x[:, 1:].double(), curvature), 0).detach()
    expected = literal_masked([(t, mapped[s]) for s, t in EDGES.t().tolist()], weight, mask, curvature)
    torch.testing.assert_close(neighbors.double(), expected, rtol=0, atol=atol)


@of_each_layer
@pytest.mark.parametrize("options", [{}, {"mass": True}, {"edge_dim": 2}], ids=str)
def test_masks_of_one_change_nothing_and_masks_of_zero_remove_the_neighbors(layer, options, dtype):
    made, x = make(layer, dtype, **options).eval(), cloud(5, 4, -1.0, dtype)
    attr = {"edge_attr": torch.randn(7, 2, dtype=dtype)} if "edge_dim" in options else {}
    none = {name: value[:0] for name, value in attr.items()}
    for value, expected in ((1.0, made(x, EDGES, **attr)), (0.0, made(x, EDGES[:, :0], **none))):
        set_masks(made, torch.full((7,), value, dtype=dtype), EDGES, apply_sigmoid=False)
        torch.testing.assert_close(made(x, EDGES, **attr), expected, rtol=0, atol=TOLERANCE[dtype])
        clear_masks(made)


@of_each_layer
@pytest.mark.parametrize("options", [{}, {"mass": True}, {"backend": "reference"}], ids=str)
def test_every_mask_has_its_gradient_that_of_a_single_neighbor_too(layer, options):
    smooth = {"norm": None, "act": None} if layer is HKBlock else {}
    made, x = make(layer, torch.float64, **options, **smooth), cloud(5, 4, -1.0, torch.float64)
    pull = torch.randn(5, 4, dtype=torch.float64)

    def run(mask):
        set_masks(made, mask, EDGES[:, :5])
        return made(x, EDGES[:, :5])  # without the loop, where d has no derivative

    mask = torch.randn(5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(run, (mask,))
    (run(mask) * pull).sum().backward()
    assert (mask.grad.abs() > 1e-6).all()


def test_masks_weigh_attention_too():
    conv, x = make(HKConv, torch.float64, attention="distance"), cloud(5, 4, -1.0, torch.float64)
    weight = conv._attend(conv.query(x), conv.key(x), hkconv.ops.neighbors.read_edges(EDGES, None, (5, 5)))
    mask = torch.rand(7, dtype=torch.float64)
    set_masks(conv, mask, EDGES, apply_sigmoid=False)
    expected = literal_conv(conv, x, weight.tolist(), mask.tolist(), -1.0)
    torch.testing.assert_close(conv(x, EDGES), expected, rtol=0, atol=1e-11)


def test_a_sparse_matrix_has_its_masks_by_row():
    conv, x = make(HKConv, torch.float64), cloud(5, 4, -1.0, torch.float64)
    weight, mask = torch.rand(7, dtype=torch.float64), torch.rand(7, dtype=torch.float64)
    set_masks(conv, mask, EDGES, apply_sigmoid=False)
    expected = conv(x, EDGES, weight)
    by_row = (EDGES[1] * 5 + EDGES[0]).argsort()
    set_masks(conv, mask[by_row], EDGES, apply_sigmoid=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        matrix = torch.sparse_coo_tensor(EDGES.flip(0), weight, (5, 5)).coalesce()
        torch.testing.assert_close(conv(x, matrix), expected)
        torch.testing.assert_close(conv(x, matrix.to_sparse_csr()), expected)


@of_each_layer
def test_masks_of_another_graph_and_explainers_without_masks_are_refused(layer):
    made, x = make(layer, torch.float64), cloud(5, 4, -1.0, torch.float64)
    set_masks(made, torch.zeros(6), EDGES)
    with pytest.raises(InputError, match=r"an edge mask must have shape \(7,\), got \(6,\)"):
        made(x, EDGES)
    clear_masks(made)
    made.explain = True
    with pytest.raises(InputError, match="explain is set, and there is no edge mask"):
        made(x, EDGES)


class OneLayer(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer(4, 4, 3)

    def forward(self, x, edge_index):
        return self.layer(x, edge_index)


class Network(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.embed, self.head = HEmbedding(3, 16), HDistance(16, 2)
        self.first, self.second = layer(16, 16, 3), layer(16, 16, 3)

    def forward(self, x, edge_index):
        return self.head(self.second(self.first(self.embed(x), edge_index), edge_index))


def network(layer):
    return Network(layer).eval()


@of_each_layer
def test_gnn_explainer_finds_the_edges_that_a_prediction_follows_from(layer):
    """Node 0 hears from 1, that from 2: edges among the others cannot matter."""
    chain, others = torch.tensor([[2, 1], [1, 0]]), torch.tensor([[3, 4, 5, 3], [4, 5, 3, 5]])
    edge_index, x = torch.cat([chain, others], dim=1), torch.randn(6, 3)
    model = network(layer)
    before = model(x, edge_index)
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    explainer = Explainer(
        model,
        GNNExplainer(epochs=30),
        "model",
        node_mask_type="attributes",
        edge_mask_type="object",
        model_config=config,
    )
    found = explainer(x, edge_index, index=0)
    assert (found.edge_mask[:2] > 0).all() and not found.edge_mask[2:].any()
    assert torch.equal(model(x, edge_index), before)  # nothing stays set
    removed = explainer.get_masked_prediction(x, edge_index, edge_mask=torch.tensor([0.0, 0, 1, 1, 1, 1]))
    torch.testing.assert_close(removed, model(x, others))


@of_each_layer
def test_a_layer_is_one_layer_for_pyg(layer):
    model, x = network(layer), torch.randn(5, 3)
    assert isinstance(layer(4, 4, 3), MessagePassing)
    assert get_num_hops(model) == 2
    first, second = get_embeddings(model, x, EDGES)
    assert_on_manifold(first)
    torch.testing.assert_close(model.second(first, EDGES), second)
    table = summary(model, x, EDGES)
    assert table.count(layer.__name__) == 2 and "[5, 17], [2, 7]" in table and "HLinear" not in table


@of_each_layer
def test_channels_are_columns(layer):
    made = layer(4, 7, 3)
    x = cloud(5, 4, -1.0, torch.float32)
    assert (made.in_channels, made.out_channels) == (x.size(1), made(x, EDGES).size(1)) == (5, 8)
    assert layer(-1, 7, 3).in_channels == -1


@of_each_layer
def test_what_needs_single_messages_is_refused(layer):
    made = layer(4, 4, 3)
    with pytest.raises(InputError, match="makes no single messages"):
        made.propagate(EDGES, x=None)
    for step in ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update"):
        for kind in ("forward_pre_hook", "forward_hook"):
            with pytest.raises(InputError, match="makes no single messages"):
                getattr(made, f"register_{step}_{kind}")(print)
    metadata = (["a"], [("a", "to", "a"), ("a", "from", "a")])
    with pytest.raises(InputError, match="makes no single messages"):
        to_hetero_with_bases(OneLayer(layer), metadata, num_bases=2)


@of_each_layer
def test_no_module_is_written_to_disk_for_it(layer, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    layer(4, 4, 3)(cloud(5, 4, -1.0, torch.float32), EDGES)
    assert [path for path in Path(tmp_path).rglob("*") if "propagate" in path.name] == []


@of_each_layer
def test_repr_shows_every_setting_that_is_not_the_default(layer):
    options = {"act": "tanh", "dropout": 0.5, "points": "trainable", "mass": True, "edge_dim": 2, "curvature": -0.5}
    shown = "act='tanh', dropout=0.5, points='trainable', mass=True, edge_dim=2, curvature=-0.5, backend='reference'"
    assert str(layer(4, 8, 3, **options, backend="reference")) == f"{layer.__name__}(4, 8, kernel_size=3, {shown})"
    assert str(layer(4, 8, 3)) == f"{layer.__name__}(4, 8, kernel_size=3)"
    assert str(layer(2, 8, 1, points=lorentz.lift(torch.zeros(1, 2)))).endswith("points='given')")
    own = {HKConv: {"relative": False, "attention": "distance"}, HKBlock: {"norm": None, "act": None}}[layer]
    for name, value in own.items():
        assert f", {name}={value!r}" in str(layer(4, 8, 3, **own))


def test_forward_says_what_it_takes():
    for word in ("x:", "edge_index:", "edge_weight:", "size:", "edge_attr:"):
        assert word in HKConv.forward.__doc__
