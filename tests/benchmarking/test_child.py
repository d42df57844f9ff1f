from hkconv.benchmarking.child import failure_line, probe_memory
from hkconv.benchmarking.shapes import Shape

SHAPE = Shape(1000, 100000, 2, 64)


def test_a_child_finds_the_peak():
    found = probe_memory("gcn", SHAPE, "uniform", 0, limit=300)
    # Messages of all edges exist at once; their number times the width is the least there can be.
    assert found["bytes"] > 4 * SHAPE.edges * SHAPE.dim


def test_a_child_that_takes_too_long_is_ended():
    assert probe_memory("gcn", SHAPE, "uniform", 0, limit=0.05) == {"failed": "was not ready within 0.05 s"}


def test_a_child_that_fails_says_why():
    assert "KeyError: 'nonsense'" in probe_memory("nonsense", SHAPE, "uniform", 0, limit=300)["failed"]


def test_the_reason_is_the_last_line():
    assert failure_line("Traceback\n  here\nValueError: no\n\n") == "ValueError: no"
    assert failure_line("") == ""
