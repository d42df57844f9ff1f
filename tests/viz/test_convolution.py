import numpy as np
import pytest
import torch
from viz_artists import lines, place

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.viz import convolution_figure
from hkconv.viz.convolution import _example, take_steps
from hkconv.viz.disk import GEODESIC, in_disk

TITLES = [
    "(a) neighbourhood",
    "(b) translation to the origin",
    "(c) correlation with the kernel",
    "(d) linear maps and centroids",
    "(e) aggregation",
]


@pytest.fixture
def steps():
    return take_steps(*_example(4, 3, 0))


def places(axes, label):
    return np.concatenate(lines(axes, label))


def test_steps_end_where_the_layer_itself_does():
    layer, center, neighbors = _example(5, 3, 1)
    steps = take_steps(layer, center, neighbors)
    edges = torch.tensor([[1, 2, 3], [0, 0, 0]])
    expected = layer(torch.cat([center[None], neighbors]), edges)[0]
    torch.testing.assert_close(steps.output, expected)
    distances = lorentz.dist(center, neighbors)
    torch.testing.assert_close(lorentz.dist(lorentz.origin(2, dtype=torch.float64), steps.relative), distances)


def test_five_panels_with_the_points_of_each_step(steps):
    figure = convolution_figure(4, 3, seed=0)
    assert [axes.get_title() for axes in figure.axes] == TITLES
    first, second, third, fourth, fifth = figure.axes
    assert place(first, "_D")[0] == pytest.approx(in_disk(steps.center))
    assert places(first, "_o") == pytest.approx(in_disk(steps.neighbors))
    assert place(second, "_D")[0] == pytest.approx(np.zeros(2))
    assert places(second, "_o") == pytest.approx(in_disk(steps.relative))
    assert places(third, "_o") == pytest.approx(in_disk(steps.relative))
    assert places(third, "_v") == pytest.approx(in_disk(steps.kernel))
    assert places(fourth, "_s") == pytest.approx(in_disk(steps.transformed).reshape(12, 2))
    assert places(fourth, "_o") == pytest.approx(in_disk(steps.messages))
    assert places(fifth, "_o") == pytest.approx(in_disk(steps.messages))
    assert place(fifth, "_*")[0] == pytest.approx(in_disk(steps.output))
    assert [len(lines(axes, GEODESIC)) for axes in figure.axes] == [3, 3, 12, 12, 3]


def test_thickness_grows_evenly_with_the_correlation(steps):
    fourth = convolution_figure(4, 3, seed=0).axes[3]
    widths = [line.get_linewidth() for line in fourth.lines if line.get_label() == GEODESIC]
    weights = steps.correlation.flatten().numpy()
    slope, least = np.polyfit(weights, widths, 1)
    assert slope > 0 and least > 0
    assert widths == pytest.approx(slope * weights + least)


def test_every_point_has_its_name(steps):
    names = [[text.get_text() for text in axes.texts] for axes in convolution_figure(4, 3).axes]
    assert [len(found) for found in names] == [4, 4, 4, 3, 4]
    assert names[0] == ["$x_{1}$", "$x_{2}$", "$x_{3}$", "$x$"]


def test_the_seed_decides_and_the_callers_randomness_is_left_alone():
    before = torch.get_rng_state()
    first, second, again = (convolution_figure(seed=seed).axes[4] for seed in (0, 1, 0))
    assert torch.equal(torch.get_rng_state(), before)
    assert place(first, "_*") == pytest.approx(place(again, "_*"))
    assert place(first, "_*") != pytest.approx(place(second, "_*"))


def test_bad_input():
    with pytest.raises(InputError, match="neighbours must be at least 1, got 0"):
        convolution_figure(neighbors=0)
    with pytest.raises(InputError, match="kernel_size must be at least 1, got 0"):
        convolution_figure(0)
