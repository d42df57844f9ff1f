"""HKBlock: three views of a neighborhood, mixed by the node, then normalized. The layer that HKN is made of."""

from typing import Literal

import torch
from torch import Tensor

from hkconv.geometry.curvature import Curvature
from hkconv.nn.common import Size, check_rate, drop_ends, full_precision, read_ends, register_curvature
from hkconv.nn.hk_conv import HKConv
from hkconv.nn.linear import HLinear
from hkconv.nn.norm import HNorm
from hkconv.ops.backends import choose_backend
from hkconv.ops.centroid import neighbor_centroid, segment_centroid
from hkconv.ops.fused import acting_weight
from hkconv.ops.neighbors import Neighbors, find_neighbors, read_edges
from hkconv.ops.rows import mixed_views, view_gates

VIEWS = ("differences", "neighbors", "node")
_NEIGHBORS, _NODE = 0, 1


class HKBlock(torch.nn.Module):
    r"""Three views of a neighborhood, of which every node chooses, and what follows a convolution:

    .. math::
        d_i  &= \mathrm{HKConv}(x)_i && \text{the differences } x_j \ominus x_i \\
        a_i  &= \mathrm{HCent}_j\big(\mathrm{HLinear}_a(x_j), w_j\big) && \text{the neighbors themselves} \\
        s_i  &= \mathrm{HLinear}_s(x_i) && \text{the node} \\
        g_i  &= \mathrm{softmax}_c\Big(3 \sum_{c'} \sigma(v_{c'} \cdot y_{ic'})\,(I + G)_{c'c}\Big),
              && y_i = (d_i, a_i, s_i) \\
        m_i  &= \mathrm{HCent}(\{y_{ic}\}_c, g_i) \\
        x_i' &= \mathrm{lift}\big(\phi(\mathrm{norm}(m_{i,s}))\big)

    with learned :math:`v \in \mathbb R^{3 \times (n+1)}` and :math:`G \in \mathbb R^{3 \times 3}` that start at zero:
    all views start with equal weights. :class:`~hkconv.nn.HKConv`, the paper's layer, sees differences alone: not
    what is alike among neighbors, and not the node itself. Mixing channels by the node is the idea of Luan et al.
    (2022). Beyond the paper; its theorem on translations holds for :math:`d_i`. A node without neighbors has
    :math:`d_i = a_i = o`. Equivariant to permutations.

    Args:
        in_dim: dimension :math:`m` of the input points, which carry ``m+1`` coordinates.
        out_dim: dimension :math:`n` of the output points.
        kernel_size: number :math:`K` of kernel points of the convolution.
        norm: ``"batch"``, ``"layer"`` or None, see :class:`~hkconv.nn.HNorm`.
        act: activation :math:`\phi` of the space coordinates, a name that PyG's resolver knows or None.
        dropout: rate for the space coordinates of the input, drawn once a node; time is recomputed.
        points, mass, backend: as in :class:`~hkconv.nn.HKConv`; the mass is that of :math:`d_i`.
        curvature: a negative float, or a 0-d tensor; a ``torch.nn.Parameter`` or a
            :class:`~hkconv.geometry.curvature.LearnedCurvature` is learned.

    Shapes: as in :class:`~hkconv.nn.HKConv`.

    Example:
        >>> import torch
        >>> from hkconv.geometry import lorentz
        >>> from hkconv.nn import HKBlock
        >>> x = lorentz.lift(torch.randn(4, 8))
        >>> edge_index = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> HKBlock(8, 16, kernel_size=4)(x, edge_index).shape
        torch.Size([4, 17])
    """

    curvature: Curvature

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        kernel_size: int,
        *,
        norm: Literal["batch", "layer"] | None = "batch",
        act: str | None = "relu",
        dropout: float = 0.0,
        points: Literal["optimal", "random", "trainable"] | Tensor = "optimal",
        mass: bool = False,
        curvature: Curvature = -1.0,
        backend: str = "auto",
    ):
        super().__init__()
        check_rate(dropout)
        self.in_dim, self.out_dim, self.dropout = in_dim, out_dim, dropout
        register_curvature(self, curvature)
        self.conv = HKConv(in_dim, out_dim, kernel_size, points=points, mass=mass, curvature=curvature, backend=backend)
        # Both maps of nodes are one product where sources and targets are the same.
        self.linear = HLinear(in_dim, out_dim, 2, curvature=curvature)
        self.gate_weight = torch.nn.Parameter(torch.zeros(len(VIEWS), out_dim + 1))
        self.gate_mix = torch.nn.Parameter(torch.zeros(len(VIEWS), len(VIEWS)))
        self.norm = HNorm(out_dim, norm, act, curvature=curvature)

    def reset_parameters(self) -> None:
        """Draw all parameters anew; the views have equal weights again."""
        for module in (self.conv, self.linear, self.norm):
            module.reset_parameters()
        torch.nn.init.zeros_(self.gate_weight)
        torch.nn.init.zeros_(self.gate_mix)

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Tensor | Neighbors,
        edge_weight: Tensor | None = None,
        size: Size | None = None,
    ) -> Tensor:
        """Points of the targets after the block, ``(N_target, out_dim+1)``; arguments as in the class."""
        ends = read_ends(x, size, self.in_dim, self.curvature)
        with full_precision(*ends) as ends:
            x_source, x_target = drop_ends(ends, size, self.dropout if self.training else 0.0, self.curvature)
            views = self._look(x_source, x_target, edge_index, edge_weight)
            return self.norm(mixed_views(*views, self.gate_weight, self.gate_mix, self.curvature))

    def views(
        self, x_source: Tensor, x_target: Tensor, edge_index: Tensor | Neighbors, edge_weight: Tensor | None = None
    ) -> Tensor:
        """The three views :math:`y_i` of each target in the order of :data:`VIEWS`, ``(N_target, 3, out_dim+1)``."""
        return torch.stack(self._look(x_source, x_target, edge_index, edge_weight), dim=1)

    def gates(self, views: Tensor) -> Tensor:
        """The weights :math:`g_i` of the views, which sum to 1, ``(N, 3, out_dim+1) -> (N, 3)``."""
        return view_gates(views, self.gate_weight, self.gate_mix)

    def _look(
        self, x_source: Tensor, x_target: Tensor, edge_index: Tensor | Neighbors, edge_weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        if x_source is x_target:
            mapped, node = self.linear(x_source).unbind(1)
        else:
            mapped, node = self.linear(x_source, _NEIGHBORS), self.linear(x_target, _NODE)
        ends, nodes = (x_source, x_target), (x_source.size(0), x_target.size(0))
        if choose_backend(self.conv.backend, x_source, None) == "reference":
            source, target, weight = read_edges(edge_index, edge_weight, nodes)
            weight = None if weight is None else weight.to(x_source.dtype)
            neighbors = segment_centroid(mapped.index_select(0, source), target, nodes[1], weight, self.curvature)[0]
            return self.conv(ends, torch.stack([source, target]), weight), neighbors, node
        # Sorted once for both, also in a compiled graph, where nothing is remembered.
        found, weight = find_neighbors(edge_index, edge_weight, nodes)
        acting = None if weight is None else acting_weight(weight.to(mapped.dtype).index_select(0, found.order), found)
        neighbors = neighbor_centroid(mapped, found, acting, self.curvature)
        return self.conv(ends, found, weight), neighbors, node

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.in_dim}, {self.out_dim}, kernel_size={self.conv.kernel_size})"
