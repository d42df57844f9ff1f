"""A parallel corpus as token ids on disk: encoded once, then memory-mapped, so that its size does not matter.

A corpus is three files: ``NAME.ids``, the ids of every pair one after the other (first the source, then the target,
without special tokens); ``NAME.lengths``, two numbers a pair; and ``NAME.json``, written last, which describes them.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hkconv.atomic import whole_file
from hkconv.data.parallel_text import ParallelText
from hkconv.engine.files import make_folder, read_json, write_json
from hkconv.errors import InputError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

LENGTH_TYPE = np.dtype("<i4")
# For a vocabulary of up to 2^16 tokens, and for a larger one.
ID_TYPES = ("<u2", "<u4")
# Pairs that are encoded together; the package uses every core for them.
_CHUNK = 8192
_NAMED_LINES = 5


@dataclass(frozen=True)
class CorpusInfo:
    """Facts of a corpus.

    Args:
        pairs: pairs kept.
        tokens: ids of source and target together.
        too_long: pairs left out because a side, with its end, is longer than ``max_length``.
        too_long_lines: the first few of their lines, from 1.
        max_length: most tokens of a sentence, its end included.
        id_type: NumPy's name of the type of the ids.
        digest: of ids and lengths, so that a corpus made anew can be told from another one.
    """

    pairs: int
    tokens: int
    too_long: int
    too_long_lines: list[int]
    max_length: int
    id_type: str
    digest: str

    @property
    def report(self) -> str | None:
        """Return what a user must know of pairs left out; None where there are none."""
        if not self.too_long:
            return None
        lines = ", ".join(map(str, self.too_long_lines)) + (", ..." if self.too_long > len(self.too_long_lines) else "")
        total = self.pairs + self.too_long
        return f"{self.too_long:,} of {total:,} pairs left out: longer than {self.max_length} tokens (lines {lines})"


@dataclass
class _Kept:
    """Counts of a corpus while it is written."""

    pairs: int = 0
    tokens: int = 0
    too_long: int = 0
    too_long_lines: list[int] = field(default_factory=list)


class Corpus:
    """A corpus on disk.

    Args:
        folder: where its files are.
        name: how their names begin.
    """

    def __init__(self, folder: Path, name: str):
        self.info = read_info(folder, name)
        paths = {part: folder / f"{name}.{part}" for part in ("ids", "lengths")}
        try:
            self.ids = np.memmap(paths["ids"], self.info.id_type, "r", shape=(self.info.tokens,))
            flat = np.fromfile(paths["lengths"], LENGTH_TYPE)
            self.lengths = flat.reshape(self.info.pairs, 2)
        except (OSError, ValueError, OverflowError, MemoryError):
            raise InputError(f"corpus {folder / name} is damaged: remove it to have it made anew") from None
        ends = self.lengths.sum(1, dtype=np.int64).cumsum()
        if self.lengths.min() < 0 or ends[-1] != self.info.tokens:
            raise InputError(f"corpus {folder / name} is damaged: remove it to have it made anew")
        #: Where the source of each pair begins in ``ids``; its target follows.
        self.starts = np.concatenate([[0], ends[:-1]])

    def __len__(self) -> int:
        return self.info.pairs


def encode_corpus(text: ParallelText, tokenizer: "Tokenizer", max_length: int, folder: Path, name: str) -> CorpusInfo:
    """Encode a parallel text and write it, a few thousand pairs at a time.

    Args:
        text: the sentences.
        tokenizer: encodes both sides.
        max_length: most tokens of a sentence, its end included; a longer one leaves its pair out and is counted.
        folder: where the files go.
        name: how their names begin.
    """
    make_folder(folder, "the folder of the corpus")
    id_type = np.dtype(ID_TYPES[tokenizer.get_vocab_size() > 1 << 16])
    kept = _Kept()
    # One for each file: together they must not depend on how the text was divided while it was written.
    digests = [hashlib.sha256(), hashlib.sha256()]
    with whole_file(folder / f"{name}.ids") as ids_file, whole_file(folder / f"{name}.lengths") as lengths_file:
        for arrays in _encoded_chunks(text, tokenizer, max_length, id_type, kept):
            for file, digest, array in zip((ids_file, lengths_file), digests, arrays):
                file.write(array.tobytes())
                digest.update(array.tobytes())
        if kept.pairs == 0:
            raise InputError(f"every pair of {text.source} is longer than max_length = {max_length} tokens: raise it")
    of_both = hashlib.sha256(b"".join(part.digest() for part in digests)).hexdigest()
    info = CorpusInfo(**asdict(kept), max_length=max_length, id_type=id_type.str, digest=of_both)
    write_json(folder / f"{name}.json", asdict(info))
    return info


def read_info(folder: Path, name: str) -> CorpusInfo:
    """The description of a corpus on disk."""
    path = folder / f"{name}.json"
    stored = read_json(path, "the corpus")
    kinds = {**dict.fromkeys(("pairs", "tokens", "too_long", "max_length"), int), "id_type": str, "digest": str}
    is_sound = (
        stored.keys() == {*kinds, "too_long_lines"}
        and all(type(stored[key]) is kind for key, kind in kinds.items())
        and isinstance(stored["too_long_lines"], list)
        and min(stored["pairs"], stored["tokens"]) >= 1
        # Any other type of NumPy's could make pointers of a file's bytes.
        and stored["id_type"] in ID_TYPES
    )
    if not is_sound:
        raise InputError(f"the corpus is damaged: {path} does not describe one")
    return CorpusInfo(**stored)


def _encoded_chunks(
    text: Iterable[tuple[str, str]], tokenizer: "Tokenizer", max_length: int, id_type: np.dtype, kept: _Kept
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    pairs, line = iter(text), 0
    while chunk := list(islice(pairs, _CHUNK)):
        sources, targets = (tokenizer.encode_batch_fast(side) for side in map(list, zip(*chunk)))
        ids: list[int] = []
        lengths: list[tuple[int, int]] = []
        for source, target in zip(sources, targets):
            line += 1
            if max(len(source), len(target)) >= max_length:
                kept.too_long += 1
                kept.too_long_lines += [line] if len(kept.too_long_lines) < _NAMED_LINES else []
                continue
            ids += source.ids + target.ids
            lengths.append((len(source), len(target)))
        kept.pairs += len(lengths)
        kept.tokens += len(ids)
        yield np.array(ids, id_type), np.array(lengths, LENGTH_TYPE).reshape(-1, 2)
