import math

from made_records import made_cell, made_failure, made_record, made_time

from hkconv.report.collect import Grid, collect_cells
from hkconv.report.render import Bold, Table
from hkconv.report.tables import (
    against_paper,
    count_trials,
    figures_table,
    tuning_section,
    validation_of_parts,
)

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


def grid(records, paper=None, plan=()):
    return Grid("node", False, collect_cells(records, plan).cells, paper or {})


def test_the_paper_and_ours_as_published_in_its_deviations():
    paper = {"texas": {"HKN": [90.0, 2.0], "GCN": [55.0, 5.0], "HKN-train": [float("nan"), float("nan")]}}
    published = {"protocol": "published"}
    records = made_cell([0.86, 0.88], **published) + made_cell([0.6], variant="GCN", model="gcn", **published)
    records += made_cell([0.6], variant="HKN-train", **published) + made_cell([0.1] * 2)
    (table,) = [block for block in against_paper(grid(records, paper)) if isinstance(block, Table)]
    assert table.rows == (("texas", "HKN", "90.00 ± 2.00", "87.00 ± 1.41 (2)", "-3.00", "-1.5"),)
    assert against_paper(grid(made_cell([0.5]), paper)) == []


TESTS = [0.1, 0.9, 0.5]


def ablation(vals, variant="HKN", dataset="texas"):
    """Three splits whose test scores say nothing."""
    return made_cell(TESTS[: len(vals)], vals, variant=variant, dataset=dataset, table="ablations")


def gains(records):
    blocks = validation_of_parts(Grid("ablations", False, collect_cells(records).cells, {}))
    (table,) = [block for block in blocks if isinstance(block, Table)]
    assert table.head[0] == "variant" and table.head[-2:] == ("better on all splits", "worse on all splits")
    return {row[0]: row[1:] for row in table.rows}


def test_differences_are_of_validation_scores_and_bold_where_all_splits_agree():
    whole = ablation([0.6, 0.7, 0.8]) + ablation([0.5, 0.5, 0.5], dataset="wisconsin")
    better_here_alone = ablation([0.61, 0.73, 0.82], "HKN+root") + ablation([0.7, 0.4, 0.7], "HKN+root", "wisconsin")
    worse = ablation([0.5, 0.6, 0.7], "HKN-direct") + ablation([0.4, 0.45, 0.35], "HKN-direct", "wisconsin")
    assert gains(whole + better_here_alone + worse) == {
        "HKN+root": (Bold("+2.0"), "+10.0", "1", "0"),
        "HKN-direct": (Bold("-10.0"), Bold("-10.0"), "0", "2"),
    }


def test_an_equal_split_is_no_agreement():
    assert gains(ablation([0.6, 0.7, 0.8]) + ablation([0.6, 0.8, 0.9], "layers=1")) == {"layers=1": ("+6.7", "0", "0")}
    assert gains(ablation([0.7, 0.8]) + ablation([0.8, 0.6999], "layers=1")) == {"layers=1": ("+0.0", "0", "0")}


def test_what_is_not_complete_is_left_out():
    whole = ablation([0.6, 0.7, 0.8])
    failed = made_failure(table="ablations", variant="HKN-train", split=2)
    unfinished = [*ablation([0.9, 0.9], "HKN-train"), failed]
    assert gains(whole + unfinished + ablation([0.7, 0.7, 0.7], "HKN+mass")).keys() == {"HKN+mass"}
    without_whole = Grid("ablations", False, collect_cells(ablation([0.7, 0.7, 0.7], "HKN+mass")).cells, {})
    assert validation_of_parts(without_whole) == []


def trial(number, split=0, **changes):
    record = made_record(table="tuning-node", split=split, test=None, **changes)
    return {**record, "recipe": {**record["recipe"], "lr": 0.01 * (number + 1)}}


def trials_table(records):
    return next(block for block in tuning_section(count_trials("node", records)) if isinstance(block, Table))


def test_counts_trials_splits_and_failures_of_each_system():
    records = [trial(number, split) for number in range(3) for split in (0, 1)]
    records += [trial(0, variant="GCN", model="gcn"), trial(0, dataset="cornell")]
    failure = made_failure(table="tuning-node", variant="GCN", model="gcn")
    records.append({**failure, "recipe": {**failure["recipe"], "lr": 0.5}})
    found = trials_table(records)
    # In the order of the catalog; HKN last.
    assert found.head == ("system", "cornell", "texas")
    assert found.rows == (("GCN", "–", "2 x 1, 1 failed"), ("HKN", "1 x 1", "3 x 2"))


def test_a_failure_that_was_mended_is_none():
    failure = made_failure(table="tuning-node")
    assert trials_table([failure, made_record(table="tuning-node", test=None)]).rows == (("HKN", "1 x 1"),)


def test_protocols_have_columns_of_their_own_and_other_tables_none():
    records = [trial(0), trial(0, protocol="published"), {**trial(0), "table": "tuning-graph"}]
    assert trials_table(records).head == ("system", "texas", "texas, published")
    assert tuning_section(count_trials("molecules", records)) == []
