from statistics import fmean, stdev
from xml.etree import ElementTree

import numpy as np
import pytest
from made_records import made_cell
from viz_artists import lines, place

from hkconv.errors import InputError
from hkconv.experiments.store import append
from hkconv.report.collect import Grid, collect_cells, read_grid, read_plan
from hkconv.report.figures import NAMES, Curve, Panel, Point, draw_svg, kernel_panels
from hkconv.viz import kernel_scores_figure

SCORES = {2: [0.5, 0.75, 0.6], 3: [0.7, 0.65, 0.9], 10: [0.4, 0.5]}


@pytest.fixture
def results(tmp_path):
    """Three cells of Texas, of which nothing is complete, and one of another dataset."""
    for K, tests in SCORES.items():
        for record in made_cell(tests, table="kernels-node", variant=f"K={K}"):
            append(tmp_path / "records", record)
    for record in made_cell([0.25], table="kernels-node", variant="K=4", protocol="published"):
        append(tmp_path / "records", record)
    for record in made_cell([0.5, 0.6], table="kernels-graph", dataset="mine", variant="K=2"):
        append(tmp_path / "records", record)
    return tmp_path / "records"


def panels(folder, table):
    grid, damaged = read_grid(folder, table)
    assert damaged == []
    figure = kernel_scores_figure(grid)
    return figure, {axes.get_title(): axes for axes in figure.axes}


def test_curves_and_bands_are_the_stored_records(results):
    _, found = panels(results, "kernels-node")
    texas = found["texas"]
    expected = [(K, 100 * fmean(tests)) for K, tests in SCORES.items()]
    assert place(texas, NAMES["clean"]) == pytest.approx(np.array(expected))
    band = texas.collections[-1].get_paths()[0].vertices
    for K, tests in SCORES.items():
        for sign in (-1, 1):
            corner = (K, 100 * (fmean(tests) + sign * stdev(tests)))
            assert np.abs(band - corner).sum(1).min() < 1e-9
    assert place(texas, NAMES["published"]) == pytest.approx(np.array([[4, 25.0]]))


def test_the_papers_curve_is_that_of_the_recipes(results):
    _, found = panels(results, "kernels-node")
    paper = read_plan(["kernels-node"]).paper["kernels-node"]
    assert list(found) == list(paper)
    expected = [(int(label[2:]), figure[0]) for label, figure in paper["wisconsin"].items() if figure]
    assert place(found["wisconsin"], NAMES["paper"]) == pytest.approx(np.array(expected))


def test_a_cell_that_is_not_complete_is_hollow(results):
    _, found = panels(results, "kernels-node")
    marks = [line for line in found["texas"].lines if line.get_label() == "_marks" and len(line.get_xdata())]
    hollow = {x for line in marks if line.get_markerfacecolor() == "white" for x in line.get_xdata()}
    # Ten trainings are planned for K = 2, 3 and 4. Nobody planned K = 10, but its neighbours have one more.
    assert hollow == {2, 3, 4, 10}


def test_labels_and_one_legend(results):
    figure, found = panels(results, "kernels-graph")
    assert "mine" in found
    assert {axes.get_xlabel() for axes in figure.axes} == {"", "K"}
    assert figure.axes[0].get_ylabel() == "test score, %"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [NAMES["paper"], NAMES["clean"]]
    assert all(axes.get_legend() is None for axes in figure.axes)
    assert len(lines(found["mine"], NAMES["paper"])) == 0


def test_a_damaged_line_is_reported_and_left_out(results):
    with (results / "kernels-node" / "clean.csv").open("a") as file:
        file.write("half a li\n")
    grid, damaged = read_grid(results, "kernels-node")
    assert [problem.line for problem in damaged] == [10]
    assert grid.cell("texas", "clean", "K=2").trainings == 3


def test_results_without_records_of_the_table(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(InputError, match="has no record of table kernels-node; `hkconv reproduce kernels-node`"):
            read_grid(folder, "kernels-node")
    for record in made_cell([0.5], table="kernels-node", variant="K=2", quick=True):
        append(tmp_path, record)
    with pytest.raises(InputError, match="has no record of table kernels-node"):
        read_grid(tmp_path, "kernels-node")


def test_points_are_the_cells_of_each_protocol_by_number_of_kernel_points():
    paper = {"texas": {"K=2": [79.08, 0.36], "K=10": [86.43, 0.46], "K=3": None}}
    records = made_cell([0.5, 0.75], table="kernels-node", variant="K=10")
    records += made_cell([0.25], table="kernels-node", variant="K=2")
    records += made_cell([0.75], table="kernels-node", variant="K=2", protocol="published")
    records += made_cell([0.9], table="kernels-node", variant="K=3", quick=True)
    grid = Grid("kernels-node", False, collect_cells(records).cells, paper)
    deviation = 100 * grid.cell("texas", "clean", "K=10").test.deviation
    series = (
        Curve(NAMES["paper"], (Point(2, 79.08, 0.36), Point(10, 86.43, 0.46))),
        Curve(NAMES["published"], (Point(2, 75.0, None),)),
        Curve(NAMES["clean"], (Point(2, 25.0, None, whole=False), Point(10, 62.5, deviation))),
    )
    assert kernel_panels(grid) == (Panel("texas", series),)


def test_a_drawing_is_the_same_text_every_time_and_keeps_a_place_for_what_is_missing():
    curve = Curve(NAMES["clean"], (Point(2, 10.0, 3.0), Point(9, -4.0, 2.0, whole=False)))
    panels = [Panel(f"<{number}>", (curve,)) for number in range(4)] + [Panel("empty", ())]
    drawing = draw_svg(panels)
    assert drawing == draw_svg(panels)
    root = ElementTree.fromstring(drawing)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "<!-- &lt;3&gt; -->" in drawing and "<!-- no results -->" in drawing
    assert "<dc:date>" not in drawing
