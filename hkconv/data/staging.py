"""Keeps what is made from raw files in the user's cache, and lets PyG process them there.

PyG writes a ``processed`` folder next to ``raw``, but a data root may be read-only or shared. So the raw folder
is linked into the user's cache and processed there. Files are written bit by bit; to keep other processes from
seeing half of one, each works in a private folder and renames the finished one into place.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from hkconv.errors import InputError


def cache_folder() -> Path:
    """The folder for what can be made again: ``hkconv`` under ``XDG_CACHE_HOME``, else under ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "hkconv"


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """The folder that holds the raw datasets.

    Args:
        root: the user's choice, which must exist; without it the folder that ``HKCONV_DATA`` names, which
            must exist too; without that ``data`` in the cache folder, which is made when first needed.

    Returns:
        The folder.
    """
    chosen, origin = (root, "data root") if root is not None else (os.environ.get("HKCONV_DATA"), "HKCONV_DATA")
    if not chosen:
        return cache_folder() / "data"
    folder = Path(os.path.expanduser(chosen))
    if not os.path.isdir(folder):
        raise InputError(f"{origin} {str(folder)!r} is not a folder: name the existing folder of the datasets")
    return folder


def staged(root: Path, raw_folder: str, process: Callable[[Path], object]) -> Path:
    """A folder laid out as ``root``, in which the raw folder appears and PyG has already processed it.

    Args:
        root: the data root, never written to.
        raw_folder: the raw folder, relative to ``root``.
        process: opens the PyG dataset below the folder it is given.

    Returns:
        The folder in the cache to open the PyG dataset from.
    """
    import torch_geometric

    raw = (root / raw_folder).resolve()

    def link_and_process(private: Path) -> None:
        _link(raw, private / raw_folder)
        process(private)

    return made_once((fingerprint(*sorted(raw.iterdir())), torch_geometric.__version__), link_and_process)


def made_once(identity: object, make: Callable[[Path], object]) -> Path:
    """A folder of the cache that was filled when it was first asked for.

    Args:
        identity: what the content depends on, with a ``repr`` that changes whenever it does.
        make: fills the empty folder that it is given.

    Returns:
        The filled folder.
    """
    home = cache_folder() / "staged"
    finished = home / hashlib.sha256(repr(identity).encode()).hexdigest()[:32]
    if finished.is_dir():
        return finished
    private = _private_folder(home)
    try:
        make(private)
        _rename_unless_there(private, finished)
    finally:
        shutil.rmtree(private, ignore_errors=True)
    return finished


def fingerprint(*files: Path) -> list[tuple[str, int, int]]:
    """Changes with the path, the size and the time of change of any of the files."""
    return [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files]


def _private_folder(home: Path) -> Path:
    try:
        home.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=".private-", dir=home))
    except OSError as error:
        raise InputError(
            f"cannot write to the cache folder {str(home)!r} ({error.strerror}): set XDG_CACHE_HOME to one "
            "that can be written to"
        ) from error


def _link(raw: Path, target: Path) -> None:
    target.parent.mkdir(parents=True)
    try:
        target.symlink_to(raw, target_is_directory=True)
    except OSError:
        shutil.copytree(raw, target)


def _rename_unless_there(private: Path, finished: Path) -> None:
    try:
        os.rename(private, finished)
    except OSError:
        # Another process was faster; what it made is the same.
        if not finished.is_dir():
            raise
