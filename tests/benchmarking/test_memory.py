import subprocess
import sys

import pytest

from hkconv.benchmarking import memory
from hkconv.benchmarking.memory import available_bytes, peak_resident_bytes, peak_rss, resident_bytes, total_bytes

SIZE = 64 << 20

CODE = f"""
from hkconv.benchmarking import memory
{{setup}}
peak = memory.peak_rss(lambda: b"x" * {SIZE})
print(peak.bytes, peak.method)
"""


def measured(setup=""):
    done = subprocess.run([sys.executable, "-c", CODE.format(setup=setup)], capture_output=True, text=True, check=True)
    size, _, method = done.stdout.strip().partition(" ")
    return int(size), method


def test_sees_a_known_allocation():
    size, _ = measured()
    assert size == pytest.approx(SIZE, rel=0.2)


def test_sees_it_where_the_peak_cannot_be_reset():
    size, method = measured("memory.forget_peak = lambda: False")
    assert method == "peak RSS without reset"
    assert size == pytest.approx(SIZE, rel=0.2)


def test_an_earlier_peak_does_not_hide_it():
    size, method = measured(f"b'x' * {4 * SIZE}")
    if method == "peak RSS without reset":
        pytest.skip("this system cannot reset the peak")
    assert size == pytest.approx(SIZE, rel=0.2)


def test_says_nothing_where_an_earlier_peak_hides_it(monkeypatch):
    monkeypatch.setattr(memory, "forget_peak", lambda: False)
    monkeypatch.setattr(memory, "peak_resident_bytes", lambda: 100 * SIZE)
    assert peak_rss(lambda: None).bytes is None


def test_what_the_system_says_is_consistent():
    assert 0 < resident_bytes() <= peak_resident_bytes() * 1.01
    assert total_bytes() is None or 0 < available_bytes() <= total_bytes()


def test_a_limit_of_the_container_counts(monkeypatch, tmp_path):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "CGROUP_LIMITS", (limit,))
    free = available_bytes()
    limit.write_text("max\n")
    assert available_bytes() == pytest.approx(free, rel=0.1)
    limit.write_text("1000\n")
    assert available_bytes() == 1000
