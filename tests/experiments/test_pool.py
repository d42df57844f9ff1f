import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from spoiling import number_of_process, refuse

from hkconv.errors import InputError
from hkconv.experiments.pool import SPOILED, Lost, results_of


def test_one_process_is_this_one():
    assert list(results_of(lambda job: (job, os.getpid()), [1, 2], 1)) == [(1, (1, os.getpid())), (2, (2, os.getpid()))]


def test_every_job_is_done_once():
    assert sorted(results_of(math.factorial, range(6), 2)) == [(job, math.factorial(job)) for job in range(6)]


def test_a_lost_process_is_told_of_and_replaced():
    jobs = [signal.SIGKILL, signal.SIGCONT, signal.SIGKILL, signal.SIGCONT]
    found = list(results_of(signal.raise_signal, jobs, 2))
    assert sorted(map(str, found)) == sorted([str((signal.SIGKILL, Lost(-9))), str((signal.SIGCONT, None))] * 2)
    assert "ended by signal 9, as happens when memory runs out" in str(Lost(-9))
    assert str(Lost(3)) == "its process ended with code 3"


def test_jobs_are_drawn_when_a_process_is_free():
    drawn = []

    def jobs():
        for job in range(5):
            drawn.append(job)
            yield job

    results = results_of(math.factorial, jobs(), 2)
    next(results)
    assert drawn == [0, 1]
    results.close()
    assert multiprocessing.active_children() == []


def test_ctrl_c_is_not_for_the_workers():
    before = signal.getsignal(signal.SIGINT)
    assert list(results_of(signal.getsignal, [signal.SIGINT], 2)) == [(signal.SIGINT, signal.SIG_IGN)]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_in_this_process_is_passed_on():
    with pytest.raises(ZeroDivisionError):
        list(results_of(lambda job: 1 / job, [0], 1))


@pytest.mark.parametrize("processes", [1, 2])
def test_bad_input_is_an_error_here_wherever_it_was_found(processes):
    with pytest.raises(InputError, match="this job cannot be used"):
        list(results_of(refuse, ["this job"], processes))
    assert multiprocessing.active_children() == []


def test_a_spoiled_process_is_replaced_even_where_there_is_one():
    found = list(results_of(number_of_process, ["a", "b", "spoil", "c"], 1, may_spoil=True))
    assert [job for job, _ in found] == ["a", "b", "spoil", "c"]
    first, second, spoiled, third = (result for _, result in found)
    assert first == second != third and os.getpid() not in (first, third)
    assert spoiled == Lost(SPOILED) and spoiled.is_spoiled and not Lost(-9).is_spoiled


def test_a_killed_parent_takes_its_workers_along(tmp_path):
    file = tmp_path / "worker"
    code = (
        "from spoiling import sleep_long\nfrom hkconv.experiments.pool import results_of\n"
        f"if __name__ == '__main__':\n    list(results_of(sleep_long, [{str(file)!r}], 2))\n"
    )
    script = tmp_path / "parent.py"
    script.write_text(code)
    paths = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path])
    parent = subprocess.Popen([sys.executable, str(script)], env={**os.environ, "PYTHONPATH": paths})
    waited_for(lambda: file.exists() and file.read_text())
    parent.kill()
    parent.wait()
    waited_for(lambda: not is_alive(int(file.read_text())))


def waited_for(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def is_alive(pid):
    """Whether a process runs; one that nobody has taken note of the end of is dead."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
