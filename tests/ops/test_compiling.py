"""Compiled kernels on disk: each test has a copy of the package, and each call of its kernel a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from py_compile import compile

import pytest
from numba.extending import is_jitted

import hkconv
from hkconv.ops.compiling import KernelCache

PACKAGE = Path(hkconv.__file__).parent
FOLDERS = ("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR")
KERNEL = """
from hkconv.ops.compiling import KERNEL, njit

@njit(**KERNEL)
def kernel(x):
    return x + 2
"""
# Imports PyTorch and Numba once, and forks a process for each call, for which the permissions of files hold.
SERVER = """
import json, os, sys, traceback, warnings
import numba, numpy as np, torch
from forked_command import _obey_permissions
numba.njit(lambda x: x)(1)

def call(source, environment, dtypes):
    _obey_permissions()
    os.environ.update(environment)
    numba.config.reload_config()
    sys.path.insert(0, source)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        from kernels import kernel
        values = [float(kernel(np.dtype(name).type(0))) for name in dtypes]
    loaded, folder = sum(kernel.stats.cache_hits.values()), kernel.stats.cache_path
    return {"values": values, "loaded": loaded, "folder": folder, "warnings": [str(item.message) for item in caught]}

for line in sys.stdin:
    if os.fork() == 0:
        try:
            answer = call(**json.loads(line))
        except BaseException:
            answer = {"error": traceback.format_exc()}
        print(json.dumps(answer), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def server():
    outside = {name: value for name, value in os.environ.items() if name not in FOLDERS}
    environment = {**outside, "PYTHONPATH": str(PACKAGE.parent / "tests"), "PYTHONDONTWRITEBYTECODE": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", SERVER], env=environment, **pipes) as process:
        yield process


class Copy:
    """A copy of the package with a small kernel beside it, in a folder that is also the user's home."""

    def __init__(self, server: subprocess.Popen, home: Path):
        self.server, self.home, self.source = server, home, home / "source"
        shutil.copytree(PACKAGE, self.source / "hkconv", ignore=shutil.ignore_patterns("__pycache__"))
        (self.source / "kernels.py").write_text(KERNEL)
        self.environment = {"HOME": str(home)}

    def call(self, *dtypes: str) -> dict:
        """The answer of a new process that calls the kernel at 0, in float32 unless told otherwise."""
        order = {"source": str(self.source), "environment": self.environment, "dtypes": dtypes or ("float32",)}
        self.server.stdin.write(json.dumps(order) + "\n")
        self.server.stdin.flush()
        answer = json.loads(self.server.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer

    def lock(self, *folders: Path) -> None:
        """Let nothing be written in some folders, nor beside the sources."""
        for folder in (self.source, *folders):
            folder.chmod(0o500)

    def kernels(self) -> list[Path]:
        return sorted(self.home.rglob("*.nb[ci]"))


@pytest.fixture
def copy(server, tmp_path):
    yield Copy(server, tmp_path)
    for folder in (tmp_path, *tmp_path.rglob("__pycache__"), tmp_path / "source"):
        folder.chmod(0o700)


def test_nowhere_to_write_is_one_warning_and_no_error(copy):
    copy.lock(copy.home)
    found = copy.call("float32", "float64")
    assert found["values"] == [2, 2]
    (warning,) = found["warnings"]
    assert "set NUMBA_CACHE_DIR to a folder" in warning


def test_kernels_without_their_source_are_compiled_in_memory_with_one_warning(copy):
    source = copy.source / "kernels.py"
    compile(source, source.with_suffix(".pyc"))
    source.unlink()
    found = copy.call()
    assert found["values"] == [2]
    assert len(found["warnings"]) == 1
    assert copy.kernels() == []


def test_the_users_cache_serves_where_the_package_is_read_only(copy):
    copy.lock()
    assert copy.call()["loaded"] == 0
    again = copy.call()
    assert again["values"] == [2]
    assert again["loaded"] == 1
    assert again["warnings"] == []
    kernels = copy.home / ".cache" / "hkconv" / "kernels"
    assert kernels in Path(again["folder"]).parents
    assert kernels.stat().st_mode & 0o777 == 0o700


def test_a_cache_that_others_can_write_to_is_passed_over(copy):
    copy.lock()
    kernels = copy.home / ".cache" / "hkconv" / "kernels"
    kernels.mkdir(parents=True)
    kernels.chmod(0o777)
    assert len(copy.call()["warnings"]) == 1
    assert list(kernels.iterdir()) == []


def test_kernels_that_were_compiled_before_all_was_locked_are_read(copy):
    copy.call()
    copy.lock(copy.source / "__pycache__", copy.home)
    found = copy.call()
    assert found["loaded"] == 1
    assert found["warnings"] == []


def test_a_folder_that_the_user_names_comes_first(copy):
    chosen = copy.home / "chosen"
    copy.environment["NUMBA_CACHE_DIR"] = str(chosen)
    assert copy.call()["loaded"] == 0
    assert copy.call()["loaded"] == 1
    assert [chosen in file.parents for file in copy.kernels()] == [True]


def test_a_change_in_another_module_is_compiled_and_leaves_nothing_old(copy):
    assert copy.call()["values"] == [2]
    old = copy.kernels()
    other = copy.source / "hkconv" / "ops" / "backends.py"
    other.write_text(other.read_text() + "# changed\n")
    assert copy.call()["values"] == [2]
    assert len(copy.kernels()) == 1
    assert copy.kernels() != old


def test_what_processes_compile_at_once_for_different_types_is_all_kept(copy):
    for dtype in ("float32", "float64"):  # neither sees what the other writes, as where both begin together
        copy.environment["NUMBA_CACHE_DIR"] = str(copy.home / dtype)
        copy.call(dtype)
        shutil.copytree(copy.home / dtype, copy.home / "both", dirs_exist_ok=True)
    copy.environment["NUMBA_CACHE_DIR"] = str(copy.home / "both")
    found = copy.call("float32", "float64")
    assert found["values"] == [2, 2]
    assert found["loaded"] == 2


@pytest.mark.parametrize("content", [b"", b"\x80nothing"])
def test_a_broken_file_is_compiled_anew(content, copy):
    copy.call()
    for file in copy.kernels():
        file.write_bytes(content)
    found = copy.call()
    assert found["values"] == [2]
    assert found["loaded"] == 0
    assert copy.call()["loaded"] == 1


def test_all_kernels_of_the_package_are_kept_so():
    files = [path for path in PACKAGE.rglob("*.py") if "@njit(" in path.read_text()]
    names = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in files]
    functions = [item for name in names for item in vars(import_module(name)).values() if is_jitted(item)]
    kept = [function for function in functions if function.stats.cache_path is not None]
    assert len(kept) > 4
    assert all(isinstance(function._cache, KernelCache) for function in kept)
