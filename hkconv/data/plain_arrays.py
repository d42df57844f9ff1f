"""Arrays from ``.npz`` files that anybody may have made: numbers and text, never anything that runs."""

from collections.abc import Collection
from pathlib import Path

import numpy as np

from hkconv.errors import InputError


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
