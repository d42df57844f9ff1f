from made_records import made_cell, made_failure

from hkconv.experiments.cells import collect_cells
from hkconv.experiments.grids import Grid
from hkconv.experiments.pages import Bold, Table
from hkconv.experiments.parts import validation_of_parts

TESTS = [0.1, 0.9, 0.5]


def ablation(vals, variant="HKN", dataset="texas"):
    """Three splits whose test scores say nothing."""
    return made_cell(TESTS[: len(vals)], vals, variant=variant, dataset=dataset, table="ablations")


def rows(records):
    blocks = validation_of_parts(Grid("ablations", False, collect_cells(records).cells, {}))
    (table,) = [block for block in blocks if isinstance(block, Table)]
    assert table.head[0] == "variant" and table.head[-2:] == ("better on all splits", "worse on all splits")
    return {row[0]: row[1:] for row in table.rows}


def test_differences_are_of_validation_scores_and_bold_where_all_splits_agree():
    whole = ablation([0.6, 0.7, 0.8]) + ablation([0.5, 0.5, 0.5], dataset="wisconsin")
    better_here_alone = ablation([0.61, 0.73, 0.82], "HKN+root") + ablation([0.7, 0.4, 0.7], "HKN+root", "wisconsin")
    worse = ablation([0.5, 0.6, 0.7], "HKN-direct") + ablation([0.4, 0.45, 0.35], "HKN-direct", "wisconsin")
    assert rows(whole + better_here_alone + worse) == {
        "HKN+root": (Bold("+2.0"), "+10.0", "1", "0"),
        "HKN-direct": (Bold("-10.0"), Bold("-10.0"), "0", "2"),
    }


def test_an_equal_split_is_no_agreement():
    assert rows(ablation([0.6, 0.7, 0.8]) + ablation([0.6, 0.8, 0.9], "layers=1")) == {"layers=1": ("+6.7", "0", "0")}
    assert rows(ablation([0.7, 0.8]) + ablation([0.8, 0.6999], "layers=1")) == {"layers=1": ("+0.0", "0", "0")}


def test_what_is_not_complete_is_left_out():
    whole = ablation([0.6, 0.7, 0.8])
    failed = made_failure(table="ablations", variant="HKN-train", split=2)
    unfinished = [*ablation([0.9, 0.9], "HKN-train"), failed]
    assert rows(whole + unfinished + ablation([0.7, 0.7, 0.7], "HKN+mass")).keys() == {"HKN+mass"}
    without_whole = Grid("ablations", False, collect_cells(ablation([0.7, 0.7, 0.7], "HKN+mass")).cells, {})
    assert validation_of_parts(without_whole) == []
