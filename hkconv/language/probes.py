r"""Structural probes: a linear map after which distances between words should be those of the syntax tree.

Euclidean after Hewitt and Manning (2019); hyperbolic after Chen et al., "Probing BERT in Hyperbolic Spaces" (2021).
Theirs maps to the Poincaré ball, :math:`q = Q \otimes \exp_o(P h)`; because :math:`Q \otimes \exp_o(v) = \exp_o(Q v)`,
the one matrix :math:`B = QP` says the same. States of an encoder in the Lorentz model are taken to the tangent space at
the origin before (:mod:`hkconv.language.probe_data`).
"""

import torch
from torch import Tensor

from hkconv.geometry import lorentz


class EuclideanProbe(torch.nn.Module):
    r"""Squared distances :math:`|B(h_i - h_j)|^2` and squared norms :math:`|B h_i|^2` after a linear map.

    Args:
        dim: dimension of the states.
        rank: rows of B.
        generator: where the first B comes from, uniform in [-0.05, 0.05].
    """

    def __init__(self, dim: int, rank: int, generator: torch.Generator):
        super().__init__()
        self.weight = torch.nn.Parameter(0.1 * torch.rand(rank, dim, generator=generator) - 0.05)

    def distances(self, states: Tensor) -> Tensor:
        """Predicted tree distances. Shapes: ``(B, n, dim) -> (B, n, n)``."""
        return _pairwise(states @ self.weight.t()).square()

    def depths(self, states: Tensor) -> Tensor:
        """Predicted tree depths. Shapes: ``(B, n, dim) -> (B, n)``."""
        return (states @ self.weight.t()).square().sum(-1)


class HyperbolicProbe(EuclideanProbe):
    r"""Squared distances :math:`d(\exp_o(B h_i), \exp_o(B h_j))^2` and :math:`d(o, \exp_o(B h_i))^2`, curvature -1.

    The exponential map keeps distances to the origin, so that the second is :math:`|B h_i|^2`: predicted depths are
    those of the Euclidean probe.
    """

    def distances(self, states: Tensor) -> Tensor:
        r"""Predicted tree distances. Shapes: ``(B, n, dim) -> (B, n, n)``.

        With :math:`p` and :math:`q` in the Poincaré ball, :math:`\sinh(d/2) = |p - q| \cosh(r_p/2) \cosh(r_q/2)`,
        :math:`r` being the distance to the origin and :math:`\cosh^2(r/2) = (1 + x_t)/2`. Differences are taken before
        they are squared, so nothing cancels, and only the distances, not a vector for every pair, are kept in between.
        """
        tangent = torch.nn.functional.pad(states @ self.weight.t(), (1, 0))
        points = lorentz.exp0(tangent)
        stretch = ((1 + points[..., 0]) / 2).sqrt()
        apart = _pairwise(lorentz.to_poincare(points)) * stretch.unsqueeze(1) * stretch.unsqueeze(2)
        return (2 * torch.asinh(apart)).square()


PROBES = {"euclidean": EuclideanProbe, "hyperbolic": HyperbolicProbe}


def distance_loss(predicted: Tensor, gold: Tensor, present: Tensor) -> Tensor:
    r"""Mean over sentences of :math:`\frac{1}{n^2} \sum_{i,j} |d^2_{ij} - t_{ij}|`.

    Args:
        predicted: predicted distances, ``(B, n, n)``.
        gold: tree distances, ``(B, n, n)``.
        present: False at padding, ``(B, n)``.
    """
    error = (predicted - gold).abs().masked_fill(~(present.unsqueeze(1) & present.unsqueeze(2)), 0)
    return (error.sum((1, 2)) / present.sum(1).square()).mean()


def depth_loss(predicted: Tensor, gold: Tensor, present: Tensor) -> Tensor:
    r"""Mean over sentences of :math:`\frac1n \sum_i ||B h_i|^2 - t_i|`. Shapes: ``(B, n)`` each."""
    error = (predicted - gold).abs().masked_fill(~present, 0)
    return (error.sum(1) / present.sum(1)).mean()


def chain_distances(present: Tensor) -> Tensor:
    """The baseline that a sentence is a chain of its words: :math:`|i - j|`. Shapes: ``(B, n) -> (B, n, n)``."""
    places = chain_depths(present)
    return (places.unsqueeze(1) - places.unsqueeze(2)).abs()


def chain_depths(present: Tensor) -> Tensor:
    """The depths in a chain that hangs from its first word: :math:`i`. Shapes: ``(B, n) -> (B, n)``."""
    return torch.arange(present.size(1), device=present.device).float().expand_as(present)


def _pairwise(vectors: Tensor) -> Tensor:
    """Distances between all vectors of a sentence, from differences, with gradient 0 where they vanish."""
    return torch.cdist(vectors, vectors, compute_mode="donot_use_mm_for_euclid_dist")
