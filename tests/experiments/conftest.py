"""Recipes of tables small enough to fill in a test."""

from pathlib import Path

import pytest

NODE = """\
metric: accuracy
settings: {epochs: 3, hidden_dim: 4, num_layers: 2}
systems:
  MLP: {model: mlp}
  GCN: {model: gcn, lr: 0.005}
  HKN: {model: hkn, relative: false}
protocols:
  clean: {num_splits: 2, seeds: 1}
quick: {num_splits: 1, epochs: 1}
datasets:
  tree:
    systems: {HKN: {kernel_size: 2}}
    paper: {MLP: [50.0, 1.0], GCN: null}
"""
KERNELS = """\
base: node
of: HKN
variants: {K=2: {kernel_size: 2}, K=3: {kernel_size: 3}}
datasets: {tree: {paper: {K=3: [1.5, 0.5]}}}
"""
TUNING = """\
trials: 4
num_splits: 2
space: {lr: [0.01, 0.02, 0.05], dropout: [0, 0.5], direction: [both, in, out]}
own: {HKN: {kernel_size: [2, 3, 4]}, GCN: {lr: [0.001]}}
"""


@pytest.fixture
def recipes(tmp_path) -> Path:
    """The table ``node`` with three systems on the embedded tree, and ``kernels-node`` derived from it."""
    folder = tmp_path / "recipes"
    contents = {"node": NODE, "kernels-node": KERNELS, "tuning/node": TUNING}
    for name, content in contents.items():
        path = folder / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder
