"""HKConv, the hyperbolic kernel convolution: equations (5) to (7) of the paper, and its variants."""

from collections.abc import Callable
from typing import Literal

import geoopt
import torch
from torch import Tensor
from torch_geometric.utils import softmax

from hkconv.errors import InputError
from hkconv.geometry.checks import check_points, debug
from hkconv.geometry.curvature import Curvature, curvature_value
from hkconv.geometry.lorentz import dist, lift
from hkconv.geometry.manifold import Lorentz
from hkconv.nn.centroid import MassScaling
from hkconv.nn.common import Size, check_rate, drop_ends, full_precision, read_ends, register_curvature, relift_
from hkconv.nn.linear import HLinear
from hkconv.ops import fused, reference, scores
from hkconv.ops.backends import BACKENDS, choose_backend
from hkconv.ops.neighbors import Edges, Neighbors, read_edges, read_neighbors
from hkconv.points import kernel_points


class HKConv(torch.nn.Module):
    r"""Hyperbolic kernel convolution :math:`\mathbb L^m \to \mathbb L^n` over the neighbors :math:`x_i` of :math:`x`:

    .. math::
        x_{ik} &= \mathrm{HLinear}_k(x_i \ominus x), \qquad k = 1, \dots, K \\
        x_i'   &= \mathrm{HCent}(\{x_{ik}\}_k, \{d(x_i \ominus x, \tilde x_k)\}_k) \\
        x'     &= \mathrm{HCent}(\{x_i'\}_i, \{w_i\}_i)

    with fixed kernel points :math:`\tilde x_k`. A node without neighbors maps to the origin. Self loops are not
    added. Equivariant to permutations; with ``relative=True`` invariant to translations of a neighborhood along the
    geodesic through the origin, so that it cannot see where a node is: :class:`~hkconv.nn.HKBlock` can.

    Args:
        in_dim: dimension :math:`m` of the input points, which carry ``m+1`` coordinates.
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
        curvature: a negative float, or a 0-d tensor; a ``torch.nn.Parameter`` or a
            :class:`~hkconv.geometry.curvature.LearnedCurvature` is learned.
        backend: ``"reference"`` is plain PyTorch, ``"cpu"`` Numba, ``"cuda"`` Triton; ``"auto"`` takes the fastest
            there is for the input. All give the same result.

    Shapes:
        - **x**: points ``(N, m+1)``, or ``(x_source, x_target)`` for a bipartite graph
        - **edge_index**: ``(2, E)`` of any integer type, source to target; PyG's ``EdgeIndex``; a torch sparse
          matrix ``(N_target, N_source)``, whose values are the weights unless ``edge_weight`` is given; or what
          :func:`hkconv.neighbors` made of any of these
        - **edge_weight**: non-negative ``(E,)``
        - **size**: ``(N, N_target)``; of a single ``x`` the first ``N_target`` points are the targets
        - **output**: points ``(N_target, n+1)``
    """

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
        curvature: Curvature = -1.0,
        backend: str = "auto",
    ):
        super().__init__()
        if kernel_size < 1:
            raise InputError(f"kernel_size must be at least 1, got {kernel_size}")
        check_rate(dropout)
        if attention not in {None, "distance"}:
            raise InputError(f"attention must be None or 'distance', got {attention!r}")
        if backend not in BACKENDS:
            raise InputError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
        self.in_dim, self.out_dim, self.kernel_size = in_dim, out_dim, kernel_size
        self.dropout, self.relative, self.backend = dropout, relative, backend
        register_curvature(self, curvature)
        self.linear = HLinear(in_dim, out_dim, kernel_size, act=act, curvature=curvature)
        self.query = self.key = self.mass = None
        if attention == "distance":
            self.query = HLinear(in_dim, out_dim, curvature=curvature)
            self.key = HLinear(in_dim, out_dim, curvature=curvature)
        if mass:
            self.mass = MassScaling(out_dim)
        self._set_points(points)

    def _set_points(self, points: str | Tensor) -> None:
        curvature = curvature_value(self.curvature)
        if isinstance(points, Tensor):
            if points.shape != (self.kernel_size, self.in_dim + 1):
                wanted = (self.kernel_size, self.in_dim + 1)
                raise InputError(f"points must have shape {wanted}, got {tuple(points.shape)}")
            with debug():
                check_points(points, self.in_dim, curvature, "points")
            values = points.detach().clone()
        elif points in {"optimal", "trainable"}:
            values = kernel_points(self.kernel_size, self.in_dim, curvature)
        elif points == "random":
            # Drawn from torch's generator, so that layers differ and torch.manual_seed still decides.
            seed = int(torch.randint(2**31, ()))
            values = kernel_points(self.kernel_size, self.in_dim, curvature, method="random", seed=seed)
        else:
            raise InputError(f"points must be 'optimal', 'random', 'trainable' or a tensor, got {points!r}")
        values = values.to(torch.get_default_dtype())
        relift_(values, curvature)
        if isinstance(points, str) and points == "trainable":
            self.points = geoopt.ManifoldParameter(values, manifold=Lorentz(curvature))
        else:
            self.register_buffer("points", values)

    def reset_parameters(self) -> None:
        """Draw all parameters anew. Kernel points keep their places; trainable ones return to the optimal."""
        for module in (self.linear, self.query, self.key, self.mass):
            if module is not None:
                module.reset_parameters()
        if isinstance(self.points, geoopt.ManifoldParameter):
            curvature = curvature_value(self.curvature)
            with torch.no_grad():
                self.points.copy_(kernel_points(self.kernel_size, self.in_dim, curvature))

    def forward(
        self,
        x: Tensor | tuple[Tensor, Tensor],
        edge_index: Tensor | Neighbors,
        edge_weight: Tensor | None = None,
        size: Size | None = None,
    ) -> Tensor:
        ends = read_ends(x, size, self.in_dim, self.curvature)
        backend = choose_backend(self.backend, ends[0], self.linear.act)
        with full_precision(*ends) as ends:
            x_source, x_target = drop_ends(ends, size, self.dropout if self.training else 0.0, self.curvature)
            aggregate = self._aggregate_by_edges if backend == "reference" else self._aggregate_fused
            out, mass = aggregate(x_source, x_target, edge_index, edge_weight)
            return out if self.mass is None else self.mass(out, mass, self.curvature)

    def _aggregate_by_edges(
        self, x_source: Tensor, x_target: Tensor, edge_index: Tensor | Neighbors, edge_weight: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        edges = read_edges(edge_index, edge_weight, (x_source.size(0), x_target.size(0)))
        if self.query is not None and self.key is not None:
            edges = edges._replace(weight=self._attend(self.query(x_target), self.key(x_source), edges))
        linear, curvature = self.linear.named_tensors(), self.curvature
        # Only the spatial part is data: with a learned curvature the time coordinate follows it.
        points = lift(self.points[:, 1:], curvature)
        # Lifted anew, so that gradients lie along the space coordinates, as those of the fused backends.
        x_source, x_target = lift(x_source[:, 1:], curvature), lift(x_target[:, 1:], curvature)
        # Inputs that no fused backend covers should at least fit into memory; the reference is taken as it is.
        piecewise = self.backend == "auto" and not torch.compiler.is_compiling()
        return reference.hk_aggregate(
            x_source, x_target, edges, linear, points, self.linear.act, self.relative, curvature, piecewise
        )

    def _aggregate_fused(
        self, x_source: Tensor, x_target: Tensor, edge_index: Tensor | Neighbors, edge_weight: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        neighbors, weight = read_neighbors(edge_index, edge_weight, (x_source.size(0), x_target.size(0)))
        if self.query is not None and self.key is not None:
            attention = scores.attention(self.query(x_target), self.key(x_source), neighbors, self.curvature)
            weight = attention if weight is None else attention * weight
        linear = self.linear.named_tensors()
        return fused.hk_aggregate(
            x_source,
            x_target,
            neighbors,
            weight,
            linear,
            self.points,
            self.relative,
            self.curvature,
            with_mass=self.mass is not None,
        )

    def _attend(self, query: Tensor, key: Tensor, edges: Edges) -> Tensor:
        ends = query.index_select(0, edges.target), key.index_select(0, edges.source)
        score = -dist(*ends, self.curvature).square() / self.out_dim**0.5
        attention = softmax(score, edges.target, num_nodes=query.size(0))
        return attention if edges.weight is None else attention * edges.weight

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "HKConv":
        super()._apply(fn, recurse)
        relift_(self.points, self.curvature)
        return self

    def __repr__(self) -> str:
        return f"{self.__class__.__name__}({self.in_dim}, {self.out_dim}, kernel_size={self.kernel_size})"
