"""WRGAT (Suresh et al. 2021, Breaking the Limit of Graph Neural Networks by Improving the Assortativity of Graphs)."""

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.nn.inits import glorot
from torch_geometric.utils import softmax

from hkconv.errors import InputError
from hkconv.models.baselines.baseline import Baseline, BaselineSizes
from hkconv.models.baselines.degree_sequences import compare_degrees
from hkconv.models.baselines.relations import map_by_relation, sum_over_relations, union_of
from hkconv.models.baselines.simple_graph import simple_graph
from hkconv.ops.edge_sums import at_source, at_target, neighbor_sum, target_max, target_sum
from hkconv.ops.identity_cache import IdentityCache
from hkconv.ops.neighbors import Neighbors, read_edges

# As in graph attention networks (Veličković et al. 2018).
NEGATIVE_SLOPE = 0.2


class ComputationGraph(NamedTuple):
    """The edges that messages pass along.

    Args:
        edges: those given, then those between nodes alike in structure, in a graph with a copy of the nodes a relation.
        weight: of each edge in that order, ``(E,)`` in float64; 1 for the given ones unless they are a matrix.
        num_given: number of given edges.
    """

    edges: Neighbors
    weight: Tensor
    num_given: int

    def sorted_weight(self, edge_weight: Tensor | None, dtype: torch.dtype) -> Tensor:
        """The weights in the order of the sorted edges, with ``edge_weight`` for the given ones if there is one."""
        weight = self.weight.to(dtype)
        if edge_weight is not None:
            weight = torch.cat([edge_weight.to(dtype), weight[self.num_given :]])
        return weight.index_select(0, self.edges.order)


_graphs = IdentityCache()


def computation_graph(edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int, hops: int) -> ComputationGraph:
    """The multi-relational graph, built when the given one is first seen."""
    tag = (num_nodes, hops, None if edge_weight is None else edge_weight.shape)
    return _graphs.get(edge_index, tag, lambda: _build(edge_index, edge_weight, num_nodes, hops))


def _build(edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int, hops: int) -> ComputationGraph:
    given = read_edges(edge_index, edge_weight, (num_nodes, num_nodes))
    pairs = compare_degrees(simple_graph(given.source, given.target, num_nodes), hops)
    distance = torch.from_numpy(pairs.distance).to(given.source.device)
    pair, level = distance.isfinite().nonzero(as_tuple=True)
    first, second = (torch.from_numpy(end).to(given.source.device)[pair] for end in (pairs.first, pairs.second))
    target, relation = torch.cat([second, first]), 1 + level.repeat(2)
    alike = softmax(-distance[pair, level].repeat(2), relation * num_nodes + target)
    edges = union_of(
        torch.cat([given.source, first, second]),
        torch.cat([given.target, target]),
        torch.cat([torch.zeros_like(given.source), relation]),
        hops + 2,
        num_nodes,
    )
    num_given = given.source.numel()
    of_given = alike.new_ones(num_given) if given.weight is None else given.weight.detach().double()
    return ComputationGraph(edges, torch.cat([of_given, alike]), num_given)


class WRGATConv(torch.nn.Module):
    r"""A layer of :class:`WRGAT`: in each relation an attention over the neighbours, then the sum,

    .. math::
        x_i' = W_0 x_i + b + \sum_r \sum_{j \in N_r(i)} w_{ij}^r\, \alpha_{ij}^r\, W_r x_j, \qquad
        \alpha_{ij}^r = \operatorname{softmax}_{j \in N_r(i)}
                         \operatorname{LeakyReLU}(p_r \cdot W_r x_i + q_r \cdot W_r x_j).

    Args:
        in_features, out_features: widths.
        num_relations: number of relations :math:`r`.

    Shapes:
        - **x**: ``(N, in_features)``
        - **edges**: of ``num_relations`` copies of the nodes
        - **weight**: :math:`w`, in the order of ``edges``
        - **output**: ``(N, out_features)``
    """

    def __init__(self, in_features: int, out_features: int, num_relations: int):
        super().__init__()
        self.root = torch.nn.Linear(in_features, out_features)
        self.weight = torch.nn.Parameter(torch.empty(num_relations, in_features, out_features))
        #: q, for the neighbour, and then p, for the node itself, of each relation.
        self.attention = torch.nn.Parameter(torch.empty(num_relations, 1, 2 * out_features))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Glorot-uniform weights of each relation, the attention as one map of ``2 out_features``."""
        glorot(self.weight)
        glorot(self.attention)

    def forward(self, x: Tensor, edges: Neighbors, weight: Tensor) -> Tensor:
        mapped = map_by_relation(x, self.weight)
        share = self._attend(mapped, edges)
        # A node without neighbours of a relation hears nothing; the largest share of any other is 1.
        total = target_sum(share, edges).clamp(min=1).unsqueeze(-1)
        heard = neighbor_sum(mapped, weight * share, edges) / total
        return self.root(x) + sum_over_relations(heard, self.weight.size(0))

    def _attend(self, mapped: Tensor, edges: Neighbors) -> Tensor:
        """The exponentials of the softmax, ``(E,)``, not yet divided by their sum."""
        attention = self.attention.unflatten(-1, (2, -1)).squeeze(1)
        seen = mapped.unflatten(0, (attention.size(0), -1)) @ attention.mT
        of_source, of_target = seen.flatten(0, 1).unbind(-1)
        score = F.leaky_relu(at_source(of_source, edges) + at_target(of_target, edges), NEGATIVE_SLOPE)
        return (score - target_max(score, edges).index_select(0, edges.target)).exp()


class RelationalAttention(torch.nn.Module):
    """The network of :class:`WRGAT`: its layers one after the other.

    Args:
        widths: of the features, of each hidden layer and of the output.
        dropout: probability of dropping an entry of the input of each layer but the first.
        hops: how far the rings of degrees reach.
    """

    def __init__(self, widths: list[int], dropout: float, hops: int):
        super().__init__()
        self.dropout, self.hops = dropout, hops
        self.convs = torch.nn.ModuleList(WRGATConv(m, n, hops + 2) for m, n in pairwise(widths))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        graph = computation_graph(edge_index, edge_weight, x.size(0), self.hops)
        weight = graph.sorted_weight(edge_weight, x.dtype)
        for number, conv in enumerate(self.convs):
            if number > 0:
                x = F.dropout(x.relu(), self.dropout, self.training)
            x = conv(x, graph.edges, weight)
        return x


class WRGAT(Baseline):
    r"""WRGAT: the graph gets further edges between nodes that are alike in structure, and attention passes messages
    along each kind of edges apart.

    The relations of this computation graph are the given edges, of weight 1 or ``edge_weight``, and for each level
    :math:`k = 0, \dots,` ``hops`` the pairs that
    :func:`~hkconv.models.baselines.degree_sequences.compare_degrees` compares, in both directions: at level 0 nodes of
    like degree, at level 1 nodes whose neighbours have like degrees, and so on. As in struc2vec a node has at most
    :math:`2 \lceil\log_2 N\rceil` such neighbours a level, so that there are :math:`O(N \log N)` edges. The layers are
    :class:`WRGATConv`, with ReLU between them.

    Chosen here: the weight of a structural edge is the probability with which struc2vec walks along it within a level,
    :math:`w_{vu} = \exp(-f_k(u, v)) / \sum_{u'} \exp(-f_k(u', v))`, because :math:`\exp(-f_k)` alone vanishes where
    rings are large; weights multiply what attention has shared out, because inside of its softmax they were worse on
    the validation nodes of Texas (79 %, 86 %), Wisconsin (71 %, 82 %) and Chameleon (67 %, 72 %); levels reach two hops
    by default, for further rings cover most of a small world.

    The computation graph is built when a graph is first seen: for Squirrel's 400,000 edges in about 20 seconds, for
    PubMed in one. It joins nodes wherever they are, so that there is no graph task.

    Arguments: as :class:`~hkconv.models.baselines.baseline.Baseline`, and

    Args:
        hops: how far the rings of degrees reach, at least 0.
    """

    tasks = ("node", "link")
    needs_host = True
    whole_graph_for = "the degrees of all nodes"

    def build(self, sizes: BaselineSizes, *, hops: int = 2) -> torch.nn.Module:
        if hops < 0:
            raise InputError(f"hops must be at least 0, got {hops}")
        return RelationalAttention(sizes.widths, sizes.dropout, hops)

    def encode(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        return self.network(x, edge_index, edge_weight)
