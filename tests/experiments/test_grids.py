import math

from made_records import made_cell, made_failure, made_record, made_time

from hkconv.experiments.cells import collect_cells
from hkconv.experiments.grids import Grid, figures_table
from hkconv.experiments.pages import Bold

PAPER = {"texas": {"HKN": [90.94, 0.66], "GCN": [55.14, 5.16], "HKN-train": [math.nan, math.nan], "WLHN": None}}


def rows(records, paper=PAPER, table="node", quick=False, plan=()):
    """The table as lists, keyed by system and kind of figure."""
    found = figures_table(Grid(table, quick, collect_cells(records, plan).cells, paper))
    keyed, system = {}, None
    for first, kind, *figures in found.rows:
        system = first or system
        keyed[system, kind] = figures
    return found.head, keyed


def test_paper_published_and_clean_stand_under_each_other():
    overlap = {"overlap": {"val in train": 0.571, "test in train": 0.619}}
    records = made_cell([0.9, 0.8, 0.7, 0.8]) + made_cell([0.88, 0.92], protocol="published", dataset_info=overlap)
    head, found = rows(records)
    assert head == ("system", "", "texas")
    assert found == {
        ("GCN", "paper"): ["55.14 ± 5.16"],
        ("HKN", "paper"): ["90.94 ± 0.66"],
        ("HKN", "published"): ["90.00 ± 2.83 (2)"],
        ("HKN", "clean"): [Bold("80.00 ± 8.16 (4)")],
        ("HKN-train", "paper"): ["NaN"],
        ("overlap of the published splits", "val in train"): ["57 %"],
        ("overlap of the published splits", "test in train"): ["62 %"],
    }


def test_bold_is_the_best_complete_clean_cell():
    plan = [record for variant in ("HKN", "GCN", "GIN") for record in made_cell([None] * 2, variant=variant)]
    records = (
        made_cell([0.7, 0.8])
        + made_cell([0.8, 0.9], variant="GCN")
        + made_cell([0.99], variant="GIN")
        + made_cell([0.99, 0.99], protocol="published")
    )
    _, found = rows(records, {}, plan=plan)
    assert found["GCN", "clean"] == [Bold("85.00 ± 7.07 (2)")]
    assert found["GIN", "clean"] == ["99.00 (1 of 2)"]
    assert found["HKN", "clean"] == ["75.00 ± 7.07 (2)"]
    assert found["HKN", "published"] == ["99.00 ± 0.00 (2)"]


def test_failures_are_seen_in_the_cell_and_it_is_not_the_best():
    records = [*made_cell([0.99, 0.99]), made_failure(split=2), *made_cell([0.1] * 3, variant="GCN")]
    records += [made_failure(split=split, variant="HKN-train") for split in range(3)]
    _, found = rows(records)
    assert found["HKN", "clean"] == ["99.00 ± 0.00 (2 of 3, 1 failed)"]
    assert found["GCN", "clean"] == [Bold("10.00 ± 0.00 (3)")]
    assert found["HKN-train", "clean"] == ["failed (3 of 3)"]


def test_seeds_are_counted_beside_splits():
    records = [made_record(split=split, seed=seed) for split in range(2) for seed in range(3)]
    _, found = rows(records, {})
    assert found["HKN", "clean"] == [Bold("80.00 ± 0.00 (2 x 3)")]
    _, found = rows(records[:3], {})
    assert found["HKN", "clean"] == [Bold("80.00 ± 0.00 (1 x 3)")]


def test_quick_ones_have_a_table_of_their_own_without_a_best():
    records = made_cell([0.9, 0.9]) + made_cell([0.1], quick=True)
    assert rows(records, {})[1] == {("HKN", "clean"): [Bold("90.00 ± 0.00 (2)")]}
    assert rows(records, {}, quick=True)[1] == {("HKN", "clean, quick"): ["10.00 (1)"]}


def test_order_of_rows_and_columns():
    paper = {"wisconsin": {"HKN": None, "MLP": None, "GCN": None}, "texas": {"HKN": None}}
    variants = ("HKN+root", "ZNN", "HKN", "ANN", "GCN", "MLP")
    records = [made_record(variant=variant, dataset=name) for variant in variants for name in ("airport", "texas")]
    head, found = rows(records, paper)
    assert head == ("system", "", "wisconsin", "texas", "airport")
    assert [system for system, _ in found] == ["MLP", "GCN", "ANN", "ZNN", "HKN", "HKN+root"]
    counted = [made_record(table="kernels-node", variant=f"K={size}") for size in (10, 2, 9)]
    assert [system for system, _ in rows(counted, {}, "kernels-node")[1]] == ["K=2", "K=9", "K=10"]


def test_a_metric_that_is_not_accuracy_is_named():
    records = [made_record(table="molecules", dataset="ogbg-molhiv", metric="ROC-AUC")]
    assert rows(records, {}, "molecules")[0][2] == "ogbg-molhiv (ROC-AUC)"


def test_runtime_in_milliseconds_with_the_lowest_in_bold():
    paper = {"texas": {"HyboNet": (0.0076, None), "HKN": (1.04, None)}}
    records = [made_time(0.025), made_time(0.00734, variant="HyboNet", model="hybonet")]
    _, found = rows(records, paper, "runtime")
    assert found["HKN", "paper"] == ["1040"] and found["HyboNet", "paper"] == ["7.6"]
    assert found["HKN", "ours"] == ["25"]
    assert found["HyboNet", "ours"] == [Bold("7.34")]
    records.append(made_time(0.001, variant="HyboNet", model="hybonet", device="cuda: big"))
    assert not any(isinstance(text, Bold) for texts in rows(records, paper, "runtime")[1].values() for text in texts)
