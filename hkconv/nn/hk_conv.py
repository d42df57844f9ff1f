"""HKConv, the hyperbolic kernel convolution: equations (5) to (7) of the paper, and its variants."""

from collections.abc import Callable
from typing import Literal, cast

import geoopt
import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.utils import softmax

from hkconv.errors import InputError
from hkconv.geometry.checks import check_points, debug
from hkconv.geometry.curvature import Curvature, curvature_value
from hkconv.geometry.lorentz import dist, lift, ominus
from hkconv.geometry.manifold import Lorentz
from hkconv.nn.centroid import MassScaling
from hkconv.nn.common import (
    Size,
    check_rate,
    describe,
    drop_ends,
    full_precision,
    read_attributes,
    read_ends,
    register_curvature,
    relift_,
)
from hkconv.nn.lazy import LaterPoints, LazyInput
from hkconv.nn.linear import HLinear
from hkconv.nn.message_passing import HMessagePassing, drawn_to_origin, masked
from hkconv.ops import fused, reference, scores
from hkconv.ops.backends import BACKENDS, choose_backend
from hkconv.ops.neighbors import Edges, Neighbors, read_edges, read_neighbors, unfold
from hkconv.points import kernel_points

KINDS_OF_POINTS = ("optimal", "random", "trainable")


class KernelConv(LazyInput):
    """The convolution of :class:`HKConv`, as a part of other layers too.

    PyG's tools count layers, and give masks to them. What is inside of one is not another one.
    """

    sized_by = "points"
    curvature: Curvature

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        kernel_size: int,
        *,
        act: str | Callable[[Tensor], Tensor] | None = None,
        dropout: float = 0.0,
        points: Literal["optimal", "random", "trainable"] | Tensor = "optimal",
        relative: bool = True,
        attention: Literal["distance"] | None = None,
        mass: bool = False,
        edge_dim: int | None = None,
        curvature: Curvature = -1.0,
        backend: str = "auto",
    ):
        super().__init__()
        if in_dim == -1 and isinstance(points, Tensor):
            in_dim = points.size(-1) - 1
        if kernel_size < 1:
            raise InputError(f"kernel_size must be at least 1, got {kernel_size}")
        check_rate(dropout)
        if attention not in {None, "distance"}:
            raise InputError(f"attention must be None or 'distance', got {attention!r}")
        if backend not in BACKENDS:
            raise InputError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
        if edge_dim is not None and edge_dim < 1:
            raise InputError(f"edge_dim must be at least 1, or None, got {edge_dim}")
        self.in_dim, self.out_dim, self.kernel_size, self.edge_dim = in_dim, out_dim, kernel_size, edge_dim
        self.dropout, self.relative, self.backend = dropout, relative, backend
        register_curvature(self, curvature)
        self.linear = HLinear(in_dim, out_dim, kernel_size, act=act, curvature=curvature)
        self.query = self.key = self.mass = None
        if attention == "distance":
            self.query = HLinear(in_dim, out_dim, curvature=curvature)
            self.key = HLinear(in_dim, out_dim, curvature=curvature)
        if mass:
            self.mass = MassScaling(out_dim)
        # The map W_e of attributes.
        self.edge_map = None if edge_dim is None else self.zeros(in_dim, edge_dim)
        self.kind_of_points = "given" if isinstance(points, Tensor) else points
        if not isinstance(points, Tensor) and points not in KINDS_OF_POINTS:
            raise InputError(f"points must be 'optimal', 'random', 'trainable' or a tensor, got {points!r}")
        values = None if in_dim == -1 else self._choose_points(points)
        if self.kind_of_points == "trainable":
            manifold = Lorentz(curvature_value(curvature))
            self.points = LaterPoints() if values is None else geoopt.ManifoldParameter(values, manifold=manifold)
        else:
            self.register_buffer("points", values)
        self.wait_for_points()

    def _choose_points(self, points: str | Tensor) -> Tensor:
        """Kernel points of a kind, or given ones after a check, as the layer keeps them."""
        curvature, shape = curvature_value(self.curvature), (self.kernel_size, self.in_dim + 1)
        if isinstance(points, Tensor):
            if points.shape != shape:
                raise InputError(f"points must have shape {shape}, got {tuple(points.shape)}")
            with debug():
                check_points(points, self.in_dim, curvature, "points")
            values = points.detach().clone()
        elif points == "random":
            # Drawn from torch's generator, so that layers differ and torch.manual_seed still decides.
            seed = int(torch.randint(2**31, ()))
            values = kernel_points(self.kernel_size, self.in_dim, curvature, method="random", seed=seed)
        else:
            values = kernel_points(self.kernel_size, self.in_dim, curvature)
        values = values.to(self.linear.weight)
        relift_(values, curvature)
        return values

    @torch.no_grad()
    def set_in_dim(self, in_dim: int) -> None:
        """Set the dimension of the input of a layer that waits for it, and find its kernel points."""
        super().set_in_dim(in_dim)
        values = self._choose_points(self.kind_of_points)
        if isinstance(self.points, LaterPoints):
            self.points.materialize(values.shape)
            self.points.manifold = Lorentz(curvature_value(self.curvature))
            self.points.copy_(values)
        else:
            self.points = values
        if self.edge_map is not None and self.edge_dim is not None:
            self.edge_map = self.zeros(in_dim, self.edge_dim, waiting=self.edge_map)

    def reset_parameters(self) -> None:
        """Draw all parameters anew. Kernel points keep their places; trainable ones return to the optimal."""
        for module in (self.linear, self.query, self.key, self.mass):
            if module is not None:
                module.reset_parameters()
        if self.in_dim == -1:
            return
        if self.edge_map is not None:
            torch.nn.init.zeros_(self.edge_map)
        if self.kind_of_points == "trainable":
            with torch.no_grad():
                self.points.copy_(self._choose_points("optimal"))

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Tensor | Neighbors,
        edge_weight: Tensor | None = None,
        size: Size | None = None,
        edge_attr: Tensor | None = None,
        kept: Tensor | None = None,
    ) -> Tensor:
        """Points of the targets, as :meth:`HKConv.forward`; ``kept`` are the masks of an explainer."""
        ends = read_ends(x, size, self.in_dim, self.curvature, self)
        is_fused = choose_backend(self.backend, ends[0], self.linear.act) != "reference"
        with full_precision(*ends) as ends:
            x_source, x_target = drop_ends(ends, size, self.dropout if self.training else 0.0, self.curvature)
            found, weight, order = self._read(x_source, x_target, edge_index, edge_weight, is_fused)
            weight, lost = masked(weight, kept, order, found.target, x_target)
            edge_attr = read_attributes(edge_attr, self.edge_dim, found.source.numel(), order)
            if edge_attr is not None or not is_fused:
                # Lifted anew, so that gradients lie along the space coordinates, as those of the fused backends.
                x_source, x_target = lift(x_source[:, 1:], self.curvature), lift(x_target[:, 1:], self.curvature)
            if edge_attr is not None:
                x_source, x_target, found = self._move(x_source, x_target, found, edge_attr)
            relative, with_mass = self.relative and edge_attr is None, self.mass is not None or lost is not None
            if isinstance(found, Neighbors):
                out, mass = self._aggregate_fused(x_source, x_target, found, weight, relative, with_mass)
            else:
                out, mass = self._aggregate_by_edges(x_source, x_target, found._replace(weight=weight), relative)
            if lost is not None and mass is not None:
                out = drawn_to_origin(out, mass, lost, self.curvature)
            return out if self.mass is None else self.mass(out, mass, self.curvature)

    def _read(
        self,
        x_source: Tensor,
        x_target: Tensor,
        edge_index: Tensor | Neighbors,
        edge_weight: Tensor | None,
        is_fused: bool,
    ) -> tuple[Neighbors | Edges, Tensor | None, Tensor | None]:
        """The edges, their weights times the attention, and their places among the user's if the order is another."""
        nodes = (x_source.size(0), x_target.size(0))
        found: Neighbors | Edges
        if is_fused:
            found, weight = read_neighbors(edge_index, edge_weight, nodes)
            order: Tensor | None = found.order
        else:
            found = read_edges(edge_index, edge_weight, nodes)
            weight, order = found.weight, edge_index.order if isinstance(edge_index, Neighbors) else None
        if self.query is not None and self.key is not None:
            attention = self._attend(self.query(x_target), self.key(x_source), found)
            weight = attention if weight is None else attention * weight
        return found, weight, order

    def _aggregate_by_edges(
        self, x_source: Tensor, x_target: Tensor, edges: Edges, relative: bool
    ) -> tuple[Tensor, Tensor]:
        linear, act, curvature = self.linear.named_tensors(), self.linear.act, self.curvature
        # Only the spatial part is data: with a learned curvature the time coordinate follows it.
        points = lift(self.points[:, 1:], curvature)
        # Inputs that no fused backend covers should at least fit into memory; the reference is taken as it is.
        piecewise = self.backend == "auto" and not torch.compiler.is_compiling()
        return reference.hk_aggregate(x_source, x_target, edges, linear, points, act, relative, curvature, piecewise)

    def _aggregate_fused(
        self,
        x_source: Tensor,
        x_target: Tensor,
        neighbors: Neighbors,
        weight: Tensor | None,
        relative: bool,
        with_mass: bool,
    ) -> tuple[Tensor, Tensor | None]:
        linear, rectify = self.linear.named_tensors(), self.linear.act is not None
        given = (x_source, x_target, neighbors, weight, linear, self.points)
        return fused.hk_aggregate(*given, relative, self.curvature, with_mass, rectify)

    def _move(
        self, x_source: Tensor, x_target: Tensor, found: Neighbors | Edges, edge_attr: Tensor
    ) -> tuple[Tensor, Tensor, Neighbors | Edges]:
        """One point an edge, moved by its attributes, what it is seen from, so that ``relative`` need not be, and the
        edges from these points."""
        points, edge_map = x_source.index_select(0, found.source), cast(Tensor, self.edge_map)
        if self.relative:
            points = ominus(points, x_target.index_select(0, found.target), self.curvature)
            x_target = lift(torch.zeros_like(x_target[:, 1:]), self.curvature)
        moved = lift(points[:, 1:] + F.linear(edge_attr.to(edge_map), edge_map), self.curvature)
        if isinstance(found, Neighbors):
            return moved, x_target, unfold(found)
        return moved, x_target, found._replace(source=torch.arange(moved.size(0), device=moved.device))

    def _attend(self, query: Tensor, key: Tensor, found: Neighbors | Edges) -> Tensor:
        if isinstance(found, Neighbors):
            return scores.attention(query, key, found, self.curvature)
        ends = query.index_select(0, found.target), key.index_select(0, found.source)
        score = -dist(*ends, self.curvature).square() / self.out_dim**0.5
        return softmax(score, found.target, num_nodes=query.size(0))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "KernelConv":
        super()._apply(fn, recurse)
        if self.in_dim != -1:
            relift_(self.points, self.curvature)
        return self

    def __repr__(self) -> str:
        return describe(
            self,
            self.in_dim,
            self.out_dim,
            kernel_size=self.kernel_size,
            act=self.linear.act,
            dropout=self.dropout,
            points=self.kind_of_points,
            relative=self.relative,
            attention=None if self.query is None else "distance",
            mass=self.mass is not None,
            edge_dim=self.edge_dim,
            curvature=self.curvature,
            backend=self.backend,
        )


class HKConv(KernelConv, HMessagePassing):
    r"""Hyperbolic kernel convolution :math:`\mathbb L^m \to \mathbb L^n` over the neighbors :math:`x_i` of :math:`x`:

    .. math::
        x_{ik} &= \mathrm{HLinear}_k(x_i \ominus x), \qquad k = 1, \dots, K \\
        x_i'   &= \mathrm{HCent}(\{x_{ik}\}_k, \{d(x_i \ominus x, \tilde x_k)\}_k) \\
        x'     &= \mathrm{HCent}(\{x_i'\}_i, \{w_i\}_i)

    with fixed kernel points :math:`\tilde x_k`. A node without neighbors maps to the origin. Self loops are not
    added. Equivariant to permutations; with ``relative=True`` invariant to translations of a neighborhood along the
    geodesic through the origin, so that it cannot see where a node is: :class:`~hkconv.nn.HKBlock` can.

    Attributes :math:`e_i` of the edges, such as the kinds of bonds, move the relative features:

    .. math::
        x_i \ominus x \quad\text{becomes}\quad \mathrm{lift}\big((x_i \ominus x)_s + W_e e_i\big)

    with a learned :math:`W_e`, wherever it stands above. Points still enter by :math:`x_i \ominus x` alone, so that the
    invariance stays. :math:`W_e` starts at zero: the layer starts as the one without attributes, and a random start
    would move the neighbors by something that means nothing yet. Beyond the paper.

    A :class:`~hkconv.nn.message_passing.HMessagePassing` for PyG's tools: the masks :math:`m_i` of an explainer give
    :math:`x' = \mathrm{HCent}(\{x_i'\} \cup \{o\}, \{m_i w_i\} \cup \{\sum_i (1 - m_i) w_i\})`.

    Args:
        in_dim: dimension :math:`m` of the input points, which carry ``m+1`` coordinates; -1 takes it from the first.
        out_dim: dimension :math:`n` of the output points.
        kernel_size: number :math:`K` of kernel points.
        act: activation :math:`\tau` on the relative feature inside HLinear.
        dropout: rate for the *spatial* coordinates of the input, drawn once a node; time is recomputed.
        points: ``"optimal"`` (minimal energy, equation (2)), ``"random"`` (HKN-random: wrapped normal),
            ``"trainable"`` (HKN-train: a manifold parameter that starts at the optimal points), or a tensor
            ``(K, m+1)`` of points.
        relative: ``False`` gives HKN-direct: HLinear of :math:`x_i` instead of :math:`x_i \ominus x`.
        attention: ``"distance"`` learns :math:`w_i = \mathrm{softmax}_i(-d^2(q, k_i)/\sqrt n)` with queries and
            keys from two HLinear of :math:`x` and :math:`x_i`.
        mass: keep the mass of the last centroid, see :class:`~hkconv.nn.centroid.MassScaling`. Beyond the paper.
        edge_dim: number of attributes of an edge, or None. With ``relative=False`` they move :math:`x_i` itself.
        curvature: a negative float, or a 0-d tensor; a ``torch.nn.Parameter`` or a
            :class:`~hkconv.geometry.curvature.LearnedCurvature` is learned.
        backend: ``"reference"`` is plain PyTorch, ``"cpu"`` C++, ``"cuda"`` Triton; ``"auto"`` takes the fastest
            there is for the input. All give the same result.

    Shapes:
        - **x**: points ``(N, m+1)``, or ``(x_source, x_target)`` for a bipartite graph
        - **edge_index**: ``(2, E)`` of any integer type, source to target; PyG's ``EdgeIndex``; a torch sparse
          matrix ``(N_target, N_source)``, whose values are the weights unless ``edge_weight`` is given; or what
          :func:`hkconv.neighbors` made of any of these
        - **edge_weight**: non-negative ``(E,)``
        - **size**: ``(N, N_target)``; of a single ``x`` the first ``N_target`` points are the targets
        - **edge_attr**: ``(E, edge_dim)`` in the order of the edges as they were first given; that of a sparse
          matrix is by row, then column, or in CSC by column, then row
        - **output**: points ``(N_target, n+1)``
    """

    def forward(  # type: ignore[override]  # the explainer's masks are no argument
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Tensor | Neighbors,
        edge_weight: Tensor | None = None,
        size: Size | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        """Return the points :math:`x'` of the targets.

        Args:
            x: points, or those of the sources and of the targets.
            edge_index: from sources to targets, in any of the forms that the class names.
            edge_weight: :math:`w_i`, equal ones if not given.
            size: number of sources and of targets, to be checked or to take the first points as the targets.
            edge_attr: :math:`e_i` of each edge, where ``edge_dim`` is set.
        """
        return super().forward(x, edge_index, edge_weight, size, edge_attr, self.kept_shares())
