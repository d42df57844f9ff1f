"""Hyperbolic geometry: pure functions in :mod:`hkconv.geometry.lorentz`, and a geoopt manifold on top."""

from hkconv.geometry import lorentz

__all__ = ["lorentz"]
