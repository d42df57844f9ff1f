import os
from pathlib import Path

import pytest

from hkconv.errors import InputError
from hkconv.training.files import append_json, make_folder, read_json, write_bytes, write_json


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
    with pytest.raises(OSError, match="No space"):
        write_bytes(target, b"new")
    assert target.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.bin"]


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
