"""The table of what of PyG and PyTorch works with HKConv and HKBlock: every row is tried on both when it is written.

Run: python tests/pyg_compatibility.py, which writes it into docs/howto/hkconv-in-pyg.md
"""

import copy
import pickle
import re
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import torch
import torch_geometric.nn as pyg
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.explain import AttentionExplainer, Explainer, GNNExplainer
from torch_geometric.utils import get_embeddings, get_num_hops

from hkconv.data.neighbor_sampling import link_neighbor_loader, neighbor_loader
from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.nn import HDistance, HEmbedding, HeteroHKConv, HKBlock, HKConv, global_centroid_pool, to_hetero

PAGE = Path(__file__).parents[1] / "docs" / "howto" / "hkconv-in-pyg.md"
MARK = re.compile(r"(?<=<!-- compatibility:begin -->\n).*?(?=<!-- compatibility:end -->)", re.S)
EDGES = torch.tensor([[0, 2, 4, 1, 2, 4], [1, 1, 1, 2, 3, 0]])
ONE_EACH = (["a", "b"], [("a", "to", "b"), ("b", "to", "a")])
SEVERAL = (["a"], [("a", "to", "a"), ("a", "from", "a")])

Row = Callable[[type], None]
ROWS: dict[str, tuple[str, Row]] = {}


def row(name: str, how: str = "") -> Callable[[Row], Row]:
    """Add a row: its name, and what to write, use instead or know."""

    def add(function: Row) -> Row:
        ROWS[name] = how, function
        return function

    return add


def points(rows: int = 5) -> torch.Tensor:
    return lorentz.lift(torch.randn(rows, 4))


class Network(torch.nn.Module):
    def __init__(self, layer: type):
        super().__init__()
        self.embed, self.head = HEmbedding(3, 4), HDistance(4, 2)
        self.first, self.second = layer(4, 4, 3), layer(4, 4, 3)

    def forward(self, x, edge_index):
        return self.head(self.second(self.first(self.embed(x), edge_index), edge_index))


@row("`edge_index`, `EdgeIndex`, `torch.sparse`, bipartite pairs, `size`")
def every_kind_of_edges(layer):
    made, x = layer(4, 4, 3).eval(), points()
    matrix = torch.sparse_coo_tensor(EDGES.flip(0), torch.ones(6), (5, 5)).coalesce()
    for edges in (EDGES, EDGES.int(), EdgeIndex(EDGES, sparse_size=(5, 5)), matrix, matrix.to_sparse_csr()):
        torch.testing.assert_close(made(x, edges), made(x, EDGES))
    torch.testing.assert_close(made((x, x.clone()), EDGES, size=(5, 5)), made(x, EDGES))


@row("lazy sizes", "`in_dim=-1`")
def lazy_sizes(layer):
    assert layer(-1, 4, 3)(points(), EDGES).shape == (5, 5)


@row("`in_channels`, `out_channels`", "columns of the input and the output: dimension + 1")
def channels(layer):
    assert (layer(4, 7, 3).in_channels, layer(4, 7, 3).out_channels) == (5, 8)


@row("`summary`, `get_embeddings`, `get_num_hops`", "a block is one layer")
def one_layer_each(layer):
    model, x = Network(layer).eval(), torch.randn(5, 3)
    assert get_num_hops(model) == len(get_embeddings(model, x, EDGES)) == 2
    assert pyg.summary(model, x, EDGES).count(layer.__name__) == 2


@row("`copy`, `pickle`, `state_dict`")
def copies(layer):
    made = layer(4, 4, 3).eval()
    x, other = points(), layer(4, 4, 3).eval()
    other.load_state_dict(made.state_dict())
    for twin in (copy.deepcopy(made), pickle.loads(pickle.dumps(made)), other):
        assert torch.equal(twin(x, EDGES), made(x, EDGES))


@row("`Explainer` with `GNNExplainer`, edge masks", "what a mask takes from an edge goes to the origin")
def edge_masks(layer):
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    masks = {"node_mask_type": "attributes", "edge_mask_type": "object"}
    explainer = Explainer(Network(layer).eval(), GNNExplainer(epochs=3), "model", **masks, model_config=config)
    assert explainer(torch.randn(5, 3), EDGES, index=1).edge_mask.sum() > 0


@row("`AttentionExplainer`, hooks of messages, `propagate`", "there are no single messages")
def hooks(layer):
    config = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}
    explainer = Explainer(
        Network(layer).eval(), AttentionExplainer(), "model", edge_mask_type="object", model_config=config
    )
    explainer(torch.randn(5, 3), EDGES)


@row("`torch_geometric.nn.to_hetero`, one relation into each kind of node")
def to_hetero_of_pyg(layer):
    x = {"a": torch.randn(5, 3), "b": torch.randn(5, 3)}
    assert pyg.to_hetero(Network(layer), ONE_EACH)(x, dict.fromkeys(ONE_EACH[1], EDGES)).keys() == {"a", "b"}


@row(
    "`torch_geometric.nn.to_hetero`, several relations",
    "by the next layer, as sums are no points: `hkconv.nn.to_hetero`",
)
def sums_of_relations(layer):
    pyg.to_hetero(Network(layer), SEVERAL)({"a": torch.randn(5, 3)}, dict.fromkeys(SEVERAL[1], EDGES))


@row("`hkconv.nn.to_hetero`", "relations meet in a centroid")
def centroids_of_relations(layer):
    found = to_hetero(Network(layer), SEVERAL)({"a": torch.randn(5, 3)}, dict.fromkeys(SEVERAL[1], EDGES))
    assert found["a"].shape == (5, 2)


@row("`to_hetero_with_bases`", "`hkconv.nn.to_hetero`")
def bases(layer):
    pyg.to_hetero_with_bases(Network(layer), SEVERAL, num_bases=2)


@row('`HeteroConv(aggr="sum")`, `"mean"`, `"min"`, `"max"`', "by the next layer: `hkconv.nn.HeteroHKConv`")
def hetero_conv(layer):
    summed = pyg.HeteroConv({relation: layer(4, 4, 3) for relation in SEVERAL[1]})
    layer(4, 4, 3)(summed({"a": points()}, dict.fromkeys(SEVERAL[1], EDGES))["a"], EDGES)


@row("`hkconv.nn.HeteroHKConv`", "relations meet in a centroid")
def hetero_hk_conv(layer):
    made = HeteroHKConv({relation: layer(4, 4, 3) for relation in SEVERAL[1]})
    layer(4, 4, 3)(made({"a": points()}, dict.fromkeys(SEVERAL[1], EDGES))["a"], EDGES)


@row("`global_mean_pool`, `global_add_pool`", "by the next layer: `hkconv.nn.global_centroid_pool`")
def mean_pool(layer):
    x, batch = layer(4, 4, 3)(points(), EDGES), torch.tensor([0, 0, 0, 1, 1])
    HDistance(4, 2)(global_centroid_pool(x, batch))
    HDistance(4, 2)(pyg.global_mean_pool(x, batch))


@row("`NeighborLoader`, `LinkNeighborLoader`", "or `neighbor_loader`, `link_neighbor_loader` without `pyg-lib`")
def loaders(layer):
    made, graph = layer(4, 4, 3), Data(x=points(), edge_index=EDGES)
    for batch in neighbor_loader(graph, (2,), torch.arange(5), batch_size=2):
        made(batch.x, batch.edge_index)
    for batch in link_neighbor_loader(graph, (2,), EDGES, batch_size=2):
        made(batch.x, batch.edge_index)


@row("GraphGym", "`import hkconv.nn.graphgym`, then `layer_type: hkconv` or `hkblock`")
def graphgym(layer):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        import_module("hkconv.nn.graphgym")
        from torch_geometric.graphgym.models.layer import LayerConfig
        from torch_geometric.graphgym.register import layer_dict
    made = layer_dict[layer.__name__.lower()](LayerConfig(dim_in=3, dim_out=5))
    assert made(Data(x=torch.randn(5, 3), edge_index=EDGES)).x.shape == (5, 5)


@row("`torch.optim.Adam` for centres and trainable kernel points", "`hkconv.RiemannianAdam`, `RiemannianSGD`")
def euclidean_optimizer(layer):
    made = layer(4, 4, 3, points="trainable")
    made(points(), EDGES).sum().backward()
    torch.optim.Adam(made.parameters()).step()


@row("`torch.autocast`", "the geometry stays in float32")
def autocast(layer):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(4, 4, 3)(points(), EDGES).dtype == torch.float32


@row("`torch.compile(fullgraph=True)`", "no graph break")
def compiled(layer):
    made, x = layer(4, 4, 3).eval(), points()
    torch.compiler.reset()
    torch.testing.assert_close(torch.compile(made, fullgraph=True, backend="eager")(x, EDGES), made(x, EDGES))


@row("`torch.export`", 'with `backend="reference"`')
def exported(layer):
    made, x = layer(4, 4, 3, backend="reference").eval(), points()
    torch.testing.assert_close(torch.export.export(made, (x, EDGES)).module()(x, EDGES), made(x, EDGES))


@row("`torch.jit.script`, `jittable`", "deprecated by PyTorch: `torch.compile` or `torch.export`")
def scripted(layer):
    try:
        torch.jit.script(layer(4, 4, 3))
    except Exception as error:
        raise NotImplementedError from error


def outcome(function: Row, layer: type) -> str:
    """Return how a row ended: yes, warns, refused or no."""
    torch.manual_seed(0)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        try:
            function(layer)
        except InputError:
            return "refused"
        except NotImplementedError:
            return "no"
    return "warns" if any("points as Euclidean vectors" in str(warning.message) for warning in found) else "yes"


def render(page: str) -> str:
    """Return the page with the table as it comes out now."""
    lines = ["| | HKConv | HKBlock | |", "|---|---|---|---|"]
    for name, (how, function) in ROWS.items():
        lines.append(f"| {name} | {outcome(function, HKConv)} | {outcome(function, HKBlock)} | {how} |")
    return MARK.sub(lambda _: "\n".join(lines) + "\n", page)


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
