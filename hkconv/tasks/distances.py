"""Distances between nodes in a graph, and in the space that a network trained on links places them in."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from hkconv.data.dataset import link_keys, pairs_of_keys
from hkconv.data.splits import seeded_generator
from hkconv.engine.devices import find_device
from hkconv.errors import InputError
from hkconv.tasks.evaluate import load_training, open_run
from hkconv.tasks.metrics import average_precision
from hkconv.tasks.summary import Cell
from hkconv.tasks.tasks import LinkTask

# All pairs of 4,096 nodes; in float64 a copy of their distances has 128 MiB.
MOST_PAIRS = 2**24
# A network looks at the coordinates of both nodes of every pair.
PAIRS_AT_ONCE = 2**19


@dataclass(frozen=True)
class DistanceFidelity:
    r"""Agreement of an embedding with a graph, by the ratios :math:`\rho_{uv} = d(u, v) / d_G(u, v)` of its distances
    to those of the graph, over pairs of nodes that a path connects.

    Args:
        average_distortion: :math:`\min_s \operatorname{mean}_{uv} |s \rho_{uv} - 1|`, 0 where one scale fits all pairs.
        worst_distortion: :math:`\max \rho / \min \rho`, 1 where one scale fits all; infinite where nodes coincide.
        mean_average_precision: mean over nodes of the average precision of their neighbors in the graph, all other
            nodes ranked from near to far; 1 where no other node is as near as a neighbor.
        sources: nodes from which distances to all others were taken.
        num_nodes: nodes of the graph.
    """

    average_distortion: float
    worst_distortion: float
    mean_average_precision: float
    sources: int
    num_nodes: int


def score_distances(
    embedded: Callable[[Tensor], Tensor], edge_index: Tensor, num_nodes: int, *, seed: int = 0
) -> DistanceFidelity:
    """Compare embedded distances with those of a graph, whose edges have no direction and length 1.

    All pairs are looked at, up to 4,096 nodes. In a larger graph it is the distances from a sample of the nodes to all
    nodes.

    Args:
        embedded: the (S, N) distances from S nodes to all nodes, in any unit.
        edge_index: (2, E) edges, in one direction or both; self loops are left out.
        num_nodes: number of nodes N.
        seed: of the sample.
    """
    links = pairs_of_keys(link_keys(edge_index.cpu(), num_nodes), num_nodes)
    if not links.size(1):
        raise InputError("distances need a graph with at least one edge between different nodes")
    sources = torch.arange(num_nodes)
    if num_nodes**2 > MOST_PAIRS:
        sources = torch.randperm(num_nodes, generator=seeded_generator(seed))[: max(1, MOST_PAIRS // num_nodes)]
    ratios, precisions = [], []
    for some in sources.split(max(1, PAIRS_AT_ONCE // num_nodes)):
        hops, distance = hop_distances(links, num_nodes, some), embedded(some).double().cpu()
        # A node is no neighbor of itself, and nothing to rank.
        is_neighbor = torch.where(hops == 0, torch.nan, (hops == 1).double())
        precisions.append(average_precision(-distance.t(), is_neighbor.t()))
        ratios.append((distance / hops)[(hops > 0) & hops.isfinite()])
    ratio = torch.cat(ratios)
    return DistanceFidelity(
        average_distortion=average_distortion(ratio),
        worst_distortion=(ratio.max() / ratio.min()).item() if ratio.max() > 0 else torch.inf,
        mean_average_precision=torch.cat(precisions).nanmean().item(),
        sources=len(sources),
        num_nodes=num_nodes,
    )


def average_distortion(ratio: Tensor) -> float:
    r"""Return :math:`\min_s \operatorname{mean}_i |s \rho_i - 1|`.

    As :math:`|s \rho_i - 1| = \rho_i |s - 1/\rho_i|`, the best scale :math:`s` is the median of the :math:`1/\rho_i`
    with weights :math:`\rho_i`.

    Args:
        ratio: (P,) ratios that are not negative.
    """
    falling = ratio.double().sort(descending=True).values
    total = falling.cumsum(0)
    middle = falling[torch.searchsorted(total, total[-1] / 2)]
    # Where all nodes coincide no scale makes a difference.
    return (falling / middle - 1).abs().mean().item() if middle > 0 else 1.0


def hop_distances(links: Tensor, num_nodes: int, sources: Tensor) -> Tensor:
    """Return the (S, N) numbers of edges from some nodes to all nodes, infinite where no path leads.

    Args:
        links: (2, L) edges, each in one direction.
        num_nodes: number of nodes N.
        sources: (S,) nodes.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import dijkstra

    adjacency = coo_array((torch.ones(links.size(1)).numpy(), tuple(links.numpy())), shape=(num_nodes, num_nodes))
    return torch.from_numpy(dijkstra(adjacency.tocsr(), directed=False, indices=sources.numpy(), unweighted=True))


def link_distances(model: torch.nn.Module, task: LinkTask) -> Callable[[Tensor], Tensor]:
    r"""Return the distances of nodes in the space that a network reads links off, up to a common factor.

    They follow from its logits :math:`l`,

    .. math:: d(u, v)^2 \propto l(u, u) + l(v, v) - 2\,l(u, v).

    Of inner products :math:`\langle z_u, z_v \rangle` this is :math:`|z_u - z_v|^2`, the Euclidean distance of
    embeddings; of Fermi-Dirac logits :math:`\sum_i (r_i - d_i(u, v)^2)/t_i` it is twice :math:`\sum_i d_i^2/t_i`, the
    hyperbolic distance of points or, where several layers are read, that in the product of their spaces.

    Args:
        model: of a link task; it is brought to float64.
        task: its graph and the links that messages pass over.
    """
    model = model.double().eval()
    x, nodes = task.graph.x.double(), torch.arange(task.num_nodes, device=task.graph.x.device)

    @torch.no_grad()
    def logits(u: Tensor, v: Tensor) -> Tensor:
        return model(x, task.message_edges, pairs=torch.stack([u, v]))

    own = logits(nodes, nodes)

    def distances(sources: Tensor) -> Tensor:
        u = sources.to(nodes.device).repeat_interleave(len(nodes))
        v = nodes.repeat(len(sources))
        return (own[u] + own[v] - 2 * logits(u, v)).clamp(min=0).sqrt().view(len(sources), -1)

    return distances


def measure_distances(
    folder: Path | str, data: str | None = None, device: str = "auto"
) -> list[tuple[Cell, DistanceFidelity]]:
    """Compare what every network of a run on links makes of its graph with the whole graph, hidden links included.

    Args:
        folder: a folder that :func:`~hkconv.tasks.run.train_run` made.
        data: folder of the datasets; by default the one the run used.
        device: where to compute.
    """
    folder, target = Path(folder), find_device(device)
    cells, dataset = open_run(folder, data)
    if dataset.task != "link":
        raise InputError(f"distances are of runs with --task link, and run {folder} has the {dataset.task} task")
    found = []
    for cell in cells:
        model, task = load_training(folder, cell, dataset, target)
        task = cast(LinkTask, task)
        found.append((cell, score_distances(link_distances(model, task), task.graph.edge_index, task.num_nodes)))
    return found
