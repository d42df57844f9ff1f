"""Numba's compiler, with a cache on disk that is never stale and never a reason to fail.

Numba keeps a kernel as long as the file that defines it stays as it is, though code of other modules is compiled into
it. It raises an error where it finds no folder to write to. And two processes that compile a kernel for different
types at once overwrite each other's entries of its index, after which one may run what was compiled for the other's
types. Here each compiled kernel has a file of its own, named by all it was made of: a digest of the sources of this
room and of the kernel's own folder, options among them, then compiler, processor and types.
"""

import hashlib
import os
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache as once
from pathlib import Path
from typing import Any

import numba
from numba.core import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator

from hkconv.points.cache import cache_folder

# Kernels are called from Python, parts by kernels: what Numba would add for other callers takes a fifth of compiling.
_PLAIN: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
KERNEL = {**_PLAIN, "cache": True}
PART = {**_PLAIN, "forceinline": True, "no_cpython_wrapper": True}


def njit(*, cache: bool = False, **options: Any) -> Callable[[Callable], Any]:
    """Return Numba's decorator ``njit``; with ``cache`` what it compiles is kept as this module says."""

    def compiled(function: Callable) -> Any:
        dispatcher = numba.njit(**options)(function)
        if cache and os.path.isfile(function.__code__.co_filename):
            # As Numba's ``cache=True`` does, with another class. The one public switch, NUMBA_CACHE_LOCATOR_CLASSES, is
            # for all packages of the process.
            dispatcher._cache = KernelCache(function)
        elif cache:
            _warn("their sources are not there to know them by")
        return dispatcher

    return compiled


@once
def _digest(folder: Path) -> str:
    """Digest of the Python files in a folder."""
    files = [(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in sorted(folder.glob("*.py"))]
    return hashlib.sha256(repr(files).encode()).hexdigest()


# Before kernels are imported: what changes on disk while a process runs must not pass for what it has loaded.
_OPS = _digest(Path(__file__).parent)


@once
def _folder_for(source: Path) -> Path:
    """The first folder that can be written to; where none can, the first that is there, which may hold kernels."""
    for usable in (_is_writable, os.path.isdir):
        for folder in _folders(source):
            if usable(folder):
                return folder
    return source / "__pycache__"


def _folders(source: Path) -> Iterator[Path]:
    """Folders for the kernels of a source folder: the user's choice, beside the source, in the user's cache."""
    name = _CacheLocator.get_suitable_cache_subpath(str(source / "kernel.py"))
    if config.CACHE_DIR:
        yield Path(config.CACHE_DIR, name)
    yield source / "__pycache__"
    with suppress(OSError, RuntimeError):  # RuntimeError: a user without a home
        kernels = cache_folder().with_name("kernels")
        kernels.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _is_private(kernels):
            yield kernels / name


def _is_private(folder: Path) -> bool:
    """Return True where no other user can have put a file there: what is kept will be executed."""
    if os.name != "posix":
        return True
    status = folder.stat()
    return status.st_uid in (0, os.geteuid()) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


class _Locator(_CacheLocator):
    """Numba's view of the folder and the digest of a kernel."""

    def __init__(self, function: Callable, file: str) -> None:
        source = Path(file).parent.absolute()
        self._py_file = file  # Numba names it in a warning.
        self._line = function.__code__.co_firstlineno
        self._folder = _folder_for(source)
        self._stamp = hashlib.sha256((_OPS + _digest(source)).encode()).hexdigest()[:16]

    @classmethod
    def from_function(cls, py_func: Callable, py_file: str) -> "_Locator":
        return cls(py_func, py_file)

    def get_cache_path(self) -> str:
        return str(self._folder)

    def get_source_stamp(self) -> str:
        return self._stamp

    def get_disambiguator(self) -> str:
        return f"{self._line}-{self._stamp}"


class _KernelFiles(IndexDataCacheFile):
    """A file for each key, in place of Numba's index and numbered files."""

    def load(self, key: object) -> Any:
        with suppress(FileNotFoundError):
            return self._load_data(self._name(key))

    def save(self, key: object, data: object) -> None:
        self._save_data(self._name(key), data)
        kernel = self._index_name.partition("-")[0]
        for old in Path(self._cache_path).glob(f"{kernel}-*.nb[ci]"):
            if self._source_stamp not in old.name:
                old.unlink(missing_ok=True)

    def _name(self, key: object) -> str:
        """Name of a file. Numba's key has the types, the processor and the function's code."""
        made_of = repr((numba.__version__, config.OPT, config.BOUNDSCHECK, key))
        return self._index_name.removesuffix("nbi") + hashlib.sha256(made_of.encode()).hexdigest()[:32] + ".nbc"


class _KernelData(CompileResultCacheImpl):
    _locator_classes = (_Locator,)


class KernelCache(FunctionCache):
    """Compiled forms of a kernel on disk. Without a folder, or with a broken file, the kernel is compiled in memory."""

    _impl_class = _KernelData

    def __init__(self, function: Callable) -> None:
        super().__init__(function)
        locator = self._impl.locator
        self._cache_file = _KernelFiles(self._cache_path, self._impl.filename_base, locator.get_source_stamp())

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # A broken pickle may raise any; the file is then written anew.
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _warn(f"{error}; set NUMBA_CACHE_DIR to a folder that you alone can write to")


_warned: list[str] = []


def _warn(why: str) -> None:
    """Say once a process that kernels are not kept."""
    if not _warned:
        _warned.append(why)
        message = f"compiled kernels cannot be kept, so that each process may take a minute to compile its own: {why}"
        warnings.warn(message, stacklevel=2)
