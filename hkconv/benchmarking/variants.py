"""What is measured side by side: HKConv three ways, and the layers it is compared with."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

import hkconv
from hkconv.benchmarking.graphs import make_edges
from hkconv.benchmarking.memory import available_bytes
from hkconv.benchmarking.shapes import Shape
from hkconv.errors import InputError
from hkconv.geometry.lorentz import lift
from hkconv.nn import HKConv
from hkconv.ops.backends import BACKENDS

VARIANTS = ("reference", "compiled", "fused", "hybonet", "gcn", "gat")
EUCLIDEAN = ("gcn", "gat")

# Tensors of size E x K x (n+1) that HKConv in plain PyTorch holds at its peak, counted with the memory probe:
# 16.9 as it is (n = 16 and 64), 8.5 compiled (n = 16).
TENSORS_AT_PEAK = {"reference": 17, "compiled": 9}
SPARE_SHARE = 0.85


@dataclass(frozen=True)
class Problem:
    """Points on a random graph; ``points`` are ``(N, n+1)``, spread about one unit around the origin."""

    shape: Shape
    points: Tensor
    edge_index: Tensor
    seed: int


def make_problem(shape: Shape, targets: str, seed: int, device: torch.device) -> Problem:
    """The same problem for the same arguments, on any device."""
    generator = torch.Generator().manual_seed(seed)
    space = torch.randn(shape.nodes, shape.dim, generator=generator) / shape.dim**0.5
    edge_index = make_edges(shape.nodes, shape.edges, targets, seed)
    return Problem(shape, lift(space).to(device), edge_index.to(device), seed)


class Step:
    """One variant on one problem: its forward pass, and forward with all gradients.

    Args:
        name: one of ``VARIANTS``.
        problem: what to run it on.
    """

    def __init__(self, name: str, problem: Problem):
        shape, points = problem.shape, problem.points
        # The same weights for every form of HKConv, so that their outputs can be compared.
        torch.manual_seed(problem.seed)
        layer = make_layer(name, shape).to(points.device)
        self.parameters = list(layer.parameters())
        self.x = (points[:, 1:] if name in EUCLIDEAN else points).clone().requires_grad_()
        self.edges = _neighbours(problem) if name == "fused" else problem.edge_index
        self.cotangent = torch.randn_like(self.x)
        self.layer: Callable[..., Tensor] = layer
        if name == "compiled":
            # Every instance compiles the same forward; without this the ninth would be refused.
            torch.compiler.reset()
            self.layer = torch.compile(layer, dynamic=False, fullgraph=True)

    @torch.no_grad()
    def forward(self) -> Tensor:
        """The output, as for inference."""
        return self.layer(self.x, self.edges)

    def train(self) -> tuple[Tensor, ...]:
        """The gradients of a fixed linear function of the output, to the input and to all parameters."""
        out = self.layer(self.x, self.edges)
        return torch.autograd.grad(out, [self.x, *self.parameters], self.cotangent)


def make_layer(name: str, shape: Shape) -> torch.nn.Module:
    """The layer of a variant, from ``shape.dim`` to ``shape.dim``."""
    if name in TENSORS_AT_PEAK:
        return HKConv(shape.dim, shape.dim, shape.kernels, backend="reference")
    if name == "fused":
        return HKConv(shape.dim, shape.dim, shape.kernels, backend="auto")
    if name == "hybonet":
        from hkconv.models.baselines.hybonet import HyboNetConv

        return HyboNetConv(shape.dim, shape.dim)
    from torch_geometric.nn import GATConv, GCNConv

    return {"gcn": GCNConv, "gat": GATConv}[name](shape.dim, shape.dim)


def check_variants(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names, if every one is a variant and none comes twice."""
    for name in names:
        if name not in VARIANTS:
            raise InputError(f"variants must be different names from {', '.join(VARIANTS)}, got {name!r}")
    if not names or len(set(names)) < len(names):
        raise InputError(f"variants must be different names from {', '.join(VARIANTS)}, got {','.join(names)!r}")
    return names


def skip_reason(name: str, shape: Shape, device: torch.device, available: int | None = None) -> str | None:
    """Why a variant cannot be measured, or None.

    Args:
        name: one of ``VARIANTS``.
        shape: of the problem.
        device: where it would run. On a GPU memory is not estimated: there running out of it is an error that can
            be caught, where on a CPU the system ends the process.
        available: bytes of memory; asked of the system by default.
    """
    if name == "fused" and device.type not in BACKENDS:
        return f"no fused backend for {device.type} in this version"
    if name in TENSORS_AT_PEAK and device.type == "cpu":
        available = available_bytes() if available is None else available
        needed = peak_bytes(name, shape)
        if available is not None and needed > SPARE_SHARE * available:
            return f"would need about {needed / 1e9:.0f} GB of memory, {available / 1e9:.0f} GB are free"
    return None


def peak_bytes(name: str, shape: Shape) -> int:
    """About the peak memory of forward and backward of HKConv in plain PyTorch, ``"compiled"`` or not, float32."""
    return 4 * TENSORS_AT_PEAK[name] * shape.edges * shape.kernels * (shape.dim + 1)


def _neighbours(problem: Problem) -> object:
    return hkconv.neighbors(problem.edge_index, problem.shape.nodes)
