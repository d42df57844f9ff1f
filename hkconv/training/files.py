"""Files that are either whole or absent: a reader never meets half of one, whenever the writer was stopped."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any

from hkconv.errors import InputError


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically: beside its place first, then renamed into it.

    Args:
        path: where the file goes; its folder exists.
        content: all of it.
    """
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def write_json(path: Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically. NaN and Inf are refused: no other reader knows them."""
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode())


def append_json(path: Path, value: Any, what: str) -> None:
    """Add a line of JSON to a file: one write, safely on the disk when this returns.

    Args:
        path: the file; made if it is not there.
        value: plain data, without NaN or Inf.
        what: how an error calls the file.
    """
    line = (json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n").encode()
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            # Half a line, left by a full disk or a lost machine, must not swallow this one.
            content = line if _ends_a_line(handle) else b"\n" + line
            if os.write(handle, content) != len(content):
                raise InputError(f"{what} {path} cannot be written: the disk is full")
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise InputError(f"{what} {path} cannot be written ({error.strerror})") from None


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Read a JSON object.

    Args:
        path: the file.
        what: how an error calls it, for example ``"recipe of the run"``.

    Returns:
        The object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{what} cannot be read: {path} ({error.strerror})") from None
    except ValueError:
        raise InputError(f"{what} is damaged: {path} is not valid JSON") from None
    if not isinstance(value, dict):
        raise InputError(f"{what} is damaged: {path} must hold a JSON object")
    return value


def make_folder(path: Path, argument: str) -> Path:
    """Make a folder, with its parents, and make sure that files can be written to it.

    Args:
        path: the folder; it may exist.
        argument: the user's name for it, for the error.

    Returns:
        The folder.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise InputError(f"{argument} must be a folder that can be written to, got {path} ({error.strerror})") from None
    return path


def _ends_a_line(handle: int) -> bool:
    size = os.fstat(handle).st_size
    return size == 0 or os.pread(handle, 1, size - 1) == b"\n"


def _umask() -> int:
    # The only way to read it is to set it; mkstemp makes files private, ours are meant to be shared.
    mask = os.umask(0)
    os.umask(mask)
    return mask
