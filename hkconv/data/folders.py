"""Where data lies and where we may write: the data root and the user's cache folder."""

import os
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
    if not folder.is_dir():
        raise InputError(f"{origin} {str(folder)!r} is not a folder: name the existing folder of the datasets")
    return folder
