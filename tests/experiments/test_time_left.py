from hkconv.experiments.recipe_files import read_table
from hkconv.experiments.tables import Choice, list_cells
from hkconv.experiments.time_left import TimeLeft


def record(dataset, model, seconds, quick=False):
    return {"dataset": dataset, "model": model, "seconds": seconds, "quick": quick}


def cells(*systems, dataset="texas", quick=False):
    choice = Choice((dataset,), systems, ("clean",), quick)
    return list_cells(read_table("node"), choice)


def test_nothing_is_known_at_first():
    assert TimeLeft().estimate(cells("GCN"), 1) is None
    assert TimeLeft().estimate([], 1) == 0
    assert TimeLeft([{"error": "failed"}]).estimate(cells("GCN"), 1) is None


def test_the_nearest_experience_counts():
    known = TimeLeft([record("texas", "gcn", 2.0), record("texas", "gcn", 4.0), record("texas", "hkn", 9.0)])
    # Texas has ten splits with three seeds each, Cora one seed.
    assert known.estimate(cells("GCN"), 1) == 30 * 3.0
    assert known.estimate(cells("GCN", "HKN"), 2) == 30 * (3.0 + 9.0) / 2
    assert known.estimate(cells("MLP"), 1) == 30 * 5.0
    # Texas has 183 nodes and 295 edges, Cora 2708 and 5278.
    assert abs(known.estimate(cells("MLP", dataset="cora"), 1) - 10 * 5.0 * (2708 + 5278) / (183 + 295)) < 1e-6


def test_quick_trainings_say_nothing_about_the_others():
    assert TimeLeft([record("texas", "gcn", 2.0, quick=True)]).estimate(cells("GCN"), 1) is None
