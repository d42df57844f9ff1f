import copy

import literal
import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric.explain.algorithm.utils import set_hetero_masks
from torch_geometric.nn import GCNConv, HeteroConv

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.geometry.curvature import LearnedCurvature
from hkconv.nn import HDistance, HEmbedding, HeteroHKConv, HKBlock, HKConv, to_hetero
from hkconv.testing import assert_on_manifold

CITES, WRITES, OF = ("paper", "cites", "paper"), ("author", "writes", "paper"), ("paper", "of", "author")
METADATA = (["paper", "author"], [CITES, WRITES, OF])
SIZES = {"paper": 6, "author": 4}
LAYERS = [HKConv, HKBlock]
of_each_layer = pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.__name__)


@pytest.fixture
def edges():
    return {
        relation: torch.stack([torch.randint(SIZES[end], (9,)) for end in (relation[0], relation[2])])
        for relation in METADATA[1]
    }


def points(curvature, dtype, dim=4):
    return {kind: lorentz.lift(torch.randn(n, dim, dtype=dtype), curvature) for kind, n in SIZES.items()}


def literal_centroids(rows, curvature):
    return torch.stack([literal.centroid(list(row), [1.0] * len(row), curvature) for row in zip(*rows)])


class Network(torch.nn.Module):
    def __init__(self, layer, curvature=-1.0, in_features=3):
        super().__init__()
        self.embed = HEmbedding(in_features, 4, curvature=curvature)
        self.first = layer(4, 4, 3, curvature=curvature)
        self.second = layer(4, 4, 3, curvature=curvature)

    def forward(self, x, edge_index):
        return self.second(self.first(self.embed(x), edge_index), edge_index)


@of_each_layer
def test_relations_meet_in_a_centroid(layer, edges, dtype, curvature):
    convs = {relation: layer(4, 3, 3, curvature=curvature).to(dtype).eval() for relation in METADATA[1]}
    x = points(curvature, dtype)
    found = HeteroHKConv(convs)(x, edges)
    cited, written, of = (
        convs[relation]((x[relation[0]], x[relation[2]]), edges[relation]).double() for relation in METADATA[1]
    )
    atol = 2e-5 if dtype == torch.float32 else 1e-11
    expected = literal_centroids([cited, written], curvature)
    torch.testing.assert_close(found["paper"].double(), expected, rtol=0, atol=atol * expected.abs().max().item())
    torch.testing.assert_close(found["author"].double(), of, rtol=0, atol=atol)
    for value in found.values():
        assert_on_manifold(value, curvature)


def test_names_and_weights_of_edges_reach_their_layer(edges):
    convs = {relation: HKConv(4, 3, 3) for relation in METADATA[1]}
    x, weight = points(-1.0, torch.float32), torch.rand(9)
    found = HeteroHKConv(convs)(x, edges, edge_weight_dict={CITES: weight, WRITES: weight, OF: weight})
    torch.testing.assert_close(found["author"], convs[OF]((x["paper"], x["author"]), edges[OF], weight))


@of_each_layer
@pytest.mark.parametrize("aggr", ["sum", "mean", "max", "min"])
def test_combined_coordinates_are_refused_by_the_next_layer(layer, edges, aggr):
    summed = HeteroConv({relation: layer(4, 4, 3) for relation in METADATA[1]}, aggr=aggr)
    x = summed(points(-1.0, torch.float32), edges)
    followers = [layer(4, 4, 3), HDistance(4, 2)]
    for follower in followers:
        with pytest.raises(InputError, match=r"sums and means .*: take their centroid, .* HeteroHKConv or to_hetero"):
            follower(x["paper"], edges[CITES]) if follower is followers[0] else follower(x["paper"])
    converted = pyg.to_hetero(Network(layer), METADATA, aggr=aggr)
    with pytest.raises(InputError, match="HeteroHKConv or to_hetero"):
        converted({kind: torch.randn(n, 3) for kind, n in SIZES.items()}, edges)


def test_sums_are_refused_by_a_copy_of_a_layer_that_has_seen_points(edges):
    network = Network(HKConv)
    network(torch.randn(6, 3), edges[CITES])
    with pytest.raises(InputError, match="sums and means"):
        pyg.to_hetero(network, METADATA)({kind: torch.randn(n, 3) for kind, n in SIZES.items()}, edges)


@of_each_layer
def test_pygs_to_hetero_gives_kinds_of_nodes_where_one_relation_leads_into_each(layer, edges):
    metadata = (METADATA[0], [WRITES, OF])
    x = {kind: torch.randn(n, 3) for kind, n in SIZES.items()}
    found = pyg.to_hetero(Network(layer).eval(), metadata)(x, {relation: edges[relation] for relation in metadata[1]})
    assert {kind: value.shape for kind, value in found.items()} == {"paper": (6, 5), "author": (4, 5)}
    for value in found.values():
        assert_on_manifold(value)


@of_each_layer
def test_to_hetero_is_the_network_by_hand(layer, edges, dtype):
    network = to_hetero(Network(layer).to(dtype).eval(), METADATA)
    x = {kind: torch.randn(n, 3, dtype=dtype) for kind, n in SIZES.items()}
    state = {kind: network.embed[kind](value) for kind, value in x.items()}
    for copies in (network.first, network.second):
        by_relation = {
            relation: copies["__".join(relation)]((state[relation[0]], state[relation[2]]), edges[relation])
            for relation in METADATA[1]
        }
        both = torch.stack([by_relation[CITES], by_relation[WRITES]])
        state = {"paper": lorentz.centroid(both, dim=0), "author": by_relation[OF]}
    found = network(x, edges)
    assert found.keys() == state.keys()
    for kind, value in state.items():
        torch.testing.assert_close(found[kind], value)


def test_to_hetero_takes_features_of_several_widths(edges):
    network = to_hetero(Network(HKBlock, in_features=-1), METADATA)
    x = {"paper": torch.randn(6, 7), "author": torch.randn(4, 2)}
    for value in network(x, edges).values():
        assert_on_manifold(value)


def test_copies_share_a_learned_curvature(edges):
    network = to_hetero(Network(HKConv, LearnedCurvature(-0.5)), METADATA)
    kinds = [part for part in network.modules() if isinstance(part, LearnedCurvature)]
    assert (
        len(kinds) == 1
        and len({id(p) for p in network.parameters() if p.dim() == 0 and p is kinds[0].log_curvature}) == 1
    )
    with torch.no_grad():
        kinds[0].log_curvature.fill_(0.3)
    for value in network({kind: torch.randn(n, 3) for kind, n in SIZES.items()}, edges).values():
        assert_on_manifold(value, -torch.tensor(0.3).exp().item())


def test_to_hetero_leaves_euclidean_layers_to_pyg(edges):
    class Two(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = GCNConv(3, 4, add_self_loops=False), GCNConv(4, 2, add_self_loops=False)

        def forward(self, x, edge_index):
            return self.second(self.first(x, edge_index), edge_index)

    metadata = (["paper"], [CITES, ("paper", "extends", "paper")])
    torch.manual_seed(1)
    theirs = pyg.to_hetero(Two(), metadata)
    ours = to_hetero(Two(), metadata)
    ours.load_state_dict(theirs.state_dict())
    given = ({"paper": torch.randn(6, 3)}, dict.fromkeys(metadata[1], edges[CITES]))
    torch.testing.assert_close(ours(*given), theirs(*given))


@of_each_layer
def test_masks_of_a_heterogeneous_explainer_reach_every_relation(layer, edges):
    network = to_hetero(Network(layer).eval(), METADATA)
    x = {kind: torch.randn(n, 3) for kind, n in SIZES.items()}
    masks = {relation: torch.zeros(9) for relation in METADATA[1]}
    without = network(x, {relation: value[:, :0] for relation, value in edges.items()})
    set_hetero_masks(network, masks, edges, apply_sigmoid=False)
    torch.testing.assert_close(network(x, edges), without)


def test_copies_go_on_alike(edges):
    layer = HeteroHKConv({relation: HKConv(4, 3, 3) for relation in METADATA[1]})
    x = points(-1.0, torch.float32)
    torch.testing.assert_close(copy.deepcopy(layer)(x, edges), layer(x, edges))


def test_other_layers_and_other_curvatures_are_refused():
    with pytest.raises(InputError, match="HeteroHKConv combines points, which GCNConv does not give"):
        HeteroHKConv({CITES: GCNConv(4, 4)})
    learned = LearnedCurvature()
    HeteroHKConv({CITES: HKConv(4, 3, 3, curvature=learned), WRITES: HKConv(4, 3, 3, curvature=learned)})
    for first, second in ((-1.0, -0.5), (learned, LearnedCurvature()), (learned, -1.0)):
        with pytest.raises(InputError, match="layers into 'paper' must have one curvature"):
            HeteroHKConv({CITES: HKConv(4, 3, 3, curvature=first), WRITES: HKConv(4, 3, 3, curvature=second)})
