"""A full disk and a folder that cannot be written to: one line, exit code 2, and nothing half-written."""

import os
import subprocess

import pytest
from nights import nightly

from .test_kills import CASES, check_files


def assert_refused(code: int, command) -> str:
    """Exit code 2 and, last, one line that says why. Returns the line."""
    assert code == 2, command.stderr
    (line,) = [line for line in command.stderr.splitlines() if line.startswith("error: ")]
    assert command.stderr.endswith(line + "\n") and "Traceback" not in command.stderr
    return line


@pytest.mark.parametrize(
    "name, limit",
    [
        *(("train", 3_000), ("search", 100_000), ("reproduce", 1_000), ("translate", 3_000)),
        *nightly(("train", 300), ("search", 3_000), ("translate", 300), ("translate", 10_000)),
    ],
)
def test_a_file_that_may_not_grow_is_one_line_and_not_half_there(forks, tmp_path, name, limit):
    """The system lets no file grow beyond a limit: a real process meets a real error, whichever file comes first."""
    case = CASES[name]
    case.prepare(tmp_path)
    code, command = forks.run(*case.begin, folder=tmp_path, limit=limit)
    assert_refused(code, command)
    check_files(tmp_path)
    assert not list(tmp_path.rglob("*.part"))
    code, command = forks.run(*case.go_on(tmp_path), folder=tmp_path)
    assert code == 0, command.stderr
    case.outcome(tmp_path)


@pytest.fixture
def small_disk(tmp_path):
    """Makes a file system of a few kilobytes at ``tmp_path / "disk"``, and larger."""
    disk = tmp_path / "disk"
    disk.mkdir()

    def make(kilobytes: int, *options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", ",".join((*options, f"size={kilobytes}k")), "none", str(disk)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"a file system of its own needs the right to mount one: {done.stderr.strip()}")

    yield disk, make
    subprocess.run(["umount", "--lazy", str(disk)], capture_output=True, check=False)


@pytest.mark.parametrize(
    "name, kilobytes",
    [
        *(("train", 40), ("search", 260), ("reproduce", 8), ("translate", 100)),
        *nightly(("train", 60), ("search", 48), ("search", 100), ("search", 400), ("translate", 40)),
    ],
)
def test_a_full_disk_is_one_line_and_with_more_room_it_goes_on(forks, small_disk, name, kilobytes):
    disk, make = small_disk
    make(kilobytes)
    case = CASES[name]
    case.prepare(disk)
    line = assert_refused(*forks.run(*case.begin, folder=disk))
    assert "No space left on device" in line or "disk is full" in line
    make(100_000, "remount")
    check_files(disk)
    assert not list(disk.rglob("*.part"))
    code, command = forks.run(*case.go_on(disk), folder=disk)
    assert code == 0, command.stderr
    case.outcome(disk)


@pytest.mark.parametrize("name", CASES)
def test_a_folder_that_cannot_be_written_to_is_one_line(forks, tmp_path, name):
    case = CASES[name]
    case.prepare(tmp_path)
    before = sorted(os.listdir(tmp_path))
    tmp_path.chmod(0o555)
    try:
        line = assert_refused(*forks.run(*case.begin, folder=tmp_path, obey=True))
    finally:
        tmp_path.chmod(0o755)
    assert line.endswith("(Permission denied)")
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("name", CASES)
def test_a_run_that_cannot_be_written_to_any_more_is_one_line(forks, tmp_path, name):
    """It goes on when it can."""
    case = CASES[name]
    case.prepare(tmp_path)
    command = forks.start(*case.begin, folder=tmp_path, kill_at=25 if name != "reproduce" else 8)
    assert command.wait() == -9
    (place,) = (tmp_path / folder for folder in ("run", "search", "records") if (tmp_path / folder).exists())
    places = [place, *(path for path in place.rglob("*") if path.is_dir())]
    for path in places:
        path.chmod(0o555)
    try:
        assert_refused(*forks.run(*case.go_on(tmp_path), folder=tmp_path, obey=True))
    finally:
        for path in places:
            path.chmod(0o755)
    code, command = forks.run(*case.go_on(tmp_path), folder=tmp_path)
    assert code == 0, command.stderr
    case.outcome(tmp_path)


def test_standard_output_on_a_full_disk_is_one_line(forks, tmp_path):
    if not os.path.exists("/dev/full"):
        pytest.skip("/dev/full is not there")
    code, command = forks.run("datasets", folder=tmp_path, stdout="/dev/full")
    assert assert_refused(code, command) == "error: the system refuses a file: No space left on device"
