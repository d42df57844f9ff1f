"""Base class of the classic convolutions, with the parts by which Luo et al. (2024) made them strong baselines."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import BatchNorm

from hkconv.errors import InputError
from hkconv.models.baselines.baseline import Baseline, BaselineSizes

NORMS = ("none", "batch", "layer")


class Convolutional(Baseline):
    r"""Convolutions one after another, with a residual connection and normalisation where they are asked for,

    .. math::
        H^{(l)} = \operatorname{dropout}\Big(\phi\big(\operatorname{norm}(\operatorname{conv}^{(l)}(H^{(l-1)})
            + H^{(l-1)} R^{(l)} + r^{(l)})\big)\Big),

    the last layer without norm, activation and dropout. That is the layer of Luo et al. (2024, Classic GNNs Are Strong
    Baselines), but for the last one, after which they have a linear classifier. In training, a batch of one node is
    normalised by the running statistics, see :class:`~hkconv.models.baselines.gin.GIN`.

    Arguments: as :class:`~hkconv.models.baselines.baseline.Baseline`, and

    Args:
        norm: ``"batch"`` over the nodes, ``"layer"`` over the features of each node, or ``"none"``.
        residual: whether there are :math:`R^{(l)}` and :math:`r^{(l)}`.
    """

    #: Whether the last layer ends with its convolution and residual.
    plain_last = True

    def build(
        self, sizes: BaselineSizes, *, norm: str = "none", residual: bool = False, **options: Any
    ) -> torch.nn.Module:
        if norm not in NORMS:
            raise InputError(f"norm must be {', '.join(NORMS[:-1])} or {NORMS[-1]}, got {norm!r}")
        # First, so that they start from the same draws with and without residuals.
        convs = torch.nn.ModuleList(self.convolutions(sizes, **options))
        pairs = list(pairwise(sizes.widths))
        self.residuals = torch.nn.ModuleList(torch.nn.Linear(*pair) for pair in pairs if residual)
        ends = pairs[:-1] if self.plain_last else pairs
        self.norms = torch.nn.ModuleList(_make_norm(norm, width) for _, width in ends)
        return torch.nn.ModuleDict({"convs": convs})

    def convolutions(self, sizes: BaselineSizes) -> Iterable[torch.nn.Module]:
        """The convolutions, first to last; a network's own options are further arguments."""
        raise NotImplementedError

    @property
    def convs(self) -> Iterable[torch.nn.Module]:
        """The convolutions, first to last."""
        return self.network["convs"]

    def activation(self, x: Tensor) -> Tensor:
        r"""The function :math:`\phi`."""
        return x.relu()

    def layers(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None, edge_attr: Tensor | None = None
    ) -> list[Tensor]:
        """The features after each layer."""
        edges = (edge_index,) if edge_weight is None else (edge_index, edge_weight)
        attributes = {} if edge_attr is None else {"edge_attr": edge_attr}
        found = []
        for number, conv in enumerate(self.convs):
            h = conv(x, *edges, **attributes)
            if self.residuals:
                h = h + self.residuals[number](x)
            x = self.dropout(self.activation(self.norms[number](h))) if number < len(self.norms) else h
            found.append(x)
        return found

    def encode(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None, edge_attr: Tensor | None = None
    ) -> Tensor:
        return self.layers(x, edge_index, edge_weight, edge_attr)[-1]


def sum_of_messages(h: Tensor, edge_index: Tensor, of_edges: Tensor, edge_weight: Tensor | None = None) -> Tensor:
    r"""The sums :math:`\sum_j w_{ij} \operatorname{relu}(h_j + m_{ij})` over the neighbours of each node.

    Args:
        h: ``(N, d)``.
        edge_index: ``(2, E)``, source to target.
        of_edges: the :math:`m_{ij}`, a linear map of the attributes of edges, ``(E, d)``.
        edge_weight: ``(E,)``, or None where all are 1.

    Returns:
        ``(N, d)``.
    """
    message = (h.index_select(0, edge_index[0]) + of_edges).relu()
    message = message if edge_weight is None else edge_weight.unsqueeze(-1) * message
    # Under autocast messages with weights are of another type than h.
    return message.new_zeros(h.shape).index_add(0, edge_index[1], message)


def _make_norm(norm: str, width: int) -> torch.nn.Module:
    if norm == "none":
        return torch.nn.Identity()
    return torch.nn.LayerNorm(width) if norm == "layer" else BatchNorm(width, allow_single_element=True)
