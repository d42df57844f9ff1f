"""The wheel and the sdist: what they hold, and that the command line runs from an installed wheel alone."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from own_files import check_screens, write_people

from hkconv.ops.native.build import instruction_sets, library_name

ROOT = Path(__file__).parents[1]
BESIDE_THE_PACKAGE = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "hatch_build.py", "pyproject.toml"}


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The folder of a wheel that was built from the sdist beside it, not from the checkout."""
    folder = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)], cwd=folder)
    return folder


def run(command: list[str], cwd: Path, **environment: str) -> str:
    result = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_package_index_would_take_both(built):
    checked = run([sys.executable, "-m", "twine", "check", "--strict", *map(str, built.iterdir())], cwd=built)
    assert checked.count("PASSED") == 2


def package_files() -> set[str]:
    files = (path for path in (ROOT / "hkconv").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in files if path.suffix != ".so"}


def libraries() -> set[str]:
    return {f"hkconv/ops/native/{library_name(name)}" for name in instruction_sets()}


def test_the_wheel_holds_the_package_and_nothing_else(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
    metadata = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    assert names - metadata == package_files() | libraries()
    assert {
        "hkconv/py.typed",
        "hkconv/data/trees.py",
        "hkconv/experiments/recipes/node.yaml",
        "hkconv/viz/explorer/assets/page.html",
    } <= names
    assert any(name.endswith("/licenses/LICENSE") for name in metadata)


def test_the_sdist_holds_what_the_wheel_is_built_from(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames()}
    # Hatchling adds the metadata and, because the checkout has one, .gitignore.
    assert names - {"PKG-INFO", ".gitignore"} == package_files() | BESIDE_THE_PACKAGE


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Path:
    """The commands of a fresh virtual environment in which the wheel is installed."""
    home = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(home)
    python = home / "bin" / "python"
    wheel = str(next(built.glob("*.whl")))
    install = ["install", "--quiet", "--no-deps", "--no-index", wheel]
    run([sys.executable, "-m", "pip", "--python", str(python), *install], cwd=home)
    find = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(run([str(python), "-c", find], cwd=home).strip())
    # The dependencies come from this environment; the .pth files of a folder named in a .pth file are not read, so an
    # editable hkconv that may be installed there is not found.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = run([str(python), "-c", "import hkconv; print(hkconv.__file__)"], cwd=home, PYTHONPATH="")
    assert Path(where.strip()) == packages / "hkconv" / "__init__.py"
    return home / "bin"


@pytest.mark.nightly
def test_the_command_line_trains_from_an_installed_wheel(installed, tmp_path):
    command = [str(installed / "hkconv"), "train", "--epochs", "3", "--num-splits", "1", "--models", "hkn,mlp"]
    shown = run(command, cwd=tmp_path, PYTHONPATH="").lower()
    assert "hkn" in shown and "mlp" in shown
    assert (tmp_path / shown.split("files: ")[1].split()[0]).is_dir()


@pytest.mark.nightly
def test_a_new_user_goes_from_a_table_to_predictions_with_an_installed_wheel(installed, tmp_path):
    write_people(tmp_path / "people")
    check_screens(lambda *arguments: run([str(installed / "hkconv"), *arguments], cwd=tmp_path, PYTHONPATH=""))
