import subprocess
import sys

import pytest
import torch

import hkconv
from hkconv.engine import measuring
from hkconv.engine.measuring import (
    LEAST_REPEATS,
    MOST_REPEATS_A_ROUND,
    ROUNDS,
    Timing,
    ask,
    available_bytes,
    failure_line,
    header,
    measure,
    peak_resident_bytes,
    peak_rss,
    resident_bytes,
    timer_for,
    total_bytes,
)

SIZE = 64 << 20

CODE = f"""
from hkconv.engine import measuring
{{setup}}
peak = measuring.peak_rss(lambda: b"x" * {SIZE})
print(peak.bytes, peak.method)
"""


def test_median_quartiles_and_all_times():
    timing = Timing((5.0, 1.0, 2.0, 4.0, 3.0)).as_dict()
    assert (timing["median"], timing["min"], timing["quartiles"], timing["iqr"]) == (3.0, 1.0, [2.0, 4.0], 2.0)
    assert timing["seconds"] == [5.0, 1.0, 2.0, 4.0, 3.0]


def test_one_time_has_no_spread():
    assert Timing((2.0,)).as_dict()["iqr"] == 0


def take(seconds, budget):
    """Measure calls that take the given seconds each on a fake clock; returns the order and the samples."""
    order, samples = [], {}

    def timer(call):
        order.append(call())
        return seconds[order[-1]]

    measure({name: lambda name=name: name for name in seconds}, budget, timer, samples)
    return order, samples


def test_calls_take_turns_and_share_the_budget():
    order, samples = take({"slow": 1.0, "fast": 0.25}, budget=20)
    turns = [name for number, name in enumerate(order) if number == 0 or order[number - 1] != name]
    assert turns == ["slow", "fast"] * ROUNDS
    assert sum(samples["slow"]) == pytest.approx(10)
    assert sum(samples["fast"]) == pytest.approx(10)


def test_a_slow_call_is_repeated_as_often_as_it_must_be_and_no_more():
    _, samples = take({"slow": 100.0, "fast": 0.001}, budget=1)
    assert len(samples["slow"]) == LEAST_REPEATS
    assert LEAST_REPEATS < len(samples["fast"]) <= ROUNDS * MOST_REPEATS_A_ROUND


def test_an_interrupt_loses_no_time_taken():
    samples = {}

    def timer(call):
        return call()

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure({"first": lambda: 2.0, "second": interrupted}, 1, timer, samples)
    assert samples == {"first": [2.0], "second": []}


def test_the_wall_timer_runs_the_call():
    ran = []
    assert timer_for(torch.device("cpu"))(lambda: ran.append(1)) >= 0
    assert ran == [1]


def measured(setup=""):
    done = subprocess.run([sys.executable, "-c", CODE.format(setup=setup)], capture_output=True, text=True, check=True)
    size, _, method = done.stdout.strip().partition(" ")
    return int(size), method


def test_sees_a_known_allocation():
    size, _ = measured()
    assert size == pytest.approx(SIZE, rel=0.2)


def test_sees_it_where_the_peak_cannot_be_reset():
    size, method = measured("measuring.forget_peak = lambda: False")
    assert method == "peak RSS without reset"
    assert size == pytest.approx(SIZE, rel=0.2)


def test_an_earlier_peak_does_not_hide_it():
    size, method = measured(f"b'x' * {4 * SIZE}")
    if method == "peak RSS without reset":
        pytest.skip("this system cannot reset the peak")
    assert size == pytest.approx(SIZE, rel=0.2)


def test_says_nothing_where_an_earlier_peak_hides_it(monkeypatch):
    monkeypatch.setattr(measuring, "forget_peak", lambda: False)
    monkeypatch.setattr(measuring, "peak_resident_bytes", lambda: 100 * SIZE)
    assert peak_rss(lambda: None).bytes is None


def test_what_the_system_says_is_consistent():
    assert 0 < resident_bytes() <= peak_resident_bytes() * 1.01
    assert total_bytes() is None or 0 < available_bytes() <= total_bytes()


def test_a_limit_of_the_container_counts(monkeypatch, tmp_path):
    limit = tmp_path / "memory.max"
    monkeypatch.setattr(measuring, "CGROUP_LIMITS", (limit,))
    free = available_bytes()
    limit.write_text("max\n")
    assert available_bytes() == pytest.approx(free, rel=0.1)
    limit.write_text("1000\n")
    assert available_bytes() == 1000


def test_the_reason_is_the_last_line():
    assert failure_line("Traceback\n  here\nValueError: no\n\n") == "ValueError: no"
    assert failure_line("") == ""


def test_a_fresh_process_answers_or_says_why_it_does_not():
    assert ask("builtins:dict", {"a": [1, None]}, limit=60) == {"a": [1, None]}
    assert ask("builtins:open", {"file": "absent"}, limit=60)["failed"].startswith("FileNotFoundError")
    assert ask("subprocess:run", {"args": ["sleep", "9"]}, limit=0.5) == {"failed": "was not ready within 0.5 s"}


def test_a_result_begins_with_where_and_with_what_it_was_found():
    found = header("layers", torch.device("cpu"), 3, {"rounds": 2})
    assert (found["benchmark"], found["device"], found["seed"], found["protocol"]) == (
        "layers",
        "cpu",
        3,
        {"rounds": 2},
    )
    assert found["versions"]["hkconv"] == hkconv.__version__ and found["versions"]["torch"] == torch.__version__
    assert found["machine"]["memory_bytes"] == total_bytes() and "gpu" not in found["machine"]
    assert found["machine"]["cores"] >= 1
