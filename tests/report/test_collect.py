import math
import random
from collections import Counter
from statistics import fmean, stdev

import pytest
from made_records import made_cell, made_failure, made_record, made_time

from hkconv.report.collect import CellKey, collect_cells, read_plan
from hkconv.report.document import TITLES

TESTS = [0.8, 0.7, 0.9]
HERE = CellKey("node", "texas", "clean", False, "HKN")


def only(collected):
    (cell,) = collected.cells.values()
    return cell


def test_mean_and_deviation_over_splits():
    cell = only(collect_cells(made_cell(TESTS, [0.5, 0.6, 0.7])))
    assert (cell.test.mean, cell.test.deviation) == pytest.approx((fmean(TESTS), stdev(TESTS)))
    assert cell.val.mean == pytest.approx(0.6)
    assert (cell.splits, cell.seeds, cell.trainings, cell.complete) == (3, 1, 3, True)


def test_seeds_of_a_split_are_averaged_first():
    records = made_cell([0.6, 0.9], seed=0) + made_cell([0.8, 0.9], seed=1)
    cell = only(collect_cells(records))
    assert cell.tests == pytest.approx({0: 0.7, 1: 0.9})
    assert cell.test.deviation == pytest.approx(stdev([0.7, 0.9]))
    assert (cell.splits, cell.seeds, cell.trainings) == (2, 2, 4)


def test_seeds_count_where_there_is_one_split():
    cell = only(collect_cells([made_record(seed=seed, test=test) for seed, test in enumerate(TESTS)]))
    assert cell.tests == dict(enumerate(TESTS))
    assert cell.test.deviation == pytest.approx(stdev(TESTS))


def test_protocols_quick_ones_and_datasets_are_kept_apart():
    cells = collect_cells(
        [
            made_record(test=0.1),
            made_record(test=0.2, protocol="published"),
            made_record(test=0.3, quick=True),
            made_record(test=0.4, dataset="cornell"),
            made_record(test=0.5, table="ablations"),
        ]
    ).cells
    assert {place: cell.test.mean for place, cell in cells.items()} == {
        HERE: 0.1,
        HERE._replace(protocol="published"): 0.2,
        HERE._replace(quick=True): 0.3,
        HERE._replace(dataset="cornell"): 0.4,
        HERE._replace(table="ablations"): 0.5,
    }


def recipe_with(**changes):
    return {**made_record()["recipe"], **changes}


def test_the_latest_of_several_recipes_counts_even_if_it_is_worse():
    early = made_cell([0.9, 0.9], recipe=recipe_with(lr=0.05), when="2026-01-01")
    late = made_cell([0.5], recipe=recipe_with(lr=0.002), when="2026-02-01")
    collected = collect_cells(early + late)
    assert only(collected).tests == {0: 0.5}
    assert (collected.superseded, collected.repeated, collected.outdated) == (2, 0, [])


def test_the_planned_recipe_counts_before_a_later_one():
    planned = made_cell([0.5, 0.6], recipe=recipe_with(lr=0.05), when="2026-01-01")
    late = made_cell([0.9, 0.9, 0.9], recipe=recipe_with(lr=0.002), when="2026-02-01")
    collected = collect_cells(planned + late, planned)
    assert only(collected).tests == {0: 0.5, 1: 0.6}
    assert collected.outdated == []
    only_late = collect_cells(late, planned)
    assert only(only_late).trainings == 3
    assert only_late.outdated == [HERE]


def test_what_is_on_record_and_in_no_plan_of_its_table_is_retired():
    planned, gone = made_cell([0.5]), made_cell([0.6], variant="HKN+")
    elsewhere = made_cell([0.7], variant="HKN+", dataset="actor") + made_cell([0.8], table="graph", variant="HKN+")
    collected = collect_cells(planned + gone + elsewhere, planned)
    assert collected.retired == {"node": ["HKN+"]}
    assert collected.cells[HERE._replace(variant="HKN+")].tests == {0: 0.6}
    # What is planned for one dataset alone is not.
    assert collect_cells(planned + gone + elsewhere, planned + gone).retired == {}


def test_what_is_planned_and_not_on_record_is_missing():
    other = made_cell([0.6], variant="GCN", model="gcn")
    assert collect_cells(made_cell([0.5]), made_cell([0.5]) + other).missing == [HERE._replace(variant="GCN")]


def test_average_precision_is_there_where_every_record_has_it():
    first, second = made_record(test_ap=0.8, seed=0), made_record(test_ap=0.9, seed=1)
    assert only(collect_cells([first, second])).precisions == {0: 0.8, 1: 0.9}
    assert only(collect_cells([first, made_record(seed=1)])).precisions == {}


def test_where_it_ran_is_no_other_recipe():
    first = made_record(split=0, recipe=recipe_with(device="cpu", num_splits=1))
    second = made_record(split=1, recipe=recipe_with(device="cuda", num_splits=10, data="/elsewhere"))
    assert only(collect_cells([first, second])).splits == 2


def test_the_earliest_score_of_a_training_counts_and_a_failure_only_without_one():
    failure = made_failure(when="2026-01-01")
    first, second = made_record(test=0.7, when="2026-01-02"), made_record(test=0.9, when="2026-01-03")
    collected = collect_cells([second, failure, first])
    assert only(collected).tests == {0: 0.7}
    assert (collected.repeated, collected.failures, only(collected).failures) == (2, [], 0)


def test_a_cell_is_complete_when_all_planned_trainings_have_scores():
    plan = made_cell([None] * 4)
    assert only(collect_cells(made_cell([0.1] * 4), plan)).complete
    cell = only(collect_cells(made_cell([0.1] * 3), plan))
    assert (cell.trainings, cell.planned, cell.complete) == (3, 4, False)
    failed = made_failure(split=3)
    collected = collect_cells([*made_cell([0.1] * 3), failed], plan)
    cell = only(collected)
    assert (cell.trainings, cell.failures, cell.complete) == (3, 1, False)
    assert collected.failures == [failed]


def test_without_a_plan_the_fullest_cell_of_the_dataset_and_protocol_is_the_measure():
    records = made_cell(TESTS) + made_cell(TESTS[:2], variant="GCN", model="gcn")
    records += made_cell(TESTS[:1], protocol="published")
    cells = collect_cells(records).cells
    assert [cell.complete for cell in cells.values()] == [False, True, True]


def test_a_cell_of_failures_alone():
    cell = only(collect_cells([made_failure(split=split) for split in range(2)]))
    assert (cell.tests, cell.failures, cell.complete) == ({}, 2, False)


def test_times_of_different_machines_are_not_mixed():
    first = made_time(0.1)
    assert only(collect_cells([first])).tests == {0: 0.1}
    second = made_time(0.01, device="cuda: big")
    third = made_time(0.002, device="cuda: big", recipe=recipe_with(capture=True))
    cells = collect_cells([first, second, third]).cells
    assert {place.variant: cell.test.mean for place, cell in cells.items()} == {
        "HKN, cpu": 0.1,
        "HKN, cuda: big": 0.01,
        "HKN, cuda: big, captured": 0.002,
    }


def test_overlap_and_sizes_of_the_splits():
    info = {"overlap": {"test in train": 0.6, "test in val": 0.2}}
    sizes = {"train": 50, "val": 20, "test": 10}
    cell = only(collect_cells(made_cell(TESTS, dataset_info=info, split_sizes=sizes)))
    assert cell.overlap == pytest.approx(info["overlap"])
    assert cell.test_to_train == pytest.approx(0.2)
    assert only(collect_cells(made_cell(TESTS))).test_to_train is None


def test_the_order_of_records_does_not_matter():
    records = made_cell(TESTS) + made_cell(TESTS, variant="GCN", model="gcn") + made_cell([0.2], when="2025-01-01")
    records += made_cell([0.3], recipe=recipe_with(lr=0.3))
    expected = collect_cells(records)
    for seed in range(5):
        shuffled = random.Random(seed).sample(records, len(records))
        assert collect_cells(shuffled) == expected
        assert list(collect_cells(shuffled).cells) == list(expected.cells)


def test_the_papers_figures_of_every_table():
    paper = read_plan().paper
    assert set(paper) == set(TITLES)
    assert tuple(paper["node"]["texas"]["HKN"]) == (90.94, 0.66)
    assert tuple(paper["node"]["squirrel"]["GloGNN++"]) == (57.88, 1.76)
    assert tuple(paper["graph"]["imdb-multi"]["HyboNet"]) == (54.35, 0.98)
    assert tuple(paper["molecules"]["ogbg-molpcba"]["HKN"]) == (27.87, 0.32)
    assert tuple(paper["kernels-graph"]["ptc"]["K=6"]) == (73.69, 4.81)
    assert math.isnan(paper["ablations"]["enzymes"]["HKN-train"][0])
    assert paper["runtime"]["squirrel"]["HKN"] == (0.15, None)


def test_every_cell_of_the_recipes_is_planned_once():
    plan = read_plan().trainings
    names = ("table", "dataset", "protocol", "variant", "split", "seed", "quick")
    assert max(Counter(tuple(entry[name] for name in names) for entry in plan).values()) == 1
    texas = [entry for entry in plan if (entry["table"], entry["dataset"]) == ("node", "texas")]
    full = [entry for entry in texas if entry["variant"] == "GCN" and not entry["quick"]]
    assert Counter(entry["protocol"] for entry in full) == {"clean": 30, "published": 3}
    assert any(entry["quick"] for entry in texas)
