"""Random HKConv problems, and one way to run them through any backend with all gradients."""

from dataclasses import dataclass

import torch

from hkconv.geometry.lorentz import lift
from hkconv.ops import fused, reference
from hkconv.ops.neighbors import Neighbors, neighbors

LINEAR = ("weight", "bias", "gate_weight", "gate_bias", "log_scale")


@dataclass(frozen=True)
class Problem:
    """Leaves by name (float64, points by their space), the graph, gradients for the two outputs, and if ReLU acts."""

    leaves: dict[str, torch.Tensor]
    edge_index: torch.Tensor
    size: tuple[int, int]
    relative: bool
    grads: tuple[torch.Tensor, torch.Tensor]
    rectify: bool = False


def make_problem(
    edge_index,
    size,
    K,
    m,
    n,
    *,
    weighted=False,
    relative=True,
    curvature=-1.0,
    radius=1.0,
    seed=0,
    bias=True,
    rectify=False,
) -> Problem:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def points(count):
        direction = torch.nn.functional.normalize(normal(count, m), dim=-1)
        lengths = radius * torch.rand(count, 1, generator=generator, dtype=torch.float64)
        return torch.sinh(lengths) * direction

    leaves = {
        "x_source": points(size[0]),
        "x_target": points(size[1]),
        "points": 0.8 * normal(K, m),
        "curvature": torch.tensor(curvature, dtype=torch.float64),
        "weight": 0.5 * normal(K, n, m + 1),
        "gate_weight": 0.3 * normal(K, m + 1),
        "log_scale": 0.3 * normal(K) + 0.5,
    }
    if bias:
        leaves |= {"bias": 0.3 * normal(K, n), "gate_bias": 0.3 * normal(K)}
    if weighted:
        leaves["edge_weight"] = torch.rand(edge_index.size(1), generator=generator, dtype=torch.float64)
    return Problem(leaves, edge_index, size, relative, (normal(size[1], n + 1), normal(size[1])), rectify)


def random_edges(sources, targets, edges, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randint(count, (edges,), generator=generator) for count in (sources, targets)])


def outputs_and_gradients(problem: Problem, backend: str, dtype=torch.float64, device="cpu", create_graph=False):
    """Points, masses and the gradient of every leaf, computed by ``"reference"`` or ``"fused"``."""
    leaves = {name: value.to(device, dtype).detach().requires_grad_() for name, value in problem.leaves.items()}
    graph = neighbors(problem.edge_index.to(device), problem.size)
    out, mass = _aggregate(backend, leaves, graph, problem.relative, problem.rectify)
    loss = sum((value * grad.to(value)).sum() for value, grad in zip((out, mass), problem.grads))
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, create_graph=create_graph)
    gradients = {
        name: torch.zeros_like(leaf) if grad is None else grad for (name, leaf), grad in zip(leaves.items(), found)
    }
    return out.detach(), mass.detach(), gradients


def _aggregate(backend, leaves, graph: Neighbors, relative, rectify):
    curvature = leaves["curvature"]
    linear = {name: leaves.get(name) for name in LINEAR}
    x_source, x_target, points = (lift(leaves[name], curvature) for name in ("x_source", "x_target", "points"))
    weight = leaves.get("edge_weight")
    if backend == "reference":
        return reference.hk_aggregate(
            x_source,
            x_target,
            graph.edges(weight),
            linear,
            points,
            torch.relu if rectify else None,
            relative,
            curvature,
        )
    weight = None if weight is None else weight[graph.order.long()]
    return fused.hk_aggregate(x_source, x_target, graph, weight, linear, points, relative, curvature, rectify=rectify)


def relative_error(value, expected, floor=1e-3):
    """Norm of the difference over the norm of what was expected, or over ``floor`` if that is less."""
    value, expected = value.double().cpu(), expected.double().cpu()
    return ((value - expected).norm() / expected.norm().clamp(min=floor)).item()
