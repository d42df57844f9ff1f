"""Cases for the nightly set."""

import pytest


def nightly(*cases: object) -> list:
    """More of the same for a longer night: a tuple is the arguments of a case, all else its only one."""
    mark = pytest.mark.nightly
    return [
        pytest.param(*case, marks=mark) if isinstance(case, tuple) else pytest.param(case, marks=mark) for case in cases
    ]
