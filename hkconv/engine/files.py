"""Files that are either whole or absent: a reader never meets half of one, whenever the writer was stopped.

A file is written beside its place, under a hidden name that ends in ``.part``, and renamed into it. What a killed
process left under such a name is nobody's result, and is removed when its run goes on.
"""

import errno
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from hkconv.errors import InputError

try:
    import fcntl
except ImportError:  # Windows has no such locks.
    fcntl = None  # type: ignore[assignment]  # it is looked at before every use

PART = ".part"


@contextmanager
def whole_file(path: Path, what: str = "") -> Iterator[IO[bytes]]:
    """A file to write to, which appears under its name when the block ends, whole, and not at all if it fails.

    Args:
        path: where the file goes; its folder exists. A link that is there is replaced, not followed.
        what: how an error calls the file, for example ``"out"``.
    """
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, 0o666 & ~_umask())
            os.replace(temporary, path)
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


def remove_parts(folder: Path) -> None:
    """Remove what a killed process left of files that it was writing. Nobody else may be writing to the folder.

    Args:
        folder: of a run, with all that is below it.
    """
    for place, _, names in os.walk(folder):
        for name in filter(is_part, names):
            with suppress(OSError):
                os.unlink(Path(place, name))


def is_part(name: str) -> bool:
    """Return whether a file's name is that of one that was not finished."""
    return name.startswith(".") and name.endswith(PART)


def is_empty(folder: Path) -> bool:
    """Return whether a folder holds nothing but files that were not finished."""
    return all(is_part(path.name) for path in folder.iterdir())


def write_json(path: Path, value: Any, what: str = "") -> None:
    """Write ``value`` as indented JSON, atomically. NaN and Inf are refused: no other reader knows them."""
    write_bytes(path, (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode(), what)


def append_json(path: Path, value: Any, what: str) -> None:
    """Add a line of JSON to a file: one write, safely on the disk when this returns, or none.

    Args:
        path: the file; made if it is not there. A link is refused: it may lead out of the folder.
        value: plain data, without NaN or Inf.
        what: how an error calls the file.
    """
    append_line(path, json.dumps(value, ensure_ascii=False, allow_nan=False), what)


def append_line(path: Path, line: str, what: str, header: str = "") -> None:
    """Add a line to a file: one write, safely on the disk when this returns, or none.

    Args:
        path: the file; made if it is not there. A link is refused: it may lead out of the folder.
        line: without its end.
        what: how an error calls the file.
        header: goes before the first line of an empty file.
    """
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o666)
        try:
            _append(handle, f"{line}\n".encode(), f"{header}\n".encode() if header else b"")
        finally:
            os.close(handle)
    except OSError as error:
        raise write_refusal(path, what, error) from None


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
    except (ValueError, RecursionError):
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


def _append(handle: int, line: bytes, header: bytes) -> None:
    if fcntl is not None:
        # Others may append at the same time. Some shared folders have no locks.
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
    size = os.fstat(handle).st_size
    # Half a line, left by a lost machine, must not swallow this one.
    start = header if size == 0 else b"" if os.pread(handle, 1, size - 1) == b"\n" else b"\n"
    content = start + line
    try:
        if os.write(handle, content) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.fsync(handle)
    except OSError:
        os.ftruncate(handle, size)
        raise


def write_refusal(path: Path, what: str, error: OSError) -> InputError:
    """Return the error of a file that cannot be written; ``what`` is the user's name for it."""
    return InputError(f"{what} {path} cannot be written ({error.strerror or error})".lstrip())


def _umask() -> int:
    # The only way to read it is to set it; mkstemp makes files private, ours are meant to be shared.
    mask = os.umask(0)
    os.umask(mask)
    return mask
