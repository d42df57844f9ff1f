"""Geom-GCN (Pei et al. 2020, Geometric Graph Convolutional Networks), with Isomap as the embedding."""

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn.inits import glorot
from torch_geometric.utils import coalesce, remove_self_loops

from hkconv.models.baselines.baseline import Baseline, BaselineSizes
from hkconv.models.baselines.isomap import isomap, latent_neighbors
from hkconv.models.baselines.relations import map_by_relation, sum_over_relations, union_of
from hkconv.models.baselines.simple_graph import simple_graph
from hkconv.ops.edge_sums import neighbor_sum
from hkconv.ops.identity_cache import IdentityCache
from hkconv.ops.neighbors import Neighbors, read_edges

QUADRANTS = 4
# Four in the graph, four in the plane, and the node itself.
VIRTUAL_NODES = 2 * QUADRANTS + 1


class StructuralNeighborhood(NamedTuple):
    """Whom each node hears, by virtual node.

    Args:
        edges: all of them, in a graph of ``VIRTUAL_NODES`` copies of the nodes.
        degree: how many there are into each node, ``(N,)`` in float64.
    """

    edges: Neighbors
    degree: Tensor


_neighborhoods = IdentityCache()


def structural_neighborhood(edge_index: Tensor, num_nodes: int) -> StructuralNeighborhood:
    """The neighbours in the graph and in the plane, found when the graph is first seen."""
    return _neighborhoods.get(edge_index, num_nodes, lambda: _find(edge_index, num_nodes))


def _find(edge_index: Tensor, num_nodes: int) -> StructuralNeighborhood:
    edges = read_edges(edge_index, None, (num_nodes, num_nodes))
    places = isomap(simple_graph(edges.source, edges.target, num_nodes))
    linked = coalesce(remove_self_loops(torch.stack([edges.source, edges.target]))[0], num_nodes=num_nodes)
    # A pair is a neighbour twice, of the one and of the other.
    near = torch.from_numpy(latent_neighbors(places, (linked.size(1) + 1) // 2)).to(linked)
    near = torch.cat([near, near.flip(0)], dim=1)
    where = torch.from_numpy(places).to(linked.device)
    own = torch.arange(num_nodes, device=linked.device).expand(2, -1)
    source, target = torch.cat([linked, near, own], dim=1)
    virtual = [_quadrant(where, linked), QUADRANTS + _quadrant(where, near), torch.full_like(own[0], 2 * QUADRANTS)]
    union = union_of(source, target, torch.cat(virtual), VIRTUAL_NODES, num_nodes)
    return StructuralNeighborhood(union, target.bincount(minlength=num_nodes).double())


def _quadrant(places: Tensor, ends: Tensor) -> Tensor:
    """Quadrant of each source as seen from its target: to the left or not, and below or not, ``(E,)`` from 0 to 3."""
    before = places[ends[0]] < places[ends[1]]
    return 2 * before[:, 0].long() + before[:, 1].long()


class BilevelAggregation(torch.nn.Module):
    """The network of :class:`GeomGCN`: its layers one after the other.

    Args:
        widths: of the features, of each hidden layer and of the output.
        dropout: probability of dropping an entry of the input of each layer but the first.
    """

    def __init__(self, widths: list[int], dropout: float):
        super().__init__()
        self.dropout = dropout
        #: The matrices W of each layer, ``(VIRTUAL_NODES, m, n)``.
        self.weights = torch.nn.ParameterList(
            torch.nn.Parameter(torch.empty(VIRTUAL_NODES, m, n)) for m, n in pairwise(widths)
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot-uniform weights of each virtual node."""
        for weight in self.weights:
            glorot(weight)

    def forward(self, x: Tensor, neighbors: StructuralNeighborhood) -> Tensor:
        scale = neighbors.degree.rsqrt().to(x.dtype).unsqueeze(-1)
        for number, weight in enumerate(self.weights):
            if number > 0:
                x = F.dropout(x.relu(), self.dropout, self.training)
            summed = neighbor_sum(map_by_relation(scale * x, weight), None, neighbors.edges)
            x = scale * sum_over_relations(summed, VIRTUAL_NODES)
        return x


class GeomGCN(Baseline):
    r"""Geom-GCN (its variant I): the neighbours of a node are sorted by where they lie in a plane that the graph is
    embedded in, and summed apart.

    1. *Embedding.* The nodes get places :math:`z` in the plane by :func:`~hkconv.models.baselines.isomap.isomap`.
    2. *Structural neighbourhood.* :math:`N_g(v)` are the nodes with an edge into :math:`v`, and
       :math:`N_s(v) = \{u : |z_u - z_v| \le \rho\}` with the smallest :math:`\rho` that gives as many on average. The
       relation :math:`\tau(z_v, z_u)` is the quadrant around :math:`v` that :math:`u` lies in.
    3. *Aggregation on two levels.* Sums over each neighbourhood and quadrant are virtual nodes,

       .. math::
           e_{i,r}^{v,l+1} = \sum_{u \in N_i(v),\ \tau(z_v, z_u) = r} (\deg(v) \deg(u))^{-1/2}\, h_u^l, \qquad
           h_v^{l+1} = \operatorname{relu}\Big(W_l \big\Vert_{i \in \{g,s\}} \big\Vert_r e_{i,r}^{v,l+1}\Big),

       and the last layer takes the mean over the virtual nodes in place of concatenation and ``relu``.

    The paper embeds by Isomap, in the Poincaré ball or by struc2vec; Isomap has neither a chance nor a hyper-parameter
    of its own. Chosen here: the node itself, which lies in :math:`N_s(v)`, is one more virtual node in place of a
    member of a quadrant; loops and repeats of edges do not count; :math:`\deg` counts all structural neighbours,
    so that it is never 0; the paper prints its exponent without the minus, which would let sums grow with the degree;
    each virtual node keeps its own matrix in the last layer too, and the mean is over their images. Its divisor 9 is
    left to these matrices. The functions are the same, but under one learning rate and weight decay for all networks
    Chameleon was learned to 44 % of the validation nodes with the division and to 66 % without.

    The embedding is computed when a graph is first seen: within ten seconds for PubMed's 19,717 nodes. It is of one
    graph, so that there is no graph task.

    Arguments: as :class:`~hkconv.models.baselines.baseline.Baseline`.
    """

    tasks = ("node", "link")
    is_of_one_graph = True
    needs_host = True
    whole_graph_for = "an embedding of the graph"
    uses_edge_weight = False

    def build(self, sizes: BaselineSizes) -> torch.nn.Module:
        return BilevelAggregation(sizes.widths, sizes.dropout)

    def encode(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        return self.network(x, structural_neighborhood(edge_index, x.size(0)))
