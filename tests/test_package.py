"""The public names, as a program that has only said ``import hkconv`` finds them."""

import subprocess
import sys

import pytest

PUBLIC_NAMES = (
    "hkconv.Lorentz",
    "hkconv.RiemannianAdam",
    "hkconv.debug",
    "hkconv.kernel_energy",
    "hkconv.kernel_points",
    "hkconv.neighbors",
    "hkconv.geometry.lorentz.dist",
    "hkconv.nn.HDistance",
    "hkconv.nn.HEmbedding",
    "hkconv.nn.HKConv",
    "hkconv.nn.HLinear",
    "hkconv.nn.global_centroid_pool",
    "hkconv.nn.knn_graph",
    "hkconv.models.HKN",
    "hkconv.data.load",
    "hkconv.testing.assert_on_manifold",
    "hkconv.training.fit",
    "hkconv.viz.save_figure",
)


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_every_public_name_is_reached_from_the_package_alone():
    result = run_python(f"import hkconv\nfor name in {PUBLIC_NAMES!r}:\n    assert callable(eval(name)), name")
    assert result.returncode == 0, result.stderr


def test_importing_the_package_does_not_load_torch():
    result = run_python("import sys, hkconv; sys.exit('torch' in sys.modules)")
    assert result.returncode == 0, result.stderr


def test_an_unknown_name_is_an_attribute_error():
    import hkconv

    with pytest.raises(AttributeError, match="module 'hkconv' has no attribute 'HKComv'"):
        _ = hkconv.HKComv
    assert {"nn", "Lorentz", "kernel_points"} <= set(dir(hkconv))
