"""Checks of files that anybody may have made: ``.npz`` of plain arrays, and pickles that ask for known names only."""

# It takes pickles apart and runs none.
import pickletools  # nosec B403
from collections.abc import Collection
from pathlib import Path

import numpy as np

from hkconv.errors import InputError
from hkconv.opening import check_regular

# Newer pickles take names from a stack, where they cannot be read off; extensions and persistent ids lead elsewhere.
_HIDDEN = ("STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4", "PERSID")


def read_arrays(path: Path, place: str, only: Collection[str] | None = None) -> dict[str, np.ndarray]:
    """The arrays of a file.

    Args:
        path: an ``.npz`` file.
        place: how an error calls it.
        only: names of those to read; all, if left out.

    Returns:
        The arrays by name. An :class:`InputError` where the file is damaged or holds anything else.
    """
    try:
        check_regular(path)
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise InputError(f"{place} must be an .npz file of named arrays, got a single array")
        with archive:
            names = [name for name in archive.files if only is None or name in only]
            found = {name: archive[name] for name in names}
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"{place} cannot be read ({error.strerror or 'damaged'})") from None
    # Text, half an archive, a pickle or a header that lies: NumPy fails with whatever error comes first.
    except Exception as error:
        reason = "it holds Python objects" if "Object arrays" in str(error) else "it is damaged or something else"
        raise InputError(f"{place} is not a valid .npz file of plain arrays: {reason}") from None
    for name, array in found.items():
        # What lacks the mark of an array comes as bytes.
        if not isinstance(array, np.ndarray):
            raise InputError(f"{place} is not a valid .npz file of plain arrays: {name!r} is none")
    return found


def check_pickle(content: bytes, allowed: Collection[str], place: str) -> None:
    """Raise if a pickle asks for a name that is not allowed, or for one that cannot be read off.

    A pickle is a program, and its names are all it can reach; they are read off before it is run.

    Args:
        content: the pickle. What is damaged fails with whatever error comes first.
        allowed: names as ``"module name"``.
        place: how an error calls the file.
    """
    for step, argument, _ in pickletools.genops(content):
        if step.name in _HIDDEN or (step.name == "GLOBAL" and argument not in allowed):
            name = str(argument).replace(" ", ".") if step.name == "GLOBAL" else step.name
            raise InputError(f"{place} is refused: it asks for {name}, which a graph of tensors does not need")
