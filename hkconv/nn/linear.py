"""The fully hyperbolic linear layer (Chen et al. 2021), alone or K of them stacked for K kernel points."""

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.geometry.checks import check_points
from hkconv.geometry.curvature import Curvature
from hkconv.nn.common import describe, find_activation, full_precision, register_curvature
from hkconv.nn.lazy import LazyInput
from hkconv.ops.linear import LinearTensors, fused_linear, hyperbolic_linear
from hkconv.ops.rows import have_kernels

# λσ(0) = 1: a fresh layer puts its outputs at radius arsinh(1) ≈ 0.88 of the unit hyperboloid, where it is
# neither flat nor saturated; gradients move it from there.
INITIAL_SCALE = 2.0


class HLinear(LazyInput):
    r"""Hyperbolic linear layer :math:`\mathbb L^m \to \mathbb L^n`,

    .. math::
        \mathrm{HLinear}(x) = \begin{bmatrix} \sqrt{|h(x)|^2 + R^2} \\ h(x) \end{bmatrix}, \qquad
        h(x) = \frac{\lambda\,\sigma(v \cdot x + b')}{|W \tau(x) + b|} (W \tau(x) + b).

    Args:
        in_dim: dimension :math:`m` of the input points, which carry ``m+1`` coordinates; -1 takes it from the first.
        out_dim: dimension :math:`n` of the output points.
        num_kernels: K maps at once; the output then has one dimension more.
        act: activation :math:`\tau`, one of ``hkconv.nn.common.ACTIVATIONS`` or a callable.
        bias: learn :math:`b` and :math:`b'`.
        curvature: a negative float, or a 0-d tensor; a ``torch.nn.Parameter`` is learned.

    Shapes: ``(..., m+1) -> (..., n+1)``, or ``(..., K, n+1)`` with ``num_kernels=K``.
    """

    curvature: Curvature
    sized_by = "weight"

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        num_kernels: int | None = None,
        *,
        act: str | Callable[[Tensor], Tensor] | None = None,
        bias: bool = True,
        curvature: Curvature = -1.0,
    ):
        super().__init__()
        for name, value in (("out_dim", out_dim), ("num_kernels", num_kernels)):
            if value is not None and value < 1:
                raise InputError(f"{name} must be at least 1, got {value}")
        self.in_dim, self.out_dim, self.num_kernels = in_dim, out_dim, num_kernels
        self.act = None if act is None else find_activation(act)
        register_curvature(self, curvature)
        leading = () if num_kernels is None else (num_kernels,)
        self.weight = self.zeros(*leading, out_dim, in_dim + 1)
        self.gate_weight = self.zeros(*leading, in_dim + 1)
        self.log_scale = torch.nn.Parameter(torch.empty(leading))
        self.bias = torch.nn.Parameter(torch.empty(*leading, out_dim)) if bias else None
        self.gate_bias = torch.nn.Parameter(torch.empty(leading)) if bias else None
        self.reset_parameters()
        self.wait_for_points()

    def set_in_dim(self, in_dim: int) -> None:
        """Set the dimension of the input of a layer that waits for it."""
        super().set_in_dim(in_dim)
        leading = () if self.num_kernels is None else (self.num_kernels,)
        self.weight = self.zeros(*leading, self.out_dim, in_dim + 1, waiting=self.weight)
        self.gate_weight = self.zeros(*leading, in_dim + 1, waiting=self.gate_weight)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Glorot-uniform weights, :math:`\lambda = 2`, the rest zero, so that every gate starts half open."""
        if self.in_dim != -1:
            bound = math.sqrt(6 / (self.in_dim + 1 + self.out_dim))
            torch.nn.init.uniform_(self.weight, -bound, bound)
            torch.nn.init.zeros_(self.gate_weight)
        torch.nn.init.constant_(self.log_scale, math.log(INITIAL_SCALE))
        for zero in (self.bias, self.gate_bias):
            if zero is not None:
                torch.nn.init.zeros_(zero)

    def named_tensors(self, kernel: int | None = None) -> LinearTensors:
        """The parameters as :func:`hkconv.ops.linear.hyperbolic_linear` takes them, of one of the K maps or of all."""
        tensors: dict[str, Tensor | None] = {
            "weight": self.weight,
            "bias": self.bias,
            "gate_weight": self.gate_weight,
            "gate_bias": self.gate_bias,
            "log_scale": self.log_scale,
        }
        if kernel is not None:
            tensors = {name: None if value is None else value[kernel] for name, value in tensors.items()}
        return cast(LinearTensors, tensors)

    def forward(self, x: Tensor, kernel: int | None = None) -> Tensor:
        """Points to points; with ``kernel`` by that one of the K maps alone."""
        check_points(x, self.in_dim, self.curvature, "x", self)
        with full_precision(x) as (x,):
            fused = self.bias is not None and have_kernels(x, self.out_dim, self.curvature)
            linear: Callable[..., Tensor] = fused_linear if fused else hyperbolic_linear
            return linear(x, **self.named_tensors(kernel), act=self.act, curvature=self.curvature)

    def __repr__(self) -> str:
        sizes = {"num_kernels": self.num_kernels, "act": self.act, "bias": self.bias is not None}
        return describe(self, self.in_dim, self.out_dim, **sizes, curvature=self.curvature)
