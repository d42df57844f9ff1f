import torch

from hkconv.data.catalog import CATALOG
from hkconv.experiments.epochs import PAPER_DATASETS, EpochPlan, epoch_ratios, run_epochs
from hkconv.tasks.recipe import make_recipe


def plan(datasets, models, **fields):
    recipe = make_recipe(num_splits=1, hidden_dim=4, **fields)
    return EpochPlan(datasets, models, recipe, torch.device("cpu"), budget=0.05)


def test_times_epochs_of_every_model():
    document = run_epochs(plan(("tree",), ("hkn", "gcn")))
    (cell,) = document["cells"]
    assert cell["data"]["num_nodes"] > 900
    assert all(cell["models"][name]["epoch"]["repeats"] >= 3 for name in ("hkn", "gcn"))
    assert set(cell["ratios"]) == {"hkn/gcn"}
    assert len(document["paper"]["seconds_an_epoch"]) == 13


def test_missing_data_and_models_are_named_with_the_reason(tmp_path):
    (tmp_path / "tu").mkdir()
    saved = []
    document = run_epochs(plan(("ptc", "tree"), ("nonsense",), data=str(tmp_path)), saved.append)
    ptc, tree = document["cells"]
    assert "ptc" in ptc["skipped"]
    assert tree["models"]["nonsense"]["skipped"].startswith("failed: unknown model 'nonsense'")
    assert len(saved) == 3


def test_the_result_says_nothing_of_where_the_data_lies(tmp_path):
    document = run_epochs(plan((), ("hkn",), data=str(tmp_path)))
    assert str(tmp_path) not in str(document)


def test_ratios():
    times = {"hkn": {"epoch": {"median": 3.0}}, "hybonet": {"epoch": {"median": 2.0}}, "hgcn": {"skipped": "x"}}
    assert epoch_ratios(times) == {"hkn/hybonet": 1.5}
    assert epoch_ratios({"gcn": {"epoch": {"median": 1.0}}}) == {}


def test_every_dataset_of_the_paper_is_in_the_catalog():
    assert set(PAPER_DATASETS) <= set(CATALOG)
