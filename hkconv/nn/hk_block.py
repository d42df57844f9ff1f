"""HKBlock: three views of a neighborhood, mixed by the node, then normalized. The layer that HKN is made of."""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.parameter import is_lazy

from hkconv.geometry.curvature import Curvature
from hkconv.geometry.lorentz import lift
from hkconv.nn.common import (
    Size,
    check_rate,
    describe,
    drop_ends,
    full_precision,
    read_attributes,
    read_ends,
    register_curvature,
)
from hkconv.nn.hk_conv import KernelConv
from hkconv.nn.lazy import LazyInput
from hkconv.nn.linear import HLinear
from hkconv.nn.message_passing import HMessagePassing, drawn_to_origin, masked
from hkconv.nn.norm import HNorm
from hkconv.ops.backends import choose_backend
from hkconv.ops.centroid import neighbor_centroid, segment_centroid
from hkconv.ops.fused import acting_weight
from hkconv.ops.neighbors import Neighbors, find_neighbors, read_edges, unfold
from hkconv.ops.rows import mixed_views, view_gates

VIEWS = ("differences", "neighbors", "node")
_NEIGHBORS, _NODE = 0, 1


class HKBlock(LazyInput, HMessagePassing):
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

    Attributes of edges are seen in :math:`d_i`, as HKConv sees them, and in :math:`a_i`, of
    :math:`\mathrm{HLinear}_a\big(\mathrm{lift}(x_{j,s} + W_a e_{ij})\big)` then; :math:`W_a` starts at zero too.

    One layer for PyG's tools, a :class:`~hkconv.nn.message_passing.HMessagePassing`: the masks of an explainer act in
    :math:`d_i` and in :math:`a_i`, as they do in HKConv.

    Args:
        in_dim: dimension :math:`m` of the input points, which carry ``m+1`` coordinates; -1 takes it from the first.
        out_dim: dimension :math:`n` of the output points.
        kernel_size: number :math:`K` of kernel points of the convolution.
        norm: ``"batch"``, ``"layer"`` or None, see :class:`~hkconv.nn.HNorm`.
        act: activation :math:`\phi` of the space coordinates, a name that PyG's resolver knows or None.
        dropout: rate for the space coordinates of the input, drawn once a node; time is recomputed.
        points, mass, edge_dim, backend: as in :class:`~hkconv.nn.HKConv`; the mass is that of :math:`d_i`.
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
    sized_by = "linear.weight"

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
        edge_dim: int | None = None,
        curvature: Curvature = -1.0,
        backend: str = "auto",
    ):
        super().__init__()
        check_rate(dropout)
        self.out_dim, self.dropout = out_dim, dropout
        register_curvature(self, curvature)
        options: dict[str, Any] = {"mass": mass, "edge_dim": edge_dim, "curvature": curvature, "backend": backend}
        self.conv = KernelConv(in_dim, out_dim, kernel_size, points=points, **options)
        self.in_dim = in_dim = self.conv.in_dim
        # Both maps of nodes are one product where sources and targets are the same.
        self.linear = HLinear(in_dim, out_dim, 2, curvature=curvature)
        # The map W_a of attributes; the convolution has its own.
        self.edge_map = None if edge_dim is None else self.zeros(in_dim, edge_dim)
        self.gate_weight = torch.nn.Parameter(torch.zeros(len(VIEWS), out_dim + 1))
        self.gate_mix = torch.nn.Parameter(torch.zeros(len(VIEWS), len(VIEWS)))
        self.norm = HNorm(out_dim, norm, act, curvature=curvature)
        self.wait_for_points()

    def set_in_dim(self, in_dim: int) -> None:
        """Set the dimension of the input of a layer that waits for it."""
        super().set_in_dim(in_dim)
        if self.edge_map is not None and self.conv.edge_dim is not None:
            self.edge_map = self.zeros(in_dim, self.conv.edge_dim, waiting=self.edge_map)

    def reset_parameters(self) -> None:
        """Draw all parameters anew; the views have equal weights again."""
        for module in (self.conv, self.linear, self.norm):
            module.reset_parameters()
        for zero in (self.gate_weight, self.gate_mix, self.edge_map):
            if not (zero is None or is_lazy(zero)):
                torch.nn.init.zeros_(zero)

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Tensor | Neighbors,
        edge_weight: Tensor | None = None,
        size: Size | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """Return the points :math:`x'` of the targets; arguments as of :meth:`HKConv.forward`."""
        ends = read_ends(x, size, self.in_dim, self.curvature, self)
        with full_precision(*ends) as ends:
            x_source, x_target = drop_ends(ends, size, self.dropout if self.training else 0.0, self.curvature)
            views = self._look(x_source, x_target, edge_index, edge_weight, edge_attr)
            return self.norm(mixed_views(*views, self.gate_weight, self.gate_mix, self.curvature))

    def views(
        self,
        x_source: Tensor,
        x_target: Tensor,
        edge_index: Tensor | Neighbors,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """The three views :math:`y_i` of each target in the order of :data:`VIEWS`, ``(N_target, 3, out_dim+1)``."""
        return torch.stack(self._look(x_source, x_target, edge_index, edge_weight, edge_attr), dim=1)

    def gates(self, views: Tensor) -> Tensor:
        """The weights :math:`g_i` of the views, which sum to 1, ``(N, 3, out_dim+1) -> (N, 3)``."""
        return view_gates(views, self.gate_weight, self.gate_mix)

    def _look(
        self,
        x_source: Tensor,
        x_target: Tensor,
        edge_index: Tensor | Neighbors,
        edge_weight: Tensor | None,
        edge_attr: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        ends, nodes, kept = (x_source, x_target), (x_source.size(0), x_target.size(0)), self.kept_shares()
        if kept is not None or choose_backend(self.conv.backend, x_source, None) == "reference":
            source, target, weight = read_edges(edge_index, edge_weight, nodes)
            order = edge_index.order if isinstance(edge_index, Neighbors) else None
            attr = read_attributes(edge_attr, self.conv.edge_dim, source.numel(), order)
            mapped, node = self._map(x_source, x_target, source, attr)
            mapped = mapped.index_select(0, source) if attr is None else mapped
            weight, lost = masked(weight, kept, order, target, x_target)
            neighbors, mass = segment_centroid(mapped, target, nodes[1], weight, self.curvature)
            if lost is not None:
                neighbors = drawn_to_origin(neighbors, mass, lost, self.curvature)
            return self.conv(ends, edge_index, edge_weight, edge_attr=edge_attr, kept=kept), neighbors, node
        # Sorted once for both, also in a compiled graph, where nothing is remembered.
        found, weight = find_neighbors(edge_index, edge_weight, nodes)
        attr = read_attributes(edge_attr, self.conv.edge_dim, found.source.numel(), found.order)
        mapped, node = self._map(x_source, x_target, found.source, attr)
        acting = None if weight is None else acting_weight(weight.to(mapped.dtype).index_select(0, found.order), found)
        neighbors = neighbor_centroid(mapped, found if attr is None else unfold(found), acting, self.curvature)
        return self.conv(ends, found, weight, edge_attr=edge_attr), neighbors, node

    def _map(
        self, x_source: Tensor, x_target: Tensor, source: Tensor, edge_attr: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Images of the sources, or with attributes of the edges from ``source``, and of the targets."""
        if edge_attr is not None and self.edge_map is not None:
            moved = x_source[:, 1:].index_select(0, source) + F.linear(edge_attr.to(self.edge_map), self.edge_map)
            return self.linear(lift(moved, self.curvature), _NEIGHBORS), self.linear(x_target, _NODE)
        if x_source is x_target:
            mapped, node = self.linear(x_source).unbind(1)
            return mapped, node
        return self.linear(x_source, _NEIGHBORS), self.linear(x_target, _NODE)

    def __repr__(self) -> str:
        return describe(
            self,
            self.in_dim,
            self.out_dim,
            kernel_size=self.conv.kernel_size,
            norm=self.norm.kind,
            act=self.norm.act,
            dropout=self.dropout,
            points=self.conv.kind_of_points,
            mass=self.conv.mass is not None,
            edge_dim=self.conv.edge_dim,
            curvature=self.curvature,
            backend=self.conv.backend,
        )
