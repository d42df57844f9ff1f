import errno
import fcntl
import json
import os
import platform
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from hkconv.atomic import whole_file, write_bytes
from hkconv.engine.files import (
    InUseError,
    append_json,
    hold_new,
    is_empty,
    locked,
    make_folder,
    read_json,
    remove_parts,
    write_json,
)
from hkconv.errors import InputError


def test_json_round_trip(tmp_path):
    write_json(tmp_path / "a.json", {"mean": 0.1, "name": "±"})
    assert read_json(tmp_path / "a.json", "the file") == {"mean": 0.1, "name": "±"}
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    target = tmp_path / "a.bin"
    write_bytes(target, b"old")

    def full_disk(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(InputError, match=r"^out .*a\.bin cannot be written \(No space left on device\)$"):
        write_bytes(target, b"new", "out")
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.bin"]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt(), InputError("bad text")])
def test_a_block_that_fails_leaves_no_file(tmp_path, error):
    with pytest.raises((InputError, KeyboardInterrupt)), whole_file(tmp_path / "a.bin") as file:
        file.write(b"half")
        raise error
    assert os.listdir(tmp_path) == []


def test_an_interrupt_right_after_the_file_got_its_name_is_an_interrupt(tmp_path, monkeypatch):
    def interrupted(*arguments):
        replace(*arguments)
        raise KeyboardInterrupt

    replace = os.replace
    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_bytes(tmp_path / "a.bin", b"whole")
    assert (tmp_path / "a.bin").read_bytes() == b"whole"


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path):
    (tmp_path / "outside").write_bytes(b"precious")
    (tmp_path / "run").mkdir()
    for name in ("file", "log"):
        (tmp_path / "run" / name).symlink_to(tmp_path / "outside")
    write_bytes(tmp_path / "run" / "file", b"new")
    assert (tmp_path / "run" / "file").read_bytes() == b"new"
    with pytest.raises(InputError, match=r"the log .* cannot be written"):
        append_json(tmp_path / "run" / "log", {"step": 1}, "the log")
    assert (tmp_path / "outside").read_bytes() == b"precious"


def test_what_a_kill_left_is_no_file_and_is_removed(tmp_path):
    """A kill between two calls leaves the file that was being written under its hidden name."""
    code = (
        "import os, pathlib, signal\n"
        "from hkconv.atomic import whole_file\n"
        "with whole_file(pathlib.Path('a.json')) as file:\n"
        "    file.write(b'half')\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path).returncode == -9
    (left,) = os.listdir(tmp_path)
    assert left.startswith(".a.json.") and is_empty(tmp_path)
    deeper, mine = tmp_path / "mlp" / "split0", tmp_path / "notes.part"
    deeper.mkdir(parents=True)
    (deeper / ".b.json.x.part").touch()
    mine.touch()
    assert not is_empty(tmp_path)
    remove_parts(tmp_path)
    assert sorted(path for path in tmp_path.rglob("*") if path.is_file()) == [mine]


def test_a_file_is_on_the_disk_before_it_gets_its_name_and_the_name_after(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(handle):
        found = os.fstat(handle)
        place = "folder" if stat.S_ISDIR(found.st_mode) else "file"
        calls.append((place, found.st_ino if place == "folder" else found.st_size))
        fsync(handle)

    def noted_replace(*arguments):
        replace(*arguments)
        calls.append(("name", arguments[1].name))

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    folder = ("folder", tmp_path.stat().st_ino)
    write_bytes(tmp_path / "a.bin", b"12345")
    assert calls == [("file", 5), ("name", "a.bin"), folder]
    calls.clear()
    append_json(tmp_path / "log", 1, "the log")
    append_json(tmp_path / "log", 2, "the log")
    # Later lines need no new name.
    assert calls == [("file", 2), folder, ("file", 4)]


@pytest.mark.parametrize("number, is_told", [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_folder_that_cannot_be_synced_is_told_of_unless_its_file_system_never_can(
    tmp_path, monkeypatch, number, is_told
):
    fsync = os.fsync

    def refuse_folders(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(handle)

    monkeypatch.setattr(os, "fsync", refuse_folders)
    if is_told:
        with pytest.raises(InputError, match=r"a\.bin cannot be written \(Input/output error\)"):
            write_bytes(tmp_path / "a.bin", b"new")
    else:
        write_bytes(tmp_path / "a.bin", b"new")
        assert (tmp_path / "a.bin").read_bytes() == b"new"


def test_files_have_the_usual_permissions(tmp_path):
    write_bytes(tmp_path / "ours", b"")
    (tmp_path / "usual").touch()
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_nan_is_refused(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "a.json", {"loss": float("nan")})
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("content, message", [("{", "not valid JSON"), ("[1]", "must hold a JSON object")])
def test_damaged_json(tmp_path, content, message):
    (tmp_path / "a.json").write_text(content)
    with pytest.raises(InputError, match=f"the recipe is damaged: .*{message}"):
        read_json(tmp_path / "a.json", "the recipe")


def test_missing_json(tmp_path):
    with pytest.raises(InputError, match="the recipe cannot be read"):
        read_json(tmp_path / "a.json", "the recipe")


def test_make_folder_makes_parents(tmp_path):
    assert make_folder(tmp_path / "a" / "b", "out").is_dir()


def test_a_folder_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nowhere")):
        with pytest.raises(InputError, match="out must be a folder that can be written to"):
            make_folder(path, "out")
        with pytest.raises(InputError, match="out must be a folder that can be written to"), locked(path, "out"):
            pytest.fail("it cannot be held")


def test_half_a_line_does_not_swallow_the_next(tmp_path):
    path = tmp_path / "log"
    append_json(path, {"step": 1}, "the log")
    with path.open("a") as file:
        file.write('{"step"')
    append_json(path, {"step": 2}, "the log")
    assert path.read_text().splitlines() == ['{"step": 1}', '{"step"', '{"step": 2}']
    with pytest.raises(InputError, match=r"the log .* cannot be written"):
        append_json(tmp_path, {}, "the log")


def test_a_line_that_does_not_fit_is_not_half_there(tmp_path, monkeypatch):
    path = tmp_path / "log"
    append_json(path, {"step": 1}, "the log")
    write = os.write

    def full_disk(handle, content):
        if len(content) < 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(handle, content[:4])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full_disk)
        with pytest.raises(InputError, match=r"the log .*log cannot be written \(No space left on device\)"):
            append_json(path, {"step": 2}, "the log")
    assert path.read_text() == '{"step": 1}\n'


def test_many_processes_append_whole_lines(tmp_path):
    code = (
        "import pathlib, sys\n"
        "from hkconv.engine.files import append_json\n"
        "for step in range(200):\n"
        "    append_json(pathlib.Path('log'), {'who': sys.argv[1], 'step': step, 'more': 'x' * 5000}, 'the log')\n"
    )
    started = [subprocess.Popen([sys.executable, "-c", code, who], cwd=tmp_path) for who in "ab"]
    assert [process.wait() for process in started] == [0, 0]
    found = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert sorted((line["who"], line["step"]) for line in found) == [(who, step) for who in "ab" for step in range(200)]


def test_a_folder_is_held_by_one_and_the_other_hears_by_whom(tmp_path):
    folder = tmp_path / "deep" / "run"
    with locked(folder, "out"):
        assert is_empty(folder)
        place = f"process {os.getpid()} on {platform.node()} since 20"
        message = f"^out {folder} is in use by {place}.*: wait for it or stop it$"
        with pytest.raises(InUseError, match=message), locked(folder, "out"):
            pytest.fail("two hold it")
    # Nothing was written to it, so that nothing stays.
    assert os.listdir(tmp_path) == []
    with locked(folder, "out"):
        write_bytes(folder / "result", b"")
    assert os.listdir(folder) == ["result"]


def test_a_killed_process_holds_nothing(tmp_path):
    code = (
        "import pathlib, time\n"
        "from hkconv.engine.files import locked\n"
        "with locked(pathlib.Path('run'), 'out'):\n"
        "    print('held', flush=True)\n"
        "    time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(InUseError, match=f"in use by process {holder.pid} on"), locked(tmp_path / "run", "out"):
            pytest.fail("two hold it")
        holder.send_signal(signal.SIGKILL)
    with locked(tmp_path / "run", "out") as folder:
        assert is_empty(folder)
    assert os.listdir(tmp_path / "run") == []


def test_of_many_who_come_and_go_one_at_a_time_holds_a_folder(tmp_path):
    """The file of a lock is removed while others open it: none of them may hold what is not there any more."""
    inside, most, turns = [], [], []

    def come_and_go(who):
        for _ in range(60):
            try:
                with locked(tmp_path / "run", "out"):
                    inside.append(who)
                    most.append(len(inside))
                    turns.append(who)
                    inside.remove(who)
            except InUseError:
                pass

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(come_and_go, range(8)))
    assert max(most) == 1 and len(set(turns)) > 1
    assert not list(tmp_path.rglob(".*"))


def test_a_folder_that_goes_while_it_is_made_is_made_anew(tmp_path, monkeypatch):
    """mkdir looks a second time at what it found, and somebody may have removed it in between."""
    mkdir, left = Path.mkdir, [1]

    def late(folder, *args, **kwargs):
        if left:
            left.pop()
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(folder))
        mkdir(folder, *args, **kwargs)

    monkeypatch.setattr(Path, "mkdir", late)
    with locked(tmp_path / "run", "out") as folder:
        assert folder.is_dir()


def test_a_lock_whose_file_was_removed_in_the_same_moment_is_taken_anew(tmp_path, monkeypatch):
    flock, left = fcntl.flock, [1]

    def late(handle, operation):
        if left:
            left.pop()
            os.unlink(tmp_path / ".hkconv-lock")
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with locked(tmp_path, "out"), pytest.raises(InUseError), locked(tmp_path, "out"):
        pytest.fail("two hold it")


def test_without_locks_of_the_file_system_nobody_is_kept_out(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with locked(tmp_path, "out"), locked(tmp_path, "out"):
        write_bytes(tmp_path / "a", b"")
    assert os.listdir(tmp_path) == ["a"]


def test_what_a_lock_says_is_one_printable_line(tmp_path):
    with locked(tmp_path, "out"):
        (tmp_path / ".hkconv-lock").write_bytes(b"\x1b[2Jsomebody\n\xff" + b"x" * 10_000)
        with pytest.raises(InUseError) as refused, locked(tmp_path, "out"):
            pytest.fail("two hold it")
    message = str(refused.value)
    assert "\x1b" not in message and "\n" not in message and "somebody" in message and len(message) < 1000


def test_a_lock_is_held_by_a_command_with_arguments_that_are_no_text(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["hkconv", "train", os.fsdecode(b"caf\xe9")])
    with locked(tmp_path, "out"), pytest.raises(InUseError, match="hkconv train"), locked(tmp_path, "out"):
        pytest.fail("two hold it")
    assert not os.listdir(tmp_path)


def test_the_mask_of_new_files_is_obeyed_and_left_alone(tmp_path, monkeypatch):
    """Who changes it changes it for all threads."""
    before = os.umask(0o027)
    try:
        monkeypatch.setattr(os, "umask", lambda mask: pytest.fail("changed"))
        write_bytes(tmp_path / "a", b"")
    finally:
        monkeypatch.undo()
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640


def test_a_new_run_clears_what_a_killed_one_began_to_write(tmp_path):
    (tmp_path / ".recipe.json.abc.part").write_text("half")
    with ExitStack() as held:
        hold_new(held, str(tmp_path), "tree")
        assert os.listdir(tmp_path) == [".hkconv-lock"]


def test_two_new_runs_of_the_same_second_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with ExitStack() as held:
        folders = [hold_new(held, None, "tree") for _ in range(3)]
        assert len(set(folders)) == 3 and all(path.is_dir() for path in folders)
