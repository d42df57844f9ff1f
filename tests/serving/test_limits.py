import math

import pytest

from hkconv.errors import InputError
from hkconv.serving.limits import Limits


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
@pytest.mark.parametrize("name", ["max_bytes", "max_nodes", "max_edges", "max_seconds", "max_requests"])
def test_limits_are_positive(name, value):
    with pytest.raises(InputError, match=f"{name} must be a positive number, got {value}"):
        Limits(**{name: value})
