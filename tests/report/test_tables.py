import math

import pytest
from made_records import TEXAS_SIZES, made_cell, made_failure, made_record, made_time

from hkconv.report.collect import Grid, collect_cells
from hkconv.report.render import Bold, Items, Table, Text
from hkconv.report.statistics import paired_test
from hkconv.report.tables import (
    against_baselines,
    against_paper,
    figures_table,
    short_table,
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


# Four systems whose order by validation is the opposite of that by test.
TRUE = made_cell([0.70, 0.72, 0.75], [0.90, 0.91, 0.92], variant="HKN+root", split_sizes=TEXAS_SIZES)
LUCKY = made_cell([0.90, 0.90, 0.90], [0.60, 0.60, 0.60], variant="HKN", split_sizes=TEXAS_SIZES)
GCN = made_cell([0.69, 0.74, 0.71], [0.88, 0.88, 0.88], variant="GCN", model="gcn", split_sizes=TEXAS_SIZES)
GIN = made_cell([0.95, 0.95, 0.95], [0.50, 0.50, 0.50], variant="GIN", model="gin", split_sizes=TEXAS_SIZES)


def grid(records, paper=None, plan=()):
    return Grid("node", False, collect_cells(records, plan).cells, paper or {})


def contest(records, plan=()):
    """Headings and texts of the only row, and the notes."""
    blocks = against_baselines(grid(records, plan=plan))
    (table,) = [block for block in blocks if isinstance(block, Table)]
    (row,) = table.rows
    notes = [text for block in blocks if isinstance(block, Items) for text in block.texts]
    return dict(zip([f"{place} {name}" for place, name in enumerate(table.head)], row)), notes


def test_systems_are_chosen_by_validation_and_never_by_test():
    row, notes = contest(TRUE + LUCKY + GCN + GIN)
    assert (row["1 HKN by validation"], row["2 validation"], row["3 test"]) == ("HKN+root", "91.00", "72.33")
    assert (row["4 baseline by validation"], row["5 validation"], row["6 test"]) == ("GCN", "88.00", "71.33")
    assert row["13 highest mean test score"] == Bold("GIN 95.00")
    assert notes == ["texas: HKN+root is below 1 of 2 baselines in mean test score: GIN by 22.67"]


def test_the_paired_test_of_the_row():
    expected = paired_test([0.70, 0.72, 0.75], [0.69, 0.74, 0.71], 37 / 87)
    row, notes = contest(TRUE + GCN)
    assert row["7 difference"] == "+1.00"
    assert row["8 95 % interval"] == f"{100 * expected.low:+.2f} to {100 * expected.high:+.2f}"
    assert row["9 p corrected"] == f"{expected.p_corrected:.3f}"
    assert row["10 p paired t"] == f"{expected.p_plain:.3f}"
    assert row["11 p Wilcoxon"] == f"{expected.p_ranks:.3f}" == "0.750"
    assert row["12 pairs"] == "3 splits"
    assert notes == ["texas: HKN+root is at or above every baseline in mean test score (1 compared)"]


def test_equal_means_are_neither_below_nor_of_a_sign():
    # The mean of the first is 0.19999999999999998.
    ours = made_cell([0.3, 0.2, 0.1], variant="HKN", split_sizes=TEXAS_SIZES)
    theirs = made_cell([0.2, 0.2, 0.2], variant="GCN", model="gcn", split_sizes=TEXAS_SIZES)
    row, notes = contest(ours + theirs)
    assert row["7 difference"] == "+0.00"
    assert notes == ["texas: HKN is at or above every baseline in mean test score (1 compared)"]


def test_without_sizes_of_the_splits_the_plain_interval_says_so():
    records = [{**record, "split_sizes": None} for record in TRUE + GCN]
    row, _ = contest(records)
    assert row["8 95 % interval"].endswith(", plain")
    assert row["9 p corrected"] == "–"


def test_pairs_of_one_split_are_its_seeds():
    def one_split(variant, model, tests):
        sizes = {"split_sizes": TEXAS_SIZES, "variant": variant, "model": model}
        return [made_record(seed=seed, test=test, **sizes) for seed, test in enumerate(tests)]

    row, _ = contest(one_split("HKN", "hkn", [0.7, 0.8, 0.75]) + one_split("GCN", "gcn", [0.6, 0.75, 0.7]))
    assert row["12 pairs"] == "3 seeds"
    assert row["8 95 % interval"].endswith(", plain")
    row, _ = contest(one_split("HKN", "hkn", [0.7]) + one_split("GCN", "gcn", [0.6]))
    assert (row["7 difference"], row["8 95 % interval"], row["12 pairs"]) == ("+10.00", "–", "too few")


def test_only_splits_that_both_systems_have_are_pairs():
    """Here the first of one and the last of the other have no partner, in whichever order they stand."""
    moved = [{**record, "split": record["split"] + 1} for record in GCN]
    expected = paired_test([0.72, 0.75], [0.69, 0.74], 37 / 87)
    row, _ = contest(moved[::-1] + TRUE)
    assert row["12 pairs"] == "2 splits"
    assert row["7 difference"] == f"{100 * expected.difference:+.2f}" == "+2.00"
    assert row["10 p paired t"] == f"{expected.p_plain:.3f}"
    far = [{**record, "split": record["split"] + 2} for record in GCN]
    row, _ = contest(TRUE + far)
    assert (row["7 difference"], row["10 p paired t"], row["12 pairs"]) == ("+1.00", "–", "too few")


def test_seeds_of_one_split_are_no_pairs_of_splits():
    """Both are numbered from 0, and mean different things."""
    seeds = [{**record, "split": 0, "seed": record["split"]} for record in GCN]
    for records in (TRUE + seeds, [{**record, "split": 0, "seed": record["split"]} for record in TRUE] + GCN):
        row, _ = contest(records)
        assert (row["7 difference"], row["12 pairs"]) == ("+1.00", "too few")
        assert list(row.values())[8:12] == ["–"] * 4


@pytest.mark.parametrize("incomplete", ["missing", "failed"])
def test_a_cell_that_is_not_complete_is_no_choice(incomplete):
    plan = TRUE + LUCKY + GCN + GIN
    kept = GCN[:2] if incomplete == "missing" else [*GCN[:2], made_failure(split=2, variant="GCN", model="gcn")]
    row, notes = contest(TRUE + LUCKY + kept + GIN, plan)
    assert row["4 baseline by validation"] == "GIN"
    count = "2 of 3" if incomplete == "missing" else "2 of 3, 1 failed"
    assert f"texas: not complete and left out of the choice: GCN ({count})" in notes


def test_published_scores_have_no_part():
    published = made_cell([0.99] * 3, [0.99] * 3, variant="MLP", model="mlp", protocol="published")
    row, _ = contest(TRUE + GCN + published)
    assert row["4 baseline by validation"] == "GCN"
    assert row["13 highest mean test score"] == Bold("HKN+root 72.33")


def test_nothing_to_compare():
    assert against_baselines(grid(TRUE + LUCKY)) == []
    blocks = against_baselines(grid(TRUE[:1] + GCN, plan=TRUE + GCN))
    assert Text("No dataset has a complete HKN and a complete baseline yet.") in blocks


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


SHORT_PAPER = {"texas": dict.fromkeys(("HKN", "MLP", "GCN", "GAT", "GIN")), "actor": {}}


def shown(records, plan=()):
    table = short_table(Grid("node", False, collect_cells(records, plan).cells, SHORT_PAPER), ("texas", "actor"))
    assert table.head == ("", "texas", "actor")
    return {label: cells for label, *cells in table.rows}


def made(variant, tests, **changes):
    return made_cell(tests, variant=variant, model="hkn" if variant.startswith("HKN") else variant.lower(), **changes)


def test_rows_are_ours_the_leaders_and_two_for_scale():
    texas = [("HKN+", 0.8), ("HKN", 0.7), ("MLP", 0.5), ("GCN", 0.3), ("GAT", 0.6), ("GIN", 0.4)]
    records = [record for variant, score in texas for record in made(variant, [score - 0.1, score + 0.1])]
    found = shown(records + made("HKN+", [0.9, 0.9], dataset="actor") + made("GCN", [0.95, 0.95], dataset="actor"))
    assert found == {
        "HKN+": [Bold("80.00 ± 14.14"), "90.00 ± 0.00"],
        "HKN": ["70.00 ± 14.14", "–"],
        "MLP": ["50.00 ± 14.14", "–"],
        "GCN": ["30.00 ± 14.14", "95.00 ± 0.00"],
        "GAT": ["60.00 ± 14.14", "–"],
        "complete baselines": ["4 of 4", "1 of 4"],
    }


def test_the_control_in_flat_space_counts_among_the_baselines():
    flat = made_cell([0.9, 0.9], variant="HKN (flat)", model="hkn-flat")
    others = [record for label in ("MLP", "GCN", "GAT", "GIN") for record in made(label, [0.4, 0.4])]
    found = shown(made("HKN", [0.5, 0.5]) + others + flat)
    assert found["HKN (flat)"][0] == Bold("90.00 ± 0.00")
    assert found["complete baselines"][0] == "5 of 5"


def test_a_cell_that_is_not_complete_is_left_out_and_leads_nothing():
    records = made("HKN", [0.5, 0.5]) + made("MLP", [0.4, 0.4]) + made("GCN", [0.3, 0.3]) + made("GAT", [0.2, 0.2])
    partial = [*made("GIN", [0.9]), made_failure(variant="GIN", model="gin", split=1)]
    found = shown(records + partial)
    assert "GIN" not in found
    # The missing baseline might be higher, so nothing is called the highest.
    assert found["HKN"] == ["50.00 ± 0.00", "–"]
    assert found["complete baselines"] == ["3 of 4", "0 of 4"]


def test_other_protocols_and_quick_runs_have_no_part_in_it():
    records = made("HKN", [0.5, 0.5]) + made("MLP", [0.4, 0.4])
    others = made("GAT", [0.9, 0.9], protocol="published") + made("GAT", [0.9, 0.9], quick=True)
    found = shown(records + others)
    assert "GAT" not in found
    assert found["complete baselines"] == ["1 of 4", "0 of 4"]


def trial(number, split=0, **changes):
    record = made_record(table="tuning-node", split=split, test=None, **changes)
    return {**record, "recipe": {**record["recipe"], "lr": 0.01 * (number + 1)}}


def trials_table(records):
    return next(block for block in tuning_section("node", records) if isinstance(block, Table))


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
    assert tuning_section("molecules", records) == []
