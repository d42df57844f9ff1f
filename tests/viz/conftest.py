"""A run to draw, trained once."""

from pathlib import Path

import pytest

from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.run import train_run


def _trained(folder: Path, **options) -> Path:
    values = {"models": ("hkn", "gcn"), "epochs": 3, "num_splits": 2, "hidden_dim": 3, "num_layers": 3, "device": "cpu"}
    train_run(make_recipe(**values, **options, out=str(folder)))
    return folder


@pytest.fixture(scope="session", params=["views", "paper"])
def run(request, tmp_path_factory) -> Path:
    """Two models on two splits of the embedded tree, HKN of either form. Read it, never write to it."""
    return _trained(tmp_path_factory.mktemp("viz") / "run", form=request.param)


@pytest.fixture(scope="session")
def sampled_run(tmp_path_factory) -> Path:
    """The same, trained on samples of neighbours."""
    return _trained(tmp_path_factory.mktemp("viz") / "sampled", neighbors=(4, 3, 2), batch_size=50)
