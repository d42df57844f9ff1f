import os

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from hkconv.points import kernel_points


def test_prints_energy_and_radii(hkconv):
    result = hkconv("points", 4, 3)
    assert result.exit_code == 0
    assert "10.495191" in result.stdout
    assert "min " in result.stdout
    assert "apart" in result.stdout


def test_one_point_is_the_origin(hkconv):
    result = hkconv("points", 1, 5)
    assert result.exit_code == 0
    assert "max 0.000000" in result.stdout
    assert "apart" not in result.stdout


@pytest.mark.parametrize("name", ["points.npy", "points.safetensors"])
def test_saves(hkconv, in_empty_folder, name):
    arguments = ("--curvature", -0.5, "--method", "random", "--seed", 3, "--out", name)
    assert hkconv("points", 3, 2, *arguments).exit_code == 0
    assert os.listdir(in_empty_folder) == [name]
    saved = torch.from_numpy(np.load(name)) if name.endswith("npy") else load_file(name)["points"]
    assert torch.equal(saved, kernel_points(3, 2, -0.5, method="random", seed=3))


@pytest.mark.parametrize(
    "arguments, word",
    [
        ((0, 3), "0"),
        ((3, 0), "0"),
        ((3, 2, "--curvature", 0), "curvature"),
        ((3, 2, "--curvature", 1.5), "curvature"),
        ((3, 2, "--method", "grid"), "method"),
        ((3, 2, "--out", "points.txt"), "out must end in .npy or .safetensors"),
        ((3, 2, "--out", "nowhere/points.npy"), "folder nowhere does not exist"),
    ],
)
def test_bad_input_leaves_nothing(hkconv, in_empty_folder, arguments, word):
    assert word in hkconv.fails("points", *arguments)
    assert os.listdir(in_empty_folder) == []
