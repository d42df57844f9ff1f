r"""The paper's own solver: Riemannian gradient descent on equation (2) with the fixed step 0.0001.

.. math:: \tilde x_k \leftarrow \exp_{\tilde x_k}(-0.0001\, \operatorname{grad}_k \mathfrak L)

The paper says "until it converges" and nothing about the start. Here the start is a wrapped normal of radius
about 1, and it has converged when :data:`WINDOW` steps together lower the energy by less than the fraction
:data:`SMALLEST_DECREASE`. The descent crawls at the end, because rotating far points past each other changes
the energy little: 10 points in two dimensions take some 250 000 steps, ten to twenty seconds, and end 0.4 %
above the minimum.
"""

import math
import warnings

import numpy as np
import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.geometry.curvature import curvature_radius
from hkconv.points.energy import kernel_energy
from hkconv.points.random import random_points

STEP = 1e-4
WINDOW = 1000
SMALLEST_DECREASE = 1e-5
MAX_STEPS = 300_000
WEAKEST_CURVATURE = -1e-8  # In flatter space the distances within a unit of the origin are lost to rounding.
LONGEST_MOVE = 0.1  # Two points that start almost together would otherwise throw each other out of reach.


def descend(K: int, dim: int, curvature: float, seed: int) -> Tensor:
    """Where the descent from a random start ends, ``(K, dim+1)`` in float64. Warns where the steps run out."""
    if curvature > WEAKEST_CURVATURE:
        raise InputError(f'curvature must be at most {WEAKEST_CURVATURE:g} with method="gradient", got {curvature:g}')
    points = random_points(K, dim, curvature, seed, std=1 / math.sqrt(dim))
    R = curvature_radius(curvature)
    space = points[:, 1:].numpy() / R
    energy = kernel_energy(points, curvature).item()
    for _ in range(MAX_STEPS // WINDOW):
        for _ in range(WINDOW):
            space = descent_step(space, R)
        points = lorentz.lift(torch.from_numpy(space * R), curvature)
        before, energy = energy, kernel_energy(points, curvature).item()
        if before - energy < SMALLEST_DECREASE * energy:
            return points
    warnings.warn(
        f'gradient descent of K={K} kernel points in dim={dim} did not converge in {MAX_STEPS} steps; "optimal" does',
        stacklevel=2,
    )
    return points


def descent_step(space: np.ndarray, R: float) -> np.ndarray:
    r"""One step on the spatial parts of points in units of ``R``, ``(K, dim)``: :math:`\exp_x(-\mathrm{STEP}\, g)`,
    :math:`\exp_x(w)/R = \cosh(|w|/R)\, x/R + \sinh(|w|/R)\, w/|w|`, no point moving further than ``LONGEST_MOVE``.
    """
    gradient, slope = riemannian_gradient(space, R)
    move = np.minimum(STEP * slope, LONGEST_MOVE) / R
    return np.cosh(move)[:, None] * space - (np.sinh(move) / np.maximum(slope, 1e-300))[:, None] * gradient


def riemannian_gradient(space: np.ndarray, R: float) -> tuple[np.ndarray, np.ndarray]:
    r"""Riemannian gradient of the energy, for the spatial parts of points in units of ``R``, ``(K, dim)``.

    The gradient of :math:`d(x, y)` by :math:`x` is the unit vector at ``x`` that points away from ``y``,
    :math:`(x \cosh\delta - y) / \sinh\delta` with :math:`\delta = d/R`. It has the weight :math:`-2/d^2` for every
    other kernel point, and 1 for the origin.

    Returns:
        The spatial parts of the gradients, ``(K, dim)``, and their lengths, ``(K,)``.
    """
    radius = np.sqrt(_dot(space, space))
    time = np.sqrt(1 + radius * radius)
    cosh = np.multiply.outer(time, time) - space @ space.T
    itself = np.s_[:: len(space) + 1]
    cosh.flat[itself] = 2  # Any distance but 0 will do: its pull is struck out below.
    delta = np.arccosh(cosh)
    pull = 2 / (R * R * delta * delta * np.sinh(delta))
    pull.flat[itself] = 0
    outward = time / np.maximum(radius, 1e-300) - _dot(pull, cosh)
    gradient = pull @ space + outward[:, None] * space
    gradient_time = _dot(space, gradient) / time
    return gradient, np.sqrt(np.maximum(_dot(gradient, gradient) - gradient_time**2, 0))


def _dot(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.einsum("ij,ij->i", a, b)
