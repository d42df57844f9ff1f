import os

import pytest

from hkconv.errors import InputError
from hkconv.viz import kernel_points_figure, save_figure
from hkconv.viz.style import new_figure

STARTS = {".svg": b"<?xml", ".pdf": b"%PDF-", ".png": b"\x89PNG\r\n\x1a\n"}


@pytest.mark.parametrize("suffix, start", STARTS.items())
def test_each_format_and_the_same_bytes_again(tmp_path, suffix, start, monkeypatch):
    first = save_figure(kernel_points_figure([3]), tmp_path / f"first{suffix}").read_bytes()
    # Another day.
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    second = save_figure(kernel_points_figure([3]), tmp_path / f"second{suffix}").read_bytes()
    assert first.startswith(start)
    assert first == second
    assert b"dc:date" not in first and b"CreationDate" not in first


def test_an_older_file_is_replaced_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "figure.png"
    path.write_bytes(b"older")
    assert save_figure(new_figure(1, 1), str(path)) == path
    assert path.read_bytes().startswith(STARTS[".png"])
    assert os.listdir(tmp_path) == ["figure.png"]


@pytest.mark.parametrize("name", ["figure.jpg", "figure", "figure.SVG.gz"])
def test_unknown_suffix(tmp_path, name):
    with pytest.raises(InputError, match=r"^out must end in \.svg, \.pdf, \.png, got .*figure"):
        save_figure(new_figure(1, 1), tmp_path / name)


def test_places_that_cannot_be_written(tmp_path):
    with pytest.raises(InputError, match=r"folder .*nowhere does not exist"):
        save_figure(new_figure(1, 1), tmp_path / "nowhere" / "figure.svg")
    (tmp_path / "taken.svg").mkdir()
    with pytest.raises(InputError, match=r"taken\.svg cannot be written"):
        save_figure(new_figure(1, 1), tmp_path / "taken.svg")
    assert os.listdir(tmp_path) == ["taken.svg"]
