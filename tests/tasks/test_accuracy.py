"""Whole trainings: that the default model learns what it should, on embedded and on real data."""

import pytest
from nights import nightly

from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.run import train_run


@pytest.mark.parametrize("seed", [0, *nightly(1, 2)])
def test_hkn_beats_majority_and_mlp_on_the_embedded_tree(seed, tmp_path):
    recipe = make_recipe(models=("hkn", "mlp"), num_splits=1, seed=seed, out=str(tmp_path / "run"))
    summary = train_run(recipe)
    hkn, mlp = (row.test.mean for row in summary.models)
    assert summary.chance_rule == "majority class"
    assert hkn > mlp + 0.02
    assert hkn > summary.chance.mean + 0.4


@pytest.mark.nightly
def test_hkn_reaches_80_percent_on_ten_clean_splits_of_texas(real_data, tmp_path):
    """Two trainings a split: the mean of ten alone moves by about a point with the draw of the first weights."""
    given = {"dataset": "texas", "models": ("hkn",), "num_splits": 10, "seeds": 2, "data": str(real_data)}
    recipe = make_recipe(**given, out=str(tmp_path / "run"))
    summary = train_run(recipe)
    assert recipe.model.hkn.form == "views" and summary.dataset["protocol"] == "clean"
    assert summary.models[0].trainings == 20
    assert summary.models[0].test.mean >= 0.80
