"""Opening of files that a person names: regular ones alone, for a pipe or a device may never come to an end."""

import errno
import os
import stat
from typing import BinaryIO


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """A file to read bytes from; whatever is no regular file fails as an unreadable one does, with an ``OSError``."""
    # A pipe that nobody writes to would be waited for otherwise.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        _check_mode(os.fstat(handle).st_mode, path)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def check_regular(path: str | os.PathLike[str]) -> None:
    """Raise an ``OSError`` unless a path leads to a regular file, for what opens files itself."""
    _check_mode(os.stat(path).st_mode, path)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return all that a regular file holds."""
    with open_regular(path) as file:
        return file.read()


def read_text(path: str | os.PathLike[str]) -> str:
    """Return the UTF-8 text of a regular file."""
    return read_bytes(path).decode("utf-8")


def _check_mode(mode: int, path: str | os.PathLike[str]) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
