from argparse import Namespace

from many_networks import make_cells, measure

from hkconv.experiments.batches import group_cells

GIVEN = Namespace(datasets=("tree",), models=("gcn",), networks=3, epochs=2, jobs=1, singles=2, device="cpu", data=None)


def test_both_ways_are_timed_and_train_alike():
    (row,) = measure(GIVEN)
    assert row["ratio"] == row["batch_per_second"] / row["workers_per_second"] > 0
    assert row["largest_difference"] < 1e-5


def test_the_trainings_are_different_and_fit_into_one_batch():
    cells = make_cells("tree", "hkn", 45, GIVEN)
    assert len({cell.training_identity for cell in cells}) == 45
    assert group_cells(cells, 45) == [tuple(cells)]
