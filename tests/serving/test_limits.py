import json
import math

import pytest

from hkconv.errors import InputError
from hkconv.serving.limits import LONGEST_MESSAGE, Limits, RefusalError, one_line


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
@pytest.mark.parametrize("name", ["max_bytes", "max_nodes", "max_edges", "max_seconds", "max_requests"])
def test_limits_are_positive(name, value):
    with pytest.raises(
        InputError, match=rf"{name} must be a (whole )?number (above 0|of at least 1) and at most .*, got {value}"
    ):
        Limits(**{name: value})


def test_a_message_is_one_line_of_bounded_length():
    assert one_line("a\n b\r\n\tc\u2028d") == "a b c d"
    long = one_line("x" * 10_000)
    assert len(long) == LONGEST_MESSAGE and long.endswith("x ...")
    assert one_line("x" * LONGEST_MESSAGE) == "x" * LONGEST_MESSAGE


def test_a_response_has_status_headers_and_one_line_of_json():
    response = RefusalError(503, "too\nbusy \U0001f600", {"Retry-After": "1"}).response()
    assert (response.status_code, response.headers["retry-after"]) == (503, "1")
    assert response.body.count(b"\n") == 0
    assert json.loads(response.body) == {"error": "too busy \U0001f600"}
