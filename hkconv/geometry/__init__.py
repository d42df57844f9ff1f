"""Hyperbolic geometry: pure functions in :mod:`hkconv.geometry.lorentz`, and a geoopt manifold on top."""
