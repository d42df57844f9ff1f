import pytest
from made_records import TEXAS_SIZES, made_cell, made_failure, made_record

from hkconv.experiments import store
from hkconv.report.collect import Grid, collect_cells
from hkconv.report.contest import against_baselines, find_contests, read_contests, standing, summary
from hkconv.report.render import Bold, Items, Table
from hkconv.report.statistics import paired_test

# Four systems whose order by validation is the opposite of that by test.
TRUE = made_cell([0.70, 0.72, 0.75], [0.90, 0.91, 0.92], variant="HKN+root", split_sizes=TEXAS_SIZES)
LUCKY = made_cell([0.90, 0.90, 0.90], [0.60, 0.60, 0.60], variant="HKN", split_sizes=TEXAS_SIZES)
GCN = made_cell([0.69, 0.74, 0.71], [0.88, 0.88, 0.88], variant="GCN", model="gcn", split_sizes=TEXAS_SIZES)
GIN = made_cell([0.95, 0.95, 0.95], [0.50, 0.50, 0.50], variant="GIN", model="gin", split_sizes=TEXAS_SIZES)


PLANNED = TRUE + LUCKY + GCN + GIN


def found(records, plan=(), paper=None, table="node"):
    collected = collect_cells(records, plan)
    return find_contests(Grid(table, False, collected.cells, paper or {}), collected)


def contest(records, plan=()):
    """Headings and texts of the only row, and the notes."""
    _, table, items = against_baselines(found(records, plan))
    (row,) = table.rows
    return dict(zip([f"{place} {name}" for place, name in enumerate(table.head)], row)), list(items.texts)


def summarized(records, plan=(), paper=None, table="node", trials=None):
    """Rows of the summary's only table by their first cell, what it adds up to, and what is not complete."""
    blocks = summary({table: found(records, plan, paper, table)}, {table: "Title"}, {table: trials or {}})
    (shown,) = [block for block in blocks if isinstance(block, Table)]
    tally, *notes = [list(block.texts) for block in blocks if isinstance(block, Items)]
    return {row[0]: dict(zip(shown.head, row)) for row in shown.rows}, tally, notes[0] if notes else []


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
    plain = paired_test([0.7, 0.8, 0.75], [0.6, 0.75, 0.7])
    assert row["8 95 % interval"] == f"{100 * plain.low:+.2f} to {100 * plain.high:+.2f}"
    assert row["9 p corrected"] == row["10 p paired t"] == f"{plain.p_plain:.3f}"
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
    kept = GCN[:2] if incomplete == "missing" else [*GCN[:2], made_failure(split=2, variant="GCN", model="gcn")]
    row, _ = contest(TRUE + LUCKY + kept + GIN, PLANNED)
    assert row["4 baseline by validation"] == "GIN"
    count = "2 of 3" if incomplete == "missing" else "2 of 3, 1 failed"
    rows, tally, notes = summarized(TRUE + LUCKY + kept + GIN, PLANNED)
    assert notes == [f"texas: not complete and left out of the choice: GCN ({count})"]
    assert (rows["texas"]["above"], rows["texas"]["complete"]) == ("1 of 1", "3 of 4")
    assert "complete: 0." in tally[0] and "that lack planned systems: 1." in tally[1]


def test_published_scores_have_no_part():
    published = made_cell([0.99] * 3, [0.99] * 3, variant="MLP", model="mlp", protocol="published")
    row, _ = contest(TRUE + GCN + published)
    assert row["4 baseline by validation"] == "GCN"
    assert row["13 highest mean test score"] == Bold("HKN+root 72.33")


def test_nothing_to_compare():
    assert against_baselines(found(TRUE + LUCKY)) == []
    assert summary({"node": found(TRUE, PLANNED)[:0]}, {"node": "Title"}, {}) == []
    rows, tally, notes = summarized(TRUE[:1] + GCN, TRUE + GCN)
    assert rows["texas"]["HKN+root"] == "70.00, 1 of 3"
    assert (rows["texas"]["above"], rows["texas"]["highest baseline"]) == ("–", "GCN 71.33")
    assert tally[2] == "Datasets without a complete HKN and a complete baseline: 1 (node texas)."
    assert notes == ["texas: not complete and left out of the choice: HKN+root (1 of 3)"]


def test_summary_has_a_row_for_each_dataset():
    expected = paired_test([0.70, 0.72, 0.75], [0.69, 0.74, 0.71], 37 / 87)
    trials = {("texas", variant): "16 x 3" for variant in ("HKN", "HKN+root", "GCN", "GIN")}
    rows, tally, notes = summarized(PLANNED, PLANNED, trials=trials)
    interval = f"{100 * expected.low:+.2f} to {100 * expected.high:+.2f}"
    assert rows["texas"] == {
        "dataset": "texas",
        "trials": "16 x 3",
        "HKN": "90.00",
        "HKN+root": Bold("72.33"),
        "highest baseline": "GIN 95.00",
        "above": "1 of 2",
        "against the baseline that validation chooses": f"GCN: +1.00 ({interval}), p {expected.p_corrected:.3f}",
        "complete": "4 of 4",
    }
    assert notes == []
    assert "complete: 1." in tally[0] and "at or above every baseline on none" in tally[0]


def test_trials_that_differ_between_systems_are_all_named():
    trials = {("texas", "HKN"): "16 x 3", ("texas", "GCN"): "9 x 3, 2 failed"}
    rows, _, _ = summarized(LUCKY + GCN + GIN, trials=trials)
    assert rows["texas"]["trials"] == "9 x 3 or 16 x 3 or none"


def test_summary_counts_where_hkn_is_at_the_top_and_where_it_is_behind():
    def system(dataset, tests, **changes):
        return made_cell(tests, dataset=dataset, split_sizes=TEXAS_SIZES, **changes)

    gcn = {"variant": "GCN", "model": "gcn"}
    records = system("texas", [0.90, 0.91, 0.92]) + system("texas", [0.50, 0.51, 0.53], **gcn)
    records += system("actor", [0.50, 0.51, 0.52]) + system("actor", [0.90, 0.91, 0.93], **gcn)
    records += system("cora", [0.5, 0.6, 0.7]) + system("cora", [0.5, 0.7, 0.6], **gcn)
    _, tally, _ = summarized(records, records)
    assert "complete: 3." in tally[0]
    assert "at or above every baseline on 2 (node cora, node texas)." in tally[0]
    assert "behind beyond chance (corrected p below 0.05) on 1 (node actor)" in tally[0]
    assert "ahead beyond chance on 1 (node texas)." in tally[0]


def test_a_p_without_correction_is_no_verdict():
    records = made_cell([0.50, 0.51, 0.52]) + made_cell([0.90, 0.91, 0.93], variant="GCN", model="gcn")
    rows, tally, _ = summarized(records, records)
    assert rows["texas"]["against the baseline that validation chooses"].endswith("p < 0.001, plain")
    assert "on none and ahead beyond chance on none" in tally[0]


def test_planned_systems_and_datasets_without_a_record_are_named():
    views = made_cell([0.5] * 3, variant="HKN (views)")
    flat = made_cell([0.5] * 3, variant="HKN (flat)", model="hkn-flat")
    elsewhere = [{**record, "dataset": name} for name in ("actor", "cora") for record in LUCKY]
    plan = PLANNED + views + flat + elsewhere
    rows, tally, notes = summarized(PLANNED, plan, {"texas": {}, "actor": {}, "cora": {}})
    assert list(rows) == ["texas"]
    assert (rows["texas"]["HKN (views)"], rows["texas"]["complete"]) == ("–", "4 of 6")
    assert "HKN (flat)" not in rows["texas"]
    assert notes == ["texas: no record: HKN (views), HKN (flat)"]
    assert "that lack planned systems: 1." in tally[1]
    assert tally[2].endswith(": 2 (node actor, node cora).")


def test_records_of_another_recipe_take_part_and_are_named():
    plan = [{**record, "recipe": {**record["recipe"], "lr": 0.5}} for record in GCN] + TRUE
    rows, tally, notes = summarized(TRUE + GCN, plan)
    assert (rows["texas"]["above"], rows["texas"]["complete"]) == ("0 of 1", "1 of 2")
    assert notes == ["texas: of another recipe than planned: GCN"]
    assert "complete: 0." in tally[0]


def test_systems_that_are_no_longer_trained_have_no_part():
    old = made_cell([0.99] * 3, [0.99] * 3, variant="HKN+", split_sizes=TEXAS_SIZES)
    rows, _, _ = summarized(PLANNED + old, PLANNED)
    assert rows == summarized(PLANNED, PLANNED)[0]


def test_the_control_in_flat_space_is_a_baseline():
    flat = made_cell([0.8] * 3, [0.99] * 3, variant="HKN (flat)", model="hkn-flat", split_sizes=TEXAS_SIZES)
    rows, _, _ = summarized(TRUE + GCN + flat)
    assert rows["texas"]["above"] == "1 of 2"
    assert rows["texas"]["against the baseline that validation chooses"].startswith("HKN (flat): ")


def test_links_have_average_precision_and_the_figures_that_authors_print():
    link = {"table": "links", "dataset": "airport", "metric": "ROC-AUC", "split_sizes": TEXAS_SIZES}
    records = made_cell([0.9, 0.92], test_ap=0.94, **link)
    records += made_cell([0.8, 0.84], variant="HGCN", model="hgcn", test_ap=0.85, **link)
    paper = {"airport": {"HGCN": [96.4, 0.1], "HyboNet": [97.3, 0.3]}}
    rows, tally, _ = summarized(records, paper=paper, table="links")
    row = rows["airport (ROC-AUC)"]
    assert (row["HKN"], row["HGCN"], row["HyboNet"]) == (
        Bold("91.00 (94.00)"),
        "82.00 (85.00) / 96.40 ± 0.10",
        "– / 97.30 ± 0.30",
    )
    assert row["highest baseline"] == "HGCN 82.00 (85.00)"
    assert "at or above every baseline on 1 (links airport)" in tally[0]


def test_where_hkn_stands_beside_each_system():
    steady = made_cell([0.60, 0.61, 0.59], [0.8, 0.8, 0.8], variant="MLP", model="mlp", split_sizes=TEXAS_SIZES)
    above = made_cell([0.93, 0.95, 0.97], [0.7, 0.7, 0.7], variant="GAT", model="gat", split_sizes=TEXAS_SIZES)
    contests = found(TRUE + LUCKY + GCN + steady + above)
    assert paired_test([0.70, 0.72, 0.75], [0.60, 0.61, 0.59], 37 / 87).beyond_chance
    table = standing(contests, ("GCN", "MLP", "GAT", "GIN"))
    assert table.head[1:] == (*(f"beside {name}" for name in ("GCN", "MLP", "GAT", "GIN")), table.head[-1])
    assert table.rows == (
        ("ahead beyond chance", "–", "texas +12.3", "–", "–", "–"),
        ("within chance", "texas +1.0", "–", "–", "–", "texas +1.0"),
        ("behind beyond chance", "–", "–", "texas -22.7", "–", "–"),
    )


def test_datasets_without_hkn_or_its_rival_stand_nowhere():
    assert standing(found(TRUE) + found(GCN), ("GCN",)).rows[1] == ("within chance", "–", "–")
    linked = standing(found([{**record, "table": "links"} for record in TRUE + GCN], table="links"), ("GCN",))
    assert linked.rows[1] == ("within chance", "links of texas +1.0", "links of texas +1.0")


def test_contests_are_read_from_the_store(tmp_path):
    for record in TRUE + GCN:
        store.append(tmp_path, record)
    found = read_contests(tmp_path, ("node", "links"))
    assert {contest.grid.table for contest in found} == {"node", "links"}
    (texas,) = [contest for contest in found if contest.dataset == "texas"]
    assert texas.cells.keys() == {"GCN"} and {"MLP", "HKN (views)"} <= {*texas.missing}
    assert texas.grid.paper_figure("texas", "GCN").mean == 55.14
