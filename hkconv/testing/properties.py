"""The properties of section III-C of the paper, as assertions on any layer called like HKConv."""

from collections.abc import Callable

import torch
from torch import Tensor

from hkconv.geometry.curvature import Curvature
from hkconv.geometry.lorentz import exp0, lift, log0, translate

# A graph layer: points (or source and target points) and edge_index to points.
Layer = Callable[..., Tensor]


def _tolerance(dtype: torch.dtype) -> float:
    return 2e-5 if dtype == torch.float32 else 1e-10


def assert_on_manifold(x: Tensor, curvature: Curvature = -1.0, tolerance: float | None = None) -> None:
    r"""Assert that every row is finite and :math:`x_t = \sqrt{R^2 + |x_s|^2}` up to ``tolerance``, relatively."""
    assert torch.isfinite(x).all(), "points contain NaN or Inf"
    tolerance = _tolerance(x.dtype) if tolerance is None else tolerance
    time = lift(x[..., 1:], curvature)[..., 0]
    gap = ((x[..., 0] - time).abs() / time).max().item() if x.numel() else 0.0
    assert gap <= tolerance, f"points are off the manifold: relative error {gap:.3g} in time exceeds {tolerance:.3g}"


def assert_permutation_equivariant(
    layer: Layer,
    x: Tensor,
    edge_index: Tensor,
    tolerance: float | None = None,
    seed: int = 0,
    edge_attr: Tensor | None = None,
) -> None:
    """Assert ``layer(P x, P edges) = P layer(x, edges)`` for a random permutation of nodes, and of edges.

    With ``edge_attr`` the layer gets it too, by that name.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(x.size(0), generator=generator).to(x.device)
    place = torch.empty_like(order)
    place[order] = torch.arange(x.size(0), device=x.device)
    shuffle = torch.randperm(edge_index.size(1), generator=generator).to(x.device)
    given, shuffled = ({}, {}) if edge_attr is None else ({"edge_attr": edge_attr}, {"edge_attr": edge_attr[shuffle]})
    permuted = layer(x[order], place[edge_index][:, shuffle], **shuffled)
    _assert_close(permuted, layer(x, edge_index, **given)[order], tolerance, "permuting the nodes changed the result")


def assert_translation_invariant(
    layer: Layer,
    x: Tensor,
    edge_index: Tensor,
    curvature: Curvature = -1.0,
    tolerance: float | None = None,
    seed: int = 0,
) -> None:
    r"""Assert the local translation theorem: for each node :math:`x`, moving it with its neighbourhood by
    :math:`T_{x \to y}`, :math:`y` a random point of the geodesic from the origin to :math:`x`, changes nothing.

    The layer must accept a bipartite graph: every edge gets a moved copy of its source.
    """
    generator = torch.Generator().manual_seed(seed)
    fraction = torch.rand(x.size(0), 1, generator=generator).to(x)
    moved = exp0(fraction * log0(x, curvature), curvature)
    source, target = edge_index
    moved_source = translate(x[target], moved[target], x[source], curvature)
    own_source = torch.arange(source.numel(), device=x.device)
    out = layer((moved_source, moved), torch.stack([own_source, target]))
    _assert_close(out, layer(x, edge_index), tolerance, "moving a neighbourhood along its geodesic changed the result")


def _assert_close(actual: Tensor, expected: Tensor, tolerance: float | None, message: str) -> None:
    tolerance = _tolerance(expected.dtype) if tolerance is None else tolerance
    torch.testing.assert_close(
        actual, expected, rtol=tolerance, atol=tolerance, msg=lambda detail: f"{message}\n{detail}"
    )
