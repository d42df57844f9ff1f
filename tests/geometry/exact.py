"""Sixty-digit truth. Spatial coordinates are taken as exact; the time coordinate is computed here."""

import mpmath
from mpmath import mpf
from torch import Tensor

mpmath.mp.dps = 60
Point = list[mpf]


def radius(curvature: float) -> mpf:
    return 1 / mpmath.sqrt(-mpf(curvature))


def numbers(values: Tensor) -> list[mpf]:
    return [mpf(value) for value in values.tolist()]


def point(x: Tensor, curvature: float) -> Point:
    """The point over the spatial coordinates of ``x``, a tensor of shape ``(n+1,)``."""
    s = numbers(x[1:])
    return [mpmath.sqrt(radius(curvature) ** 2 + mpmath.fdot(s, s)), *s]


def inner(x: Point, y: Point) -> mpf:
    return mpmath.fdot(x[1:], y[1:]) - x[0] * y[0]


def dist(x: Point, y: Point, curvature: float) -> mpf:
    return mpf(0) if x == y else radius(curvature) * mpmath.acosh(mpf(curvature) * inner(x, y))


def ominus(u: Point, x: Point, curvature: float) -> Point:
    R = radius(curvature)
    time = -inner(x, u) / R
    c = (u[0] + time) / (R + x[0])
    return [time, *(a - c * b for a, b in zip(u[1:], x[1:]))]


def centroid(points: list[Point], weight: list[mpf], curvature: float) -> tuple[Point, mpf]:
    """The centroid and its mass."""
    s = [mpmath.fdot(weight, column) for column in zip(*points)]
    mass = mpmath.sqrt(-inner(s, s)) / radius(curvature)
    return [a / mass for a in s], mass


def length(s: list[mpf]) -> mpf:
    return mpmath.sqrt(mpmath.fdot(s, s))


def gap(s: Tensor, exact: list[mpf]) -> mpf:
    """Euclidean distance of coordinates from their exact values."""
    return length([a - b for a, b in zip(numbers(s), exact)])
