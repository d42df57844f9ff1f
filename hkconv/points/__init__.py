"""Kernel points: the energy of the paper's equation (2), its minimizers, and the random variant."""

from hkconv.points.energy import kernel_energy
from hkconv.points.kernel_points import kernel_points

__all__ = ["kernel_energy", "kernel_points"]
