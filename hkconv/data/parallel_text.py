"""Parallel text: line i of one file is the translation of line i of another, read as a stream and never whole.

Whatever is wrong with a file is found while it is read, and named with the file and the line.
"""

import gzip
import io
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from hkconv.errors import InputError
from hkconv.opening import check_regular

_BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True)
class ParallelText:
    """Two files of UTF-8 text, plain or compressed by gzip.

    Args:
        source: sentences, one a line.
        target: their translations.
    """

    source: Path
    target: Path

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Every pair, in order; an :class:`InputError` where a line is unusable or one file ends before the other."""
        lines = zip_longest(read_lines(self.source), read_lines(self.target))
        for number, (source, target) in enumerate(lines, start=1):
            if source is None or target is None:
                more = sum(1 for _ in lines)
                shorter, longer = (self.source, self.target) if source is None else (self.target, self.source)
                raise InputError(
                    f"{shorter} has {number - 1} lines and {longer} has {number + more}: "
                    "line i of one must be the translation of line i of the other"
                )
            yield source, target


def find_parallel_text(prefix: str | Path, source: str, target: str) -> ParallelText:
    """The files ``PREFIX.SOURCE`` and ``PREFIX.TARGET``, each as it is or with ``.gz``.

    Args:
        prefix: the beginning that the paths have in common, for example ``multi30k/train``.
        source: the language translated from, for example ``en``.
        target: the language translated to, for example ``de``.
    """
    return ParallelText(*(_find(Path(f"{prefix}.{language}")) for language in (source, target)))


def read_lines(path: Path, *, empty: bool = False) -> Iterator[str]:
    """The lines of a text file without their ends.

    Args:
        path: UTF-8 text, compressed if its name ends in ``.gz``.
        empty: whether an empty line is accepted.

    Returns:
        The lines, read as they are asked for; an :class:`InputError` names the line that cannot be used.
    """
    number = 0
    try:
        with _open(path) as file:
            for line in decode_lines(file, str(path), empty=empty):
                number += 1
                yield line
    except OSError as error:
        # gzip's complaint about a file that is not compressed has no system error.
        raise InputError(f"{path} cannot be read ({error.strerror or 'not a gzip file'})") from None
    except (EOFError, zlib.error):
        raise InputError(f"{path} is damaged after line {number}: the compressed file breaks off") from None
    if number == 0:
        raise InputError(f"{path} is empty: it should have a sentence a line")


def decode_lines(file: Iterable[bytes], name: str, *, empty: bool = False) -> Iterator[str]:
    """Lines of bytes as text, as they are asked for.

    Args:
        file: the lines, in UTF-8.
        name: how an error calls the file.
        empty: whether an empty line is accepted.
    """
    for number, content in enumerate(file, start=1):
        try:
            line = content.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            byte = f"byte {error.start + 1} is 0x{content[error.start]:02x}"
            raise InputError(f"{name}, line {number} is not valid UTF-8: {byte}") from None
        if number == 1:
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not empty and not line.strip():
            raise InputError(f"{name}, line {number} is empty: every line must hold a sentence")
        yield line


def _find(path: Path) -> Path:
    compressed = path.with_name(f"{path.name}.gz")
    for candidate in (path, compressed):
        if candidate.is_file():
            return candidate
    raise InputError(f"parallel text not found: there is neither {path} nor {compressed.name} beside it")


def _open(path: Path) -> gzip.GzipFile | io.BufferedReader:
    check_regular(path)
    # As bytes, because text mode would also end lines at characters that belong to a sentence.
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")
