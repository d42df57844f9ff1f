import numpy as np
import pytest
from viz_artists import lines, place

import hkconv
from hkconv.errors import InputError
from hkconv.geometry.lorentz import to_poincare
from hkconv.viz import kernel_points_figure
from hkconv.viz.disk import GEODESIC


def sheets_and_disks(figure):
    return figure.axes[::2], figure.axes[1::2]


def test_the_papers_figure_has_five_and_ten_points_before_and_after():
    sheets, disks = sheets_and_disks(kernel_points_figure())
    titles = ["K = 5", "K = 5, translated", "K = 10", "K = 10, translated"]
    assert [axes.get_title() for axes in sheets] == titles
    assert [axes.name for axes in sheets] == ["3d"] * 4
    assert [axes.name for axes in disks] == ["rectilinear"] * 4
    for axes, number in zip([*sheets, *disks], [5, 5, 10, 10] * 2):
        assert len(place(axes, "_kernel points")) == number
        assert len(lines(axes, GEODESIC)) == number - 1


def test_points_are_those_of_the_library():
    expected = hkconv.kernel_points(7, 2)
    (sheet, _), (disk, _) = sheets_and_disks(kernel_points_figure([7]))
    assert place(disk, "_kernel points") == pytest.approx(to_poincare(expected).numpy())
    assert place(sheet, "_kernel points") == pytest.approx(expected[:, [1, 2, 0]].numpy())


def test_translated_points_are_those_of_moebius_addition():
    target = (-0.3, 0.5)
    _, (disk, moved) = sheets_and_disks(kernel_points_figure([6], target=target))
    z, a = place(disk, "_kernel points") @ np.array([1, 1j]), complex(*target)
    expected = (z + a) / (1 + a.conjugate() * z)
    assert place(moved, "_kernel points") @ np.array([1, 1j]) == pytest.approx(expected)


@pytest.mark.parametrize("start", [None, 0, 3])
def test_geodesics_go_from_the_start_to_every_other_point_and_stay_on_the_sheet(start):
    for axes in kernel_points_figure([5], start=start).axes:
        points = place(axes, "_kernel points")
        number = 4 if start is None else start
        assert place(axes, "_start")[0] == pytest.approx(points[number])
        ways = lines(axes, GEODESIC)
        assert [way[0] for way in ways] == [pytest.approx(points[number])] * 4
        assert np.array([way[-1] for way in ways]) == pytest.approx(np.delete(points, number, 0))
        if axes.name == "3d":
            x, y, time = np.concatenate(ways).T
            assert time**2 - x**2 - y**2 == pytest.approx(np.ones(len(time)))


def test_one_point_has_no_geodesic():
    figure = kernel_points_figure([1])
    assert place(figure.axes[1], "_kernel points") == pytest.approx(np.zeros((1, 2)))
    assert lines(figure.axes[1], GEODESIC) == []


@pytest.mark.parametrize(
    "sizes, options, words",
    [
        ([0], {}, "K must be an integer of at least 1, got 0"),
        ([], {}, "sizes must have at least one"),
        ([5, 10], {"start": 5}, "from 0 to 4, got 5"),
        ([5], {"start": -1}, "from 0 to 4, got -1"),
        ([5], {"target": (0.8, 0.6)}, "norm below 1"),
        ([5], {"target": (float("nan"), 0.0)}, "norm below 1"),
    ],
)
def test_bad_input(sizes, options, words):
    with pytest.raises(InputError, match=words):
        kernel_points_figure(sizes, **options)
