"""Multi-head attention between points, with HKConv or HyboNet's centroid as the aggregation of values."""

import math
from collections.abc import Callable
from typing import Any, Literal, cast

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.geometry.checks import check_points
from hkconv.geometry.curvature import Curvature, curvature_value
from hkconv.geometry.lorentz import lift
from hkconv.nn.common import check_rate, dropped, full_precision, register_curvature, relift_, reset_modules
from hkconv.nn.linear import HLinear
from hkconv.ops import attention, reference
from hkconv.ops.backends import BACKENDS, choose_backend
from hkconv.ops.rows import lifted, mixed_views
from hkconv.points import kernel_points

AGGREGATIONS = ("kernel", "centroid")
FORMS = ("paper", "views")


class AttentionCache:
    """Keys and values of the positions seen so far, ``(H, B, S, n+1)``, for incremental decoding.

    Self attention adds those of the new positions at every call; cross attention keeps those of its first call.
    """

    def __init__(self) -> None:
        self.key: Tensor | None = None
        self.value: Tensor | None = None

    def extend(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Add new positions; returns all of them."""
        if self.key is not None and self.value is not None:
            if self.key.shape[:2] != key.shape[:2]:
                raise InputError(f"cache holds {self.key.size(1)} sequences, got {key.size(1)}")
            key, value = torch.cat([self.key, key], dim=2), torch.cat([self.value, value], dim=2)
        self.key, self.value = key, value
        return key, value

    def reorder(self, index: Tensor) -> None:
        """Keep the sequences of these numbers ``(B',)``, in their order; a number may come more than once."""
        if self.key is not None and self.value is not None:
            self.key, self.value = self.key.index_select(1, index), self.value.index_select(1, index)


class HKAttention(torch.nn.Module):
    r"""Attention in hyperbolic space. With queries, keys and values from three HLinear, for each head

    .. math::
        w_{ij}   &= \mathrm{softmax}_j(-d^2(q_i, k_j)/\sqrt n) \\
        v_{ij}'  &= \mathrm{HCent}(\{\mathrm{HLinear}_k(v_j \ominus v_i)\}_k, \{d(v_j \ominus v_i, \tilde x_k)\}_k) \\
        \mu_i    &= \mathrm{HCent}(\{v_{ij}'\}_j, \{w_{ij}\}_j)

    where every head has its own K maps, and n is the dimension of a head. With ``aggregation="centroid"`` it is the
    attention of the fully hyperbolic transformer (HyboNet, Chen et al. 2021), :math:`v_{ij}' = v_j`. Heads are cut
    out of the spatial coordinates of queries, keys and values, and each is lifted; their outputs are put side by side,
    lifted, and go through a last HLinear. Nothing on the way is off the manifold.

    Differences say nothing of what is alike among values, and the first position of a causal sequence has none. With
    ``form="views"`` that last HLinear has instead, of all heads together, three views that each position weighs as in
    :class:`~hkconv.nn.HKBlock`: :math:`d_i = \mu_i`, the values themselves and its own,

    .. math::
        a_i = \mathrm{HCent}(\{v_j\}_j, \{w_{ij}\}_j), \qquad s_i = v_i, \qquad
        m_i = \mathrm{HCent}(\{d_i, a_i, s_i\}, g_i).

    Args:
        dim: dimension of the points, a multiple of ``num_heads``.
        num_heads: number H of heads.
        kernel_size: number K of kernel points.
        aggregation: ``"kernel"`` or ``"centroid"``. Cross attention has no :math:`v_i`, and takes the second alone.
        form: ``"paper"``, or ``"views"`` for the three views, where the aggregation is by kernel.
        dropout: rate for the *spatial* coordinates of the inputs, drawn once a position; time is recomputed.
        curvature: a negative float, or a 0-d tensor; a ``torch.nn.Parameter`` is learned.
        backend: ``"reference"`` is plain PyTorch and holds all pairs at once, ``"cpu"`` C++, ``"cuda"`` Triton;
            ``"auto"`` takes the fastest there is for the input. All give the same result.

    Shapes:
        - **query**: points ``(B, T, dim+1)``; with a cache only the new positions
        - **key**: points ``(B, S, dim+1)`` to attend to, or None for self attention
        - **key_padding_mask**: ``(B, S)``, true for padding; with a cache S counts all positions so far
        - **output**: points ``(B, T, dim+1)``; a query that sees no key gets the last HLinear of the origin, in views
          that of :math:`m_i` with :math:`d_i = a_i = o`
    """

    curvature: Curvature
    points: Tensor

    def __init__(
        self,
        dim: int,
        num_heads: int,
        *,
        kernel_size: int = 4,
        aggregation: Literal["kernel", "centroid"] = "kernel",
        form: Literal["paper", "views"] = "paper",
        dropout: float = 0.0,
        curvature: Curvature = -1.0,
        backend: str = "auto",
    ):
        super().__init__()
        if num_heads < 1 or dim < 1 or dim % num_heads:
            raise InputError(f"dim must be a multiple of num_heads, got {dim} and {num_heads}")
        if kernel_size < 1:
            raise InputError(f"kernel_size must be at least 1, got {kernel_size}")
        if aggregation not in AGGREGATIONS:
            raise InputError(f"aggregation must be 'kernel' or 'centroid', got {aggregation!r}")
        if form not in FORMS:
            raise InputError(f"form must be 'paper' or 'views', got {form!r}")
        if form == "views" and aggregation != "kernel":
            raise InputError("form='views' needs aggregation='kernel': one of the views is of differences")
        check_rate(dropout)
        if backend not in BACKENDS:
            raise InputError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
        self.dim, self.num_heads, self.kernel_size = dim, num_heads, kernel_size
        self.aggregation, self.form, self.dropout, self.backend = aggregation, form, dropout, backend
        register_curvature(self, curvature)
        self.query, self.key, self.value, self.out = (HLinear(dim, dim, curvature=curvature) for _ in range(4))
        self.linear = None
        if aggregation == "kernel":
            head_dim = dim // num_heads
            self.linear = HLinear(head_dim, head_dim, num_heads * kernel_size, curvature=curvature)
            points = kernel_points(kernel_size, head_dim, curvature_value(curvature)).to(torch.get_default_dtype())
            relift_(points, curvature_value(curvature))
            self.register_buffer("points", points)
        if form == "views":
            self.gate_weight = torch.nn.Parameter(torch.empty(3, dim + 1))
            self.gate_mix = torch.nn.Parameter(torch.empty(3, 3))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Those of all HLinear, but with queries and keys of length :math:`\sqrt n` and values of length 1 a head.

        HLinear's own unit length, divided among the heads, would leave all keys about equally far from a query: a fresh
        layer would weigh them alike, and learn to tell them apart slowly. With :math:`\sqrt n` scores differ as much
        as those of a fresh Euclidean attention. All views have equal weights.
        """
        reset_modules(self.children())
        with torch.no_grad():
            for module, length in ((self.query, self.dim), (self.key, self.dim), (self.value, self.num_heads)):
                module.log_scale.add_(0.5 * math.log(length))
        if self.form == "views":
            torch.nn.init.zeros_(self.gate_weight)
            torch.nn.init.zeros_(self.gate_mix)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        *,
        key_padding_mask: Tensor | None = None,
        causal: bool = False,
        cache: AttentionCache | None = None,
    ) -> Tensor:
        self._check(query, key, causal, cache)
        with full_precision(query) as (query,):
            query = dropped(query, self.dropout, self.curvature, self.training)
            if key is None:
                keys, values = self._project(query)
                own = values
                if cache is not None:
                    keys, values = cache.extend(keys, values)
            else:
                own = None
                keys, values = self._project_memory(key, cache)
            if key_padding_mask is not None and key_padding_mask.shape != (query.size(0), keys.size(2)):
                wanted, found = (query.size(0), keys.size(2)), tuple(key_padding_mask.shape)
                raise InputError(f"key_padding_mask must have shape {wanted}, got {found}")
            queries = self._split(self.query(query))
            attended = self._merge(self._attend(queries, keys, values, own, key_padding_mask, causal))
            if own is not None and self.form == "views":
                neighbors = self._merge(self._attend(queries, keys, values, None, key_padding_mask, causal))
                attended = self._mix(attended, neighbors, self._merge(own))
            return self.out(attended)

    def _check(self, query: Tensor, key: Tensor | None, causal: bool, cache: AttentionCache | None) -> None:
        for name, x in (("query", query), ("key", key)):
            if x is None:
                continue
            if x.dim() != 3:
                raise InputError(f"{name} must have shape (B, T, {self.dim + 1}), got {tuple(x.shape)}")
            check_points(x, self.dim, self.curvature, name)
        if key is None and cache is not None and not causal:
            raise InputError("a cache needs causal=True: earlier positions cannot see later ones any more")
        if key is not None and self.aggregation == "kernel":
            raise InputError("cross attention needs aggregation='centroid': queries have no value to be relative to")
        if key is not None and key.size(0) != query.size(0):
            raise InputError(f"query and key must have equally many sequences, got {query.size(0)} and {key.size(0)}")

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self._split(self.key(x)), self._split(self.value(x))

    def _project_memory(self, key: Tensor, cache: AttentionCache | None) -> tuple[Tensor, Tensor]:
        if cache is not None and cache.key is not None and cache.value is not None:
            return cache.key, cache.value
        with full_precision(key) as (key,):
            projected = self._project(dropped(key, self.dropout, self.curvature, self.training))
        return projected if cache is None else cache.extend(*projected)

    def _split(self, x: Tensor) -> Tensor:
        """``(B, T, dim+1) -> (H, B, T, n+1)``."""
        return lifted(x[..., 1:].unflatten(-1, (self.num_heads, -1)).permute(2, 0, 1, 3), self.curvature)

    def _merge(self, x: Tensor) -> Tensor:
        """``(H, B, T, n+1) -> (B, T, dim+1)``."""
        return lifted(x[..., 1:].permute(1, 2, 0, 3).flatten(2), self.curvature)

    def _mix(self, differences: Tensor, neighbors: Tensor, own: Tensor) -> Tensor:
        """The centroid of the three views of each position, ``(B, T, dim+1)``, by its own weights."""
        rows = [view.flatten(0, 1) for view in (differences, neighbors, own)]
        return mixed_views(rows[0], rows[1], rows[2], self.gate_weight, self.gate_mix, self.curvature).view_as(own)

    def _attend(
        self, query: Tensor, key: Tensor, value: Tensor, own: Tensor | None, padding: Tensor | None, causal: bool
    ) -> Tensor:
        """The aggregation of all heads, ``(H, B, T, n+1)``; HyboNet's where there is no ``own``."""
        kernel: dict[str, Any] = {}
        if self.linear is not None and own is not None:
            shape = (self.num_heads, self.kernel_size)
            tensors = cast(dict[str, Tensor | None], self.linear.named_tensors())
            linear = {name: None if tensor is None else tensor.unflatten(0, shape) for name, tensor in tensors.items()}
            # Only the spatial part is data: with a learned curvature the time coordinate follows it.
            kernel = {"own": own, "linear": linear, "points": lift(self.points[:, 1:], self.curvature)}
        rest: dict[str, Any] = {**kernel, "padding": padding, "causal": causal, "curvature": self.curvature}
        if choose_backend(self.backend, query, None) == "reference":
            # Inputs that no fused backend covers should at least fit into memory; the reference is taken as it is.
            piecewise = self.backend == "auto" and not torch.compiler.is_compiling()
            return reference.attend(query, key, value, **rest, piecewise=piecewise)
        return attention.attend(query, key, value, **rest)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "HKAttention":
        super()._apply(fn, recurse)
        if self.linear is not None:
            relift_(self.points, self.curvature)
        return self

    def __repr__(self) -> str:
        kernels = f", kernel_size={self.kernel_size}" if self.aggregation == "kernel" else ""
        kernels += ", form='views'" if self.form == "views" else ""
        name = self.__class__.__name__
        return f"{name}({self.dim}, num_heads={self.num_heads}{kernels}, aggregation={self.aggregation!r})"
