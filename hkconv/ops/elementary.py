r"""Exponential and logarithm for Numba kernels, without a call: a loop of calls cannot use the vector units.

In float32 both are polynomials after the usual reduction, within 2e-7 of the true value; float64 takes those of the
mathematical library.
"""

import math

import numpy as np
from numba import float32, types
from numba.extending import overload

_EXACT = {"error_model": "numpy", "nogil": True, "fastmath": {"contract"}, "forceinline": True}

LOG2_E = np.float32(1.4426950408889634)
# ln 2 in two parts, the first short enough that its multiples are exact.
LN2_HIGH, LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
SQRT2 = np.float32(1.4142135623730951)
ONE, TWO, HALF = np.float32(1), np.float32(2), np.float32(0.5)
# Beyond, the result is not a normal number: 1/(1 + exp(x)) is 0 or 1 there in any case.
EXP_LOW, EXP_HIGH = np.float32(-87), np.float32(88)
TAYLOR = tuple(np.float32(1 / math.factorial(i)) for i in range(2, 8))
ATANH = tuple(np.float32(2 / (2 * i + 1)) for i in range(1, 6))


def exp(x):
    """exp(x), for float32 between exp(-87) and exp(88)."""


def log1p(y):
    """log(1 + y) for y >= 0."""


@overload(exp, jit_options=_EXACT)
def _exp(x):
    if x == types.float64:
        return lambda x: math.exp(x)

    def in_float32(x):
        x = min(max(x, EXP_LOW), EXP_HIGH)
        power = math.floor(x * LOG2_E + HALF)
        power = float32(power)
        rest = (x - power * LN2_HIGH) - power * LN2_LOW
        tail = TAYLOR[5]
        tail = TAYLOR[4] + rest * tail
        tail = TAYLOR[3] + rest * tail
        tail = TAYLOR[2] + rest * tail
        tail = TAYLOR[1] + rest * tail
        tail = TAYLOR[0] + rest * tail
        scale = np.int32((np.int32(power) + np.int32(127)) << np.int32(23)).view(np.float32)
        return scale * (ONE + (rest + rest * rest * tail))

    return in_float32


@overload(log1p, jit_options=_EXACT)
def _log1p(y):
    if y == types.float64:
        return lambda y: math.log1p(y)

    def in_float32(y):
        w = ONE + y
        bits = np.float32(w).view(np.int32)
        power = np.int32((bits >> np.int32(23)) - np.int32(127))
        mantissa = np.int32((bits & np.int32(0x7FFFFF)) | np.int32(0x3F800000)).view(np.float32)
        large = mantissa > SQRT2
        mantissa = mantissa * HALF if large else mantissa
        power = float32(power) + (ONE if large else np.float32(0))
        s = (mantissa - ONE) / (mantissa + ONE)
        s2 = s * s
        tail = ATANH[4]
        tail = ATANH[3] + s2 * tail
        tail = ATANH[2] + s2 * tail
        tail = ATANH[1] + s2 * tail
        tail = ATANH[0] + s2 * tail
        lost = (y - (w - ONE)) / w  # what rounding 1 + y dropped
        return power * LN2_HIGH + (power * LN2_LOW + (TWO * s + (s * s2 * tail + lost)))

    return in_float32
