import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hkconv.engine.files import (
    append_json,
    is_empty,
    make_folder,
    read_json,
    remove_parts,
    whole_file,
    write_bytes,
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
        "from hkconv.engine.files import whole_file\n"
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
