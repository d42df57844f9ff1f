import itertools

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from viz_artists import lines, place

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.viz import views_figure
from hkconv.viz.disk import GEODESIC, in_disk
from hkconv.viz.views import SEED, _example, take_views

TITLES = ["(a) neighbourhood", "(b) differences", "(c) neighbours", "(d) node", "(e) mix by the node"]
VIEW_MARKS = ["_P", "_X", "_p"]


@pytest.fixture
def drawn():
    return take_views(*_example(4, 3, SEED))


def places(axes, label):
    return np.concatenate(lines(axes, label))


def test_views_are_those_that_the_block_itself_takes():
    block, center, neighbors = _example(5, 3, 1)
    drawn = take_views(block, center, neighbors)
    points, edges = torch.cat([center[None], neighbors]), torch.tensor([[1, 2, 3], [0, 0, 0]])
    with torch.no_grad():
        views = block.views(points, points, edges)
        output = block(points, edges)[0]
        torch.testing.assert_close(drawn.views, views[0])
        torch.testing.assert_close(drawn.gates, block.gates(views)[0])
        torch.testing.assert_close(drawn.output, output)
        torch.testing.assert_close(block.norm(drawn.mix[None])[0], output)
        torch.testing.assert_close(drawn.views[2], block.linear(center)[1])


def test_every_view_follows_from_what_is_drawn_beside_it(drawn):
    torch.testing.assert_close(drawn.views[0], drawn.differences.output)
    torch.testing.assert_close(drawn.views[0], lorentz.centroid(drawn.differences.messages))
    torch.testing.assert_close(drawn.views[1], lorentz.centroid(drawn.mapped))
    torch.testing.assert_close(drawn.mix, lorentz.centroid(drawn.views, drawn.gates))


def test_the_gates_are_away_from_equal_weights_and_sum_to_one(drawn):
    assert drawn.gates.sum().item() == pytest.approx(1)
    assert drawn.gates.max() - drawn.gates.min() > 0.1


def test_five_panels_with_the_points_of_the_block(drawn):
    figure = views_figure()
    assert [axes.get_title() for axes in figure.axes] == TITLES
    first, second, third, fourth, fifth = figure.axes
    steps = drawn.differences
    both = torch.stack([steps.relative, steps.messages], dim=1).flatten(0, 1)
    assert place(first, "_D")[0] == pytest.approx(in_disk(steps.center))
    assert places(first, "_o") == pytest.approx(in_disk(steps.neighbors))
    assert places(second, "_o") == pytest.approx(in_disk(both))
    assert places(second, "_v") == pytest.approx(in_disk(steps.kernel))
    assert places(third, "_o") == pytest.approx(in_disk(steps.neighbors))
    assert places(third, "_s") == pytest.approx(in_disk(drawn.mapped))
    assert place(fourth, "_D")[0] == pytest.approx(in_disk(steps.center))
    assert place(fifth, "_o")[0] == pytest.approx(in_disk(drawn.mix))
    assert place(fifth, "_*")[0] == pytest.approx(in_disk(drawn.output))
    for axes, label, view in zip((second, third, fourth), VIEW_MARKS, drawn.views):
        assert place(axes, label)[0] == pytest.approx(in_disk(view))
        assert place(fifth, label)[0] == pytest.approx(in_disk(view))
    assert [len(lines(axes, GEODESIC)) for axes in figure.axes] == [3, 6, 6, 1, 4]


def test_geodesics_end_in_the_view_of_their_panel(drawn):
    _, second, third, fourth, fifth = views_figure().axes
    ends = [np.stack([line[-1] for line in lines(axes, GEODESIC)]) for axes in (second, third, fourth, fifth)]
    for found, view in zip(ends[:2], drawn.views):
        assert found[1::2] == pytest.approx(np.tile(in_disk(view), (3, 1)))
    assert ends[2][0] == pytest.approx(in_disk(drawn.views[2]))
    assert ends[3][0] == pytest.approx(in_disk(drawn.output))
    assert ends[3][1:] == pytest.approx(np.tile(in_disk(drawn.mix), (3, 1)))


def test_weights_are_seen_in_markers_lines_and_names(drawn):
    fifth = views_figure().axes[4]
    gates = drawn.gates.numpy()
    sizes = np.array([line.get_markersize() for line in fifth.lines if line.get_label() in VIEW_MARKS])
    assert sizes**2 / gates == pytest.approx(np.full(3, sizes[0] ** 2 / gates[0]))
    widths = [line.get_linewidth() for line in fifth.lines if line.get_label() == GEODESIC][1:]
    assert (np.argsort(widths) == np.argsort(gates)).all()
    texts = {text.get_text() for text in fifth.texts}
    named = {f"${name}_i$ {gate:.2f}" for name, gate in zip("das", gates)}
    assert texts == named | {"$m_i$", "$x_i'$"}


def test_every_point_has_its_name_and_no_two_names_overlap():
    figure = views_figure()
    assert [len(axes.texts) for axes in figure.axes] == [4, 8, 4, 2, 5]
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    for axes in figure.axes:
        boxes = [text.get_window_extent(canvas.get_renderer()) for text in axes.texts]
        assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2)), axes.get_title()


def test_the_seed_decides_and_the_callers_randomness_is_left_alone():
    before = torch.get_rng_state()
    first, second, again = (views_figure(seed=seed).axes[4] for seed in (0, 1, 0))
    assert torch.equal(torch.get_rng_state(), before)
    assert place(first, "_*") == pytest.approx(place(again, "_*"))
    assert place(first, "_*") != pytest.approx(place(second, "_*"))


def test_bad_input():
    with pytest.raises(InputError, match="neighbours must be at least 1, got 0"):
        views_figure(neighbors=0)
    with pytest.raises(InputError, match="kernel_size must be at least 1, got 0"):
        views_figure(0)
