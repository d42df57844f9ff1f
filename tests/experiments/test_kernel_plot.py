from made_records import made_cell

from hkconv.experiments.cells import collect_cells
from hkconv.experiments.grids import Grid
from hkconv.experiments.kernel_plot import NAMES, kernel_panels
from hkconv.experiments.svg_plot import Panel, Point, Series


def test_points_are_the_cells_of_each_protocol_by_number_of_kernel_points():
    paper = {"texas": {"K=2": [79.08, 0.36], "K=10": [86.43, 0.46], "K=3": None}}
    records = made_cell([0.5, 0.75], table="kernels-node", variant="K=10")
    records += made_cell([0.25], table="kernels-node", variant="K=2")
    records += made_cell([0.75], table="kernels-node", variant="K=2", protocol="published")
    records += made_cell([0.9], table="kernels-node", variant="K=3", quick=True)
    grid = Grid("kernels-node", False, collect_cells(records).cells, paper)
    deviation = 100 * grid.cell("texas", "clean", "K=10").test.deviation
    series = (
        Series(NAMES["paper"], (Point(2, 79.08, 0.36), Point(10, 86.43, 0.46))),
        Series(NAMES["published"], (Point(2, 75.0, None),)),
        Series(NAMES["clean"], (Point(2, 25.0, None, whole=False), Point(10, 62.5, deviation))),
    )
    assert kernel_panels(grid) == (Panel("texas", series),)
