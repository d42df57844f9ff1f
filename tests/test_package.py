"""The public names, as a program that has only said ``import hkconv`` finds them."""

import subprocess
import sys
from pathlib import Path

import pytest

import hkconv

PUBLIC_NAMES = (
    "hkconv.Lorentz",
    "hkconv.RiemannianAdam",
    "hkconv.RiemannianSGD",
    "hkconv.debug",
    "hkconv.kernel_energy",
    "hkconv.kernel_points",
    "hkconv.neighbors",
    "hkconv.geometry.lorentz.dist",
    "hkconv.nn.HDistance",
    "hkconv.nn.HEmbedding",
    "hkconv.nn.HKConv",
    "hkconv.nn.HLinear",
    "hkconv.nn.HMLR",
    "hkconv.nn.HeteroHKConv",
    "hkconv.nn.to_hetero",
    "hkconv.nn.global_centroid_pool",
    "hkconv.nn.knn_graph",
    "hkconv.models.HKN",
    "hkconv.data.load",
    "hkconv.testing.assert_on_manifold",
    "hkconv.tasks.fit",
    "hkconv.viz.save_figure",
)
# What a command or a layer that does not need it would wait for, or fail without.
HEAVY = (
    *(
        "fastapi",
        "matplotlib",
        "numba",
        "ogb",
        "onnx",
        "optuna",
        "pandas",
        "pyarrow",
        "rdkit",
        "sacrebleu",
        "tokenizers",
    ),
    *("transformers", "triton", "uvicorn"),
)
# PyG imports these itself where they are installed.
BROUGHT_BY_PYG = {"numba", "pandas", "pyarrow", "tokenizers", "transformers", "triton"}
PACKAGE = Path(hkconv.__file__).parent
ROOMS = sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py"))


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_every_public_name_is_reached_from_the_package_alone():
    result = run_python(f"import hkconv\nfor name in {PUBLIC_NAMES!r}:\n    assert callable(eval(name)), name")
    assert result.returncode == 0, result.stderr


def test_importing_the_package_does_not_load_torch():
    result = run_python("import sys, hkconv; sys.exit('torch' in sys.modules)")
    assert result.returncode == 0, result.stderr


def loaded_after(*modules):
    result = run_python(f"import sys, {', '.join(modules)}\nprint(*(set({HEAVY!r}) & sys.modules.keys()))")
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


def test_the_package_and_its_command_line_load_nothing_heavy():
    assert loaded_after("hkconv", "hkconv.cli.main") == set()


def test_the_rooms_load_nothing_heavy_but_what_pyg_loads():
    assert loaded_after(*(f"hkconv.{room}" for room in ROOMS)) <= BROUGHT_BY_PYG


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'hkconv' has no attribute 'HKComv'"):
        _ = hkconv.HKComv


def test_every_room_is_reached_and_listed():
    assert {"experiments", "geometry", "models", "nn"} <= set(ROOMS)
    for room in ROOMS:
        # Asked as Python asks where no import has set the attribute yet.
        assert hkconv.__getattr__(room).__name__ == f"hkconv.{room}"
    files = {path.stem for path in PACKAGE.glob("[!_]*.py")}
    assert dir(hkconv) == sorted([*hkconv.__all__, *ROOMS, *files])
