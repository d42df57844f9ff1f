"""A run to draw, trained once."""

from pathlib import Path

import pytest

from hkconv.training.recipe import Recipe
from hkconv.training.run import train_run


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Path:
    """Two models on two splits of the embedded tree. Read it, never write to it."""
    folder = tmp_path_factory.mktemp("viz") / "run"
    train_run(Recipe(models=("hkn", "gcn"), epochs=3, num_splits=2, hidden_dim=3, device="cpu", out=str(folder)))
    return folder
