"""Preparation of graphs for a model: direction of edges, scale of features, one-hot features written out."""

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, to_undirected

from hkconv.data.options import BOTH, OUT
from hkconv.errors import InputError


def direct_edges(graph: Data, direction: str) -> Data:
    r"""Give a graph the edges over which node :math:`i` hears from :math:`j`, all of which are :math:`(j, i)`.

    With the stored edges :math:`E` they are :math:`E` for ``"in"``, :math:`E^T = \{(j, i) : (i, j) \in E\}` for
    ``"out"`` and :math:`E \cup E^T` for ``"both"``, the last without repeats. Where edges have weights, those of a
    repeated edge are added there first; then both directions get the mean of the two, or of the one that there is.
    Attributes of all edges between two nodes are averaged, for both directions; those of bonds, which are numbers of
    columns, are the same both ways.

    Args:
        graph: with ``edge_index`` and, if its edges have weights or attributes, ``edge_weight`` or ``edge_attr``.
        direction: ``"in"``, ``"out"`` or ``"both"``.

    Returns:
        The same graph, changed.
    """
    if direction == OUT:
        graph.edge_index = graph.edge_index.flip(0)
    if direction != BOTH:
        return graph
    edges, num_nodes = graph.edge_index, graph.num_nodes
    graph.edge_index = to_undirected(edges, num_nodes=num_nodes)
    if graph.edge_attr is not None:
        reduce = "mean" if graph.edge_attr.is_floating_point() else "max"
        _, graph.edge_attr = to_undirected(edges, graph.edge_attr, num_nodes, reduce=reduce)
    if graph.edge_weight is not None:
        summed = coalesce(edges, graph.edge_weight, num_nodes, reduce="add")
        _, graph.edge_weight = to_undirected(*summed, num_nodes=num_nodes, reduce="mean")
    return graph


def rows_sum_to_one(x: Tensor, name: str) -> Tensor:
    """Every row of features divided by its sum; rows of zeros stay zero, and missing values count as zero."""
    if bool((x < 0).any()):
        raise InputError(
            f"normalize_features divides rows by their sum and needs features of zero or more, "
            f"but dataset {name!r} has negative ones"
        )
    total = x.nansum(dim=1, keepdim=True)
    return x / torch.where(total > 0, total, 1)


def prepare_features(
    x: Tensor, name: str, *, normalize_features: bool, log_features: bool, are_columns: bool = False
) -> Tensor:
    """The features as a recipe wants them.

    Args:
        x: features of some nodes.
        name: of the dataset, for errors.
        normalize_features: divide every row by its sum.
        log_features: replace every feature x by sign(x) log(1 + abs(x)).
        are_columns: whether ``x`` lists the columns of ones, which neither applies to.

    Returns:
        The features.
    """
    for option, is_on in (("normalize_features", normalize_features), ("log_features", log_features)):
        if is_on and are_columns:
            raise InputError(
                f"{option} must be off for dataset {name!r}: its features are categories, one-hot, and all rows "
                "have the same sum"
            )
    if normalize_features:
        x = rows_sum_to_one(x, name)
    return x.sign() * x.abs().log1p() if log_features else x


def write_out(columns: Tensor, num_columns: int, dtype: torch.dtype) -> Tensor:
    """Matrix whose rows are one in the listed columns and zero elsewhere, written out for a batch.

    The nine categorical features of a million atoms take 9 MB as column numbers and 730 MB as 174 one-hot columns.

    Args:
        columns: (N, C) whole numbers in [0, num_columns), the columns of each row's ones.
        num_columns: how many columns there are.
        dtype: type of the result.

    Returns:
        (N, num_columns) zeros and ones.
    """
    zeros = torch.zeros(len(columns), num_columns, dtype=dtype, device=columns.device)
    return zeros.scatter_(1, columns.long(), 1)
