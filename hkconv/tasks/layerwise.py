"""Networks on graphs that are too large for them: on samples to be trained, on all neighbours to be asked.

To be asked, a hyperbolic network goes one layer at a time over all nodes that are needed, and in a layer over pieces of
them. Beside the features it holds the points before and after a layer and what one piece takes, whatever the number of
layers and of neighbours. The result is that of the whole graph at once, but for rounding.
"""

import torch
from torch import Tensor
from torch_geometric.data import Data

from hkconv.data.neighbor_sampling import ALL, InNeighbors
from hkconv.engine.settings import Settings
from hkconv.errors import InputError
from hkconv.models.hyperbolic_network import HyperbolicNetwork

# A piece of a layer: enough to keep the threads busy. For each of its edges a source may need K (n + 1) numbers.
EDGES_AT_ONCE = 1 << 18
NODES_AT_ONCE = 1 << 16


def node_inputs(graph: Data) -> tuple[Tensor, ...]:
    """Return the inputs of a network for the nodes of one graph: features, edges and, if there are some, weights.

    Attributes of edges come after weights, which then may be None; see :func:`~hkconv.tasks.tasks.node_logits`.
    """
    given = (graph.x, graph.edge_index)
    if graph.edge_attr is not None:
        return (*given, graph.edge_weight, graph.edge_attr)
    return given if graph.edge_weight is None else (*given, graph.edge_weight)


def check_sampled(model: torch.nn.Module, task: str, settings: Settings, edge_dim: int | None = None) -> None:
    """Raise unless a model can be trained on samples of ``settings.neighbors`` neighbours.

    Args:
        model: the network.
        task: ``"node"``, ``"graph"`` or ``"link"``.
        settings: how to train; nothing is wrong with one whose ``neighbors`` are None.
        edge_dim: number of attributes of an edge, None where edges have none.
    """
    if settings.neighbors is None:
        return
    reason = getattr(model, "whole_graph_for", None)
    if task != "node":
        raise InputError(f"neighbors must be none for the {task} task: they are sampled for the node task alone")
    if edge_dim is not None:
        raise InputError(
            "neighbors must be none where edges have attributes, which samples do not have: leave one of the two out, "
            "attributes with --no-edge-attributes"
        )
    if settings.capture:
        raise InputError("neighbors must be none for a captured training, whose batches are all of one size")
    if reason is not None:
        raise InputError(f"neighbors must be none for {type(model).__name__}, which needs the whole graph for {reason}")
    if isinstance(model, HyperbolicNetwork) and len(settings.neighbors) != len(model.convs):
        raise InputError(
            f"neighbors must have a number for each of the {len(model.convs)} layers, got {len(settings.neighbors)}"
        )


def sampled_logits(model: torch.nn.Module, batch: Data) -> Tensor:
    """Logits of the nodes of a mini-batch.

    A node that no edges were drawn for is a source and no target: what a layer makes of it goes nowhere. Hyperbolic
    networks leave it out after each layer, where the sampler says which nodes these are. So a normalisation over the
    batch does not see them.

    Args:
        model: of a node task.
        batch: of :func:`hkconv.data.neighbor_sampling.neighbor_loader`, with ``in_degree``, the number of edges into
            each node in the whole graph.

    Returns:
        ``(batch_size, C)`` logits.
    """
    if not isinstance(model, HyperbolicNetwork):
        return model(*node_inputs(batch))[: batch.batch_size]
    weight = _sampled_weight(model, batch)
    if "num_sampled_nodes" not in batch:
        return model(batch.x, batch.edge_index, weight)[: batch.batch_size]
    points = model.embed(batch.x, batch.edge_index, weight)
    found = [points[: batch.batch_size]]
    for number in range(len(model.convs)):
        steps = len(model.convs) - number
        edges = sum(batch.num_sampled_edges[:steps])
        part = None if weight is None else weight[:edges]
        targets = sum(batch.num_sampled_nodes[:steps])
        points = model.layer(number, points, batch.edge_index[:, :edges], part, targets)
        found.append(points[: batch.batch_size])
    return model.read_layers(found, None, None, None)


def _sampled_weight(model: HyperbolicNetwork, batch: Data) -> Tensor | None:
    r"""The weights of the sampled edges.

    A network that looks at how many neighbours there are gets :math:`w_e d_i / k_i` where :math:`k_i` of the
    :math:`d_i` edges into a node were drawn. The sum over them has then the sum over all edges as its mean.
    """
    if not model.counts_neighbors:
        return batch.edge_weight
    target = batch.edge_index[1]
    drawn = target.bincount(minlength=len(batch.in_degree))
    share = (batch.in_degree[target] / drawn[target]).to(batch.x.dtype)
    return share if batch.edge_weight is None else share * batch.edge_weight


@torch.no_grad()
def all_neighbor_logits(
    model: torch.nn.Module,
    graph: Data,
    neighbors: InNeighbors,
    nodes: Tensor | None = None,
    *,
    edges_at_once: int = EDGES_AT_ONCE,
) -> Tensor:
    """Logits of nodes from all their neighbours, in evaluation mode.

    HKN and the other hyperbolic networks go layer by layer. A network of another kind takes the whole graph at once, as
    does HKN where one of its levers needs that.

    Args:
        model: of a node task, on its device.
        graph: on the CPU, in the model's floating-point type.
        neighbors: the edges of the graph.
        nodes: (n,) which nodes, None for all.
        edges_at_once: how many edges a piece of a layer has at most, beyond those of one node.

    Returns:
        (n, C) logits on the model's device.
    """
    model.eval()
    device = next(model.parameters()).device
    if not isinstance(model, HyperbolicNetwork) or model.whole_graph_for is not None:
        logits = model(*(part.to(device) for part in node_inputs(graph)))
        return logits if nodes is None else logits[nodes.to(device)]
    asked = torch.arange(neighbors.num_nodes) if nodes is None else nodes
    needed = _needed(neighbors, asked, len(model.convs), edges_at_once)
    points = _embed(model, graph.x, needed[0], device)
    found = [points[asked]]
    for number, targets in enumerate(needed[1:]):
        points = _layer(model, number, points, graph, neighbors, targets, edges_at_once, device)
        found = [*found, points[asked]][-model.layers_read :]
    rows = torch.arange(len(asked)).split(NODES_AT_ONCE)
    return torch.cat([model.read_layers([part[some].to(device) for part in found], None, None, None) for some in rows])


def _needed(neighbors: InNeighbors, nodes: Tensor, layers: int, edges_at_once: int) -> list[Tensor]:
    """The nodes whose points are needed before the first layer, after it, and so on until the last."""
    needed = [nodes.unique()]
    for _ in range(layers):
        if len(needed[0]) < neighbors.num_nodes:
            is_needed = torch.zeros(neighbors.num_nodes, dtype=torch.bool)
            for piece in neighbors.pieces(needed[0], NODES_AT_ONCE, edges_at_once):
                is_needed[neighbors.walk(piece, (ALL,)).node] = True
            needed.insert(0, is_needed.nonzero().flatten())
        else:
            needed.insert(0, needed[0])
    return needed


def _embed(model: HyperbolicNetwork, x: Tensor, nodes: Tensor, device: torch.device) -> Tensor:
    """The embedded points, on the CPU; those of other nodes are left undefined."""
    points = x.new_empty(len(x), model.embedding.dim + 1)
    for piece in nodes.split(NODES_AT_ONCE):
        points[piece] = model.embed(x[piece].to(device), None, None).to(points)
    return points


def _layer(
    model: HyperbolicNetwork,
    number: int,
    points: Tensor,
    graph: Data,
    neighbors: InNeighbors,
    targets: Tensor,
    edges_at_once: int,
    device: torch.device,
) -> Tensor:
    """The points of ``targets`` after a layer, on the CPU; those of other nodes are left undefined."""
    after = torch.empty_like(points)
    for piece in neighbors.pieces(targets, NODES_AT_ONCE, edges_at_once):
        part = neighbors.walk(piece, (ALL,))
        weight = None if graph.edge_weight is None else graph.edge_weight[part.edge].to(device)
        edge_index = torch.stack([part.row, part.col]).to(device)
        after[piece] = model.layer(number, points[part.node].to(device), edge_index, weight, len(piece)).to(points)
    return after
