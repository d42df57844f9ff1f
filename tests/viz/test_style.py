import sys

import matplotlib
import pytest

from hkconv.errors import InputError
from hkconv.viz import repulsion_gradient_figure, save_figure
from hkconv.viz.style import HEAT_MAP, series, text_colour


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
        colours = matplotlib.colormaps[name]
        for step in range(101):
            behind = luminance(colours(step / 100)[:3])
            text = 1.0 if text_colour(step / 100, colours) == "white" else 0.0
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
