"""The Lorentz model as pure functions, under one name: ``from hkconv.geometry import lorentz``.

Every function takes ``curvature=-1.0``, a negative float or a 0-d tensor; points have ``n+1``
coordinates, time first; leading dimensions broadcast.
"""

from hkconv.geometry.centroid import centroid
from hkconv.geometry.distributions import wrapped_normal, wrapped_normal_log_prob
from hkconv.geometry.hyperboloid import from_klein, from_poincare, inner, lift, origin, to_klein, to_poincare
from hkconv.geometry.maps import exp, exp0, log, log0, translate, transport
from hkconv.geometry.relative import dist, ominus, oplus

__all__ = [
    "centroid",
    "dist",
    "exp",
    "exp0",
    "from_klein",
    "from_poincare",
    "inner",
    "lift",
    "log",
    "log0",
    "ominus",
    "oplus",
    "origin",
    "to_klein",
    "to_poincare",
    "translate",
    "transport",
    "wrapped_normal",
    "wrapped_normal_log_prob",
]
