import pytest
from made_records import TEXAS_SIZES, made_cell, made_failure, made_record

from hkconv.experiments.cells import collect_cells
from hkconv.experiments.comparison import paired_test
from hkconv.experiments.contests import against_baselines, against_paper
from hkconv.experiments.grids import Grid
from hkconv.experiments.pages import Bold, Items, Table, Text

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
