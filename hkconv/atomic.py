"""The one writer of files that are either whole or absent: a reader never meets half of one.

A file is written beside its place, under a hidden name that ends in ``.part``, brought to the disk and renamed into its
place, and then so is the name: what a lost machine has when it comes back is the old file or the new one.
"""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from hkconv.errors import InputError

PART = ".part"
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
# What file systems say that cannot bring a folder to the disk, or may not read it.
UNSYNCED = {errno.EINVAL, errno.ENOTSUP, errno.EACCES}


@contextmanager
def whole_file(path: Path, what: str = "") -> Iterator[IO[bytes]]:
    """A file to write to, which appears under its name when the block ends, whole, and not at all if it fails.

    Args:
        path: where the file goes; its folder exists. A link that is there is replaced, not followed.
        what: how an error calls the file, for example ``"out"``.
    """
    try:
        temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}{PART}"
        handle = os.open(temporary, NEW, 0o666)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            sync_folder(path.parent)
        except BaseException:
            # An interrupt may come when the file has just got its name.
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise write_refusal(path, what, error) from None


def write_bytes(path: Path, content: bytes, what: str = "") -> None:
    """Write a file atomically.

    Args:
        path: where the file goes; its folder exists.
        content: all of it.
        what: how an error calls the file.
    """
    with whole_file(path, what) as file:
        file.write(content)


def sync_folder(folder: Path) -> None:
    """Bring the names of a folder's files to the disk, where the system can."""
    if os.name != "posix":
        return
    try:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in UNSYNCED:
            raise


def write_refusal(path: Path, what: str, error: OSError) -> InputError:
    """Return the error of a file that cannot be written; ``what`` is the user's name for it."""
    return InputError(f"{what} {path} cannot be written ({error.strerror or error})".lstrip())
