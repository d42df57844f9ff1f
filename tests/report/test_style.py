import os
import sys

import matplotlib
import pytest

from hkconv.errors import InputError
from hkconv.report.style import HEAT_MAP, new_figure, series, text_color
from hkconv.viz import kernel_points_figure, repulsion_gradient_figure, save_figure

STARTS = {".svg": b"<?xml", ".pdf": b"%PDF-", ".png": b"\x89PNG\r\n\x1a\n"}


def test_series_can_be_told_apart_without_colours():
    looks = [series(number) for number in range(28)]
    assert len(set(looks)) == 28
    assert len({(look.linestyle, look.marker) for look in looks}) == 28
    for kinds in zip(*looks[:4]):
        assert len(set(kinds)) == 4


def test_numbers_can_be_read_on_every_colour():
    def luminance(rgb):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for name in (HEAT_MAP, f"{HEAT_MAP}_r"):
        colors = matplotlib.colormaps[name]
        for step in range(101):
            behind = luminance(colors(step / 100)[:3])
            text = 1.0 if text_color(step / 100, colors) == "white" else 0.0
            contrast = (max(behind, text) + 0.05) / (min(behind, text) + 0.05)
            assert contrast > 4.5, (name, step)


def test_greys_of_the_heat_map_keep_the_order_of_values():
    shades = [sum(matplotlib.colormaps[HEAT_MAP](step / 50)[:3]) for step in range(51)]
    assert shades == sorted(shades, reverse=True)


def test_the_users_settings_neither_change_a_figure_nor_are_changed(tmp_path):
    plain = save_figure(repulsion_gradient_figure(3), tmp_path / "plain.svg").read_bytes()
    with matplotlib.rc_context({"font.size": 30, "svg.hashsalt": "mine", "axes.grid": False}):
        theirs = save_figure(repulsion_gradient_figure(3), tmp_path / "theirs.svg").read_bytes()
        assert matplotlib.rcParams["font.size"] == 30
    assert theirs == plain


def test_without_matplotlib_one_line_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    with pytest.raises(InputError, match=r"figures need Matplotlib .*pip install 'hkconv\[viz\]'$"):
        repulsion_gradient_figure()


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
