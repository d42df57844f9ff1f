from made_records import made_cell, made_failure

from hkconv.experiments.cells import collect_cells
from hkconv.experiments.grids import Grid
from hkconv.experiments.pages import Bold
from hkconv.experiments.short_table import short_table

PAPER = {"texas": dict.fromkeys(("HKN", "MLP", "GCN", "GAT", "GIN")), "actor": {}}


def shown(records, plan=()):
    table = short_table(Grid("node", False, collect_cells(records, plan).cells, PAPER), ("texas", "actor"))
    assert table.head == ("", "texas", "actor")
    return {label: cells for label, *cells in table.rows}


def cell(variant, tests, **changes):
    return made_cell(tests, variant=variant, model="hkn" if variant.startswith("HKN") else variant.lower(), **changes)


def test_rows_are_ours_the_leaders_and_two_for_scale():
    texas = [("HKN+", 0.8), ("HKN", 0.7), ("MLP", 0.5), ("GCN", 0.3), ("GAT", 0.6), ("GIN", 0.4)]
    records = [record for variant, score in texas for record in cell(variant, [score - 0.1, score + 0.1])]
    found = shown(records + cell("HKN+", [0.9, 0.9], dataset="actor") + cell("GCN", [0.95, 0.95], dataset="actor"))
    assert found == {
        "HKN+": [Bold("80.00 ± 14.14"), "90.00 ± 0.00"],
        "HKN": ["70.00 ± 14.14", "–"],
        "MLP": ["50.00 ± 14.14", "–"],
        "GCN": ["30.00 ± 14.14", "95.00 ± 0.00"],
        "GAT": ["60.00 ± 14.14", "–"],
        "complete baselines": ["4 of 4", "1 of 4"],
    }


def test_a_cell_that_is_not_complete_is_left_out_and_leads_nothing():
    records = cell("HKN", [0.5, 0.5]) + cell("MLP", [0.4, 0.4]) + cell("GCN", [0.3, 0.3]) + cell("GAT", [0.2, 0.2])
    partial = [*cell("GIN", [0.9]), made_failure(variant="GIN", model="gin", split=1)]
    found = shown(records + partial)
    assert "GIN" not in found
    # The missing baseline might be higher, so nothing is called the highest.
    assert found["HKN"] == ["50.00 ± 0.00", "–"]
    assert found["complete baselines"] == ["3 of 4", "0 of 4"]


def test_other_protocols_and_quick_runs_have_no_part_in_it():
    records = cell("HKN", [0.5, 0.5]) + cell("MLP", [0.4, 0.4])
    others = cell("GAT", [0.9, 0.9], protocol="published") + cell("GAT", [0.9, 0.9], quick=True)
    found = shown(records + others)
    assert "GAT" not in found
    assert found["complete baselines"] == ["1 of 4", "0 of 4"]
