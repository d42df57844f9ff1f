"""Files and folders of a run: JSON, logs, what a killed process left, and the lock that keeps others out.

What a killed process left under a hidden name that ends in ``.part`` is nobody's result, and is removed when its run
goes on.
"""

import errno
import json
import os
import platform
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any

from hkconv.atomic import PART, sync_folder, write_bytes, write_refusal
from hkconv.errors import InputError
from hkconv.opening import read_text

try:
    import fcntl
except ImportError:  # Windows has no such locks.
    fcntl = None  # type: ignore[assignment]  # it is looked at before every use

LOCK = ".hkconv-lock"
# Characters of a lock that tell who holds it.
HOLDER = 300
# How often a lock that is removed by others in the same moment is asked for.
ATTEMPTS = 100


class InUseError(InputError):
    """Another process works in a folder."""


@contextmanager
def locked(folder: Path, argument: str) -> Iterator[Path]:
    """Keep other processes out of a folder; one line says who works in it if somebody does.

    The lock is the system's, and ends with the process however that ends. Its file goes at the end of the block, and so
    does a folder that was made for it and has stayed empty. On a file system without locks nobody is kept out.

    Args:
        folder: made if it is not there.
        argument: the user's name for it, for the error.
    """
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    handle = _hold(folder, argument)
    try:
        yield folder
    finally:
        # Removed while it is held: whoever has opened it in the meantime sees that, and opens the next one.
        with suppress(OSError):
            os.unlink(folder / LOCK)
        os.close(handle)
        with suppress(OSError):
            for path in made:
                path.rmdir()


def hold_new(held: ExitStack, out: str | None, name: str) -> Path:
    """Hold the folder of a new run, empty, for as long as ``held`` is open.

    Args:
        held: closed when the run ends.
        out: the folder; None for one of its own in ``runs/``.
        name: how that begins; the time follows.
    """
    if out is not None:
        folder = held.enter_context(locked(Path(out), "out"))
        if not is_empty(folder):
            raise InputError(f"out {out} is not empty: name another folder, or continue its run with --resume {out}")
        remove_parts(folder)
        return folder
    name = f"{name}-{datetime.now():%Y%m%d-%H%M%S}"
    candidates = (Path("runs", name if attempt == 1 else f"{name}-{attempt}") for attempt in count(1))
    while True:
        # Another run may begin in the same second.
        with suppress(InUseError):
            return held.enter_context(locked(next(path for path in candidates if not path.exists()), "out"))


def _hold(folder: Path, argument: str) -> int:
    """Return a descriptor of the lock's file, which is locked and says by whom."""
    for attempt in count(1):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
            try:
                _lock(handle, f"{argument} {folder}")
                if os.path.samestat(os.stat(folder / LOCK), os.fstat(handle)):
                    os.ftruncate(handle, 0)
                    os.write(handle, _description().encode(errors="replace"))  # arguments may be no UTF-8
                    break
            except BaseException:
                os.close(handle)
                raise
            os.close(handle)
        except OSError as error:
            # Whoever held it may have just removed the file, and the folder too: mkdir then says that what it looked
            # for again exists, or that it does not.
            gone = isinstance(error, (FileNotFoundError, FileExistsError)) and not folder.is_file()
            if not gone or attempt == ATTEMPTS:
                raise _folder_refusal(folder, argument, error) from None
    return handle


def _lock(handle: int, place: str) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = "".join(filter(str.isprintable, os.pread(handle, HOLDER, 0).decode(errors="replace")))
        raise InUseError(f"{place} is in use by {holder or 'another process'}: wait for it or stop it") from None
    except OSError:
        # Some shared folders have no locks.
        return


def _description() -> str:
    """Return which process this is, in words."""
    program = "hkconv" if Path(sys.argv[0]).name == "__main__.py" else Path(sys.argv[0]).name
    command = shlex.join([program, *sys.argv[1:]])
    return f"process {os.getpid()} on {platform.node()} since {datetime.now():%Y-%m-%d %H:%M:%S}: {command}"[:HOLDER]


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
    """Return whether a folder holds nothing but a lock and files that were not finished."""
    return all(path.name == LOCK or is_part(path.name) for path in folder.iterdir())


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
            is_new = _append(handle, f"{line}\n".encode(), f"{header}\n".encode() if header else b"")
        finally:
            os.close(handle)
        if is_new:
            sync_folder(path.parent)
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
        value = json.loads(read_text(path))
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
        raise _folder_refusal(path, argument, error) from None
    return path


def _folder_refusal(path: Path, argument: str, error: OSError) -> InputError:
    return InputError(f"{argument} must be a folder that can be written to, got {path} ({error.strerror})")


def _append(handle: int, line: bytes, header: bytes) -> bool:
    """Add a line; return whether it is the first of the file."""
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
    return size == 0
