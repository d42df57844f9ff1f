"""From the words of a treebank to the states that an encoder has of them: subwords in, one vector a word out.

An encoder is anything with ``encoder_layers(ids)`` and ``geometry``, such as a
:class:`hkconv.models.translation.Seq2Seq`. Words are fed as Hewitt and Manning (2019) do: the treebank's own, a space
between every two.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, cast

import numpy as np
import torch
from torch import Tensor
from torch_geometric.utils import scatter

from hkconv.data.treebanks import DependencyTree
from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.models.translation.tokens import END, PAD, UNKNOWN
from hkconv.nn.centroid import global_centroid_pool

if TYPE_CHECKING:
    from sacremoses import MosesTokenizer
    from tokenizers import Tokenizer

BATCH_TOKENS = 16384
NO_WORD = -1


class Encoder(Protocol):
    """An encoder to probe."""

    geometry: Literal["euclidean", "lorentz"]

    def encoder_layers(self, source: Tensor) -> list[Tensor]:
        """States of every layer, ``(B, S, *)`` each, of ids ``(B, S)`` with an end and then padding."""


class TextForm(NamedTuple):
    """Form of the text that an encoder was trained on.

    Attributes:
        moses: tokenised by Moses, which writes an apostrophe as ``&apos;``.
        lower: without capital letters.
    """

    moses: bool
    lower: bool

    def __str__(self) -> str:
        return f"{'tokenised by Moses' if self.moses else 'plain'}, {'lower case' if self.lower else 'cased'}"


@dataclass(frozen=True, eq=False)
class TokenizedTrees:
    """The sentences of a part of a treebank that an encoder can read.

    Args:
        trees: their trees.
        numbers: which sentences of the part they are, from 1.
        ids: the ids of each sentence's subwords and an end.
        words: the word, from 0, that each of them belongs to; -1 for the end.
        too_long: how many sentences are left out for having more subwords than the encoder takes.
        unreadable: how many are left out because the tokenizer makes nothing of one of their words.
    """

    trees: list[DependencyTree]
    numbers: list[int]
    ids: list[list[int]]
    words: list[list[int]]
    too_long: int
    unreadable: int

    def summary(self) -> dict[str, float]:
        """Counts, and the share of subwords that the encoder does not know."""
        subwords = sum(len(ids) - 1 for ids in self.ids)
        return {
            "sentences": len(self.trees),
            "words": sum(map(len, self.trees)),
            "subwords": subwords,
            "unknown_share": sum(ids.count(UNKNOWN) for ids in self.ids) / subwords,
            "too_long": self.too_long,
            "unreadable": self.unreadable,
        }


def find_text_form(tokenizer: "Tokenizer") -> TextForm:
    """Return the form of the text that a tokenizer was learned from, by its vocabulary.

    A treebank is cased and plain; fed as it is to an encoder of lower-cased text, every capital would be unknown.
    """
    vocabulary = [token for token in tokenizer.get_vocab() if not token.startswith("<")]
    return TextForm(
        moses=any("&apos;" in token for token in vocabulary),
        lower=not any(character.isupper() for token in vocabulary for character in token),
    )


def tokenize_trees(trees: Sequence[DependencyTree], tokenizer: "Tokenizer", max_length: int) -> TokenizedTrees:
    """Cut the words of sentences into subwords.

    Args:
        trees: the sentences.
        tokenizer: of the encoder.
        max_length: most ids that the encoder takes, the end included; longer sentences are left out, never cut.

    Returns:
        The sentences that can be read, and how many cannot.
    """
    form = find_text_form(tokenizer)
    written = [[_write(word, form) for word in tree.forms] for tree in trees]
    found = TokenizedTrees([], [], [], [], 0, 0)
    too_long = unreadable = 0
    encodings = tokenizer.encode_batch(written, is_pretokenized=True, add_special_tokens=False)
    for number, (tree, encoding) in enumerate(zip(trees, encodings), start=1):
        if len(set(encoding.word_ids)) < len(tree):
            unreadable += 1
        elif len(encoding.ids) >= max_length:
            too_long += 1
        else:
            found.trees.append(tree)
            found.numbers.append(number)
            found.ids.append([*encoding.ids, END])
            # Without special tokens every subword is of a word.
            found.words.append([*cast(list[int], encoding.word_ids), NO_WORD])
    if not found.trees:
        raise InputError(
            f"no sentence of the treebank can be read by the encoder: {too_long} have {max_length} subwords "
            f"or more, {unreadable} a word that the tokenizer makes nothing of"
        )
    return TokenizedTrees(found.trees, found.numbers, found.ids, found.words, too_long, unreadable)


class StateCache:
    """The states of all words in every layer, on disk; a layer of a part of the treebank is loaded at a time.

    Args:
        folder: where the files are.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def load(self, part: str, layer: int) -> Tensor:
        """``(words, dim)``, the words of all sentences one after the other, the embedding being layer 0."""
        return torch.from_numpy(np.load(self._path(part, layer)))

    @torch.inference_mode()
    def fill(self, encoder: Encoder, part: str, sentences: TokenizedTrees, device: torch.device | str = "cpu") -> int:
        """Run an encoder over the sentences once and write the states of every layer.

        Args:
            encoder: what is probed.
            part: the name to load them by.
            sentences: what it reads.
            device: where the encoder is.

        Returns:
            The number of layers, the embedding included.
        """
        lengths = np.array([len(tree) for tree in sentences.trees])
        first_rows = np.cumsum(lengths) - lengths
        files: list[np.memmap] = []
        for members in _similar_lengths(sentences.ids):
            source = _padded([sentences.ids[member] for member in members], PAD).to(device)
            words = _padded([sentences.words[member] for member in members], NO_WORD)
            starts = np.cumsum(lengths[members]) - lengths[members]
            in_batch = torch.where(words >= 0, words + torch.from_numpy(starts).unsqueeze(1), NO_WORD)
            rows = np.concatenate([np.arange(first_rows[m], first_rows[m] + lengths[m]) for m in members])
            for layer, states in enumerate(encoder.encoder_layers(source)):
                vectors = word_vectors(states.float().cpu(), in_batch, len(rows), encoder.geometry).numpy()
                if not np.isfinite(vectors).all():
                    raise InputError(f"layer {layer} of the encoder gives NaN or Inf: there is nothing to probe")
                if layer == len(files):
                    files.append(self._create(part, layer, (int(lengths.sum()), vectors.shape[1])))
                files[layer][rows] = vectors
        for file in files:
            file.flush()
        return len(files)

    def _create(self, part: str, layer: int, shape: tuple[int, int]) -> np.memmap:
        path = self._path(part, layer)
        file = np.lib.format.open_memmap(path, "w+", np.float32, shape)
        if hasattr(os, "posix_fallocate"):
            # Asked for now, room that is not there is an error; later it would be the end of the process.
            with path.open("r+b") as opened:
                os.posix_fallocate(opened.fileno(), 0, path.stat().st_size)
        return file

    def _path(self, part: str, layer: int) -> Path:
        return self.folder / f"{part}-{layer}.npy"


def word_vectors(states: Tensor, words: Tensor, count: int, geometry: str) -> Tensor:
    """One vector a word: the mean of the states of its subwords.

    For points of the Lorentz model the mean is their centroid, and the vector its logarithm at the origin, so that
    probes of either kind have a linear space to start from.

    Args:
        states: states of subwords, ``(B, S, *)``.
        words: word of each subword, ``(B, S)``, numbered through all sentences; -1 for what belongs to none.
        count: number of words.
        geometry: ``"euclidean"`` or ``"lorentz"``, then of curvature -1.

    Returns:
        ``(count, dim)``.
    """
    belongs = words >= 0
    if geometry == "euclidean":
        return scatter(states[belongs], words[belongs], dim_size=count, reduce="mean")
    return lorentz.log0(global_centroid_pool(states[belongs], words[belongs], count))[..., 1:]


@cache
def _write(word: str, form: TextForm) -> str:
    if form.moses:
        word = _moses().tokenize(word, return_str=True, escape=True)
    return word.lower() if form.lower else word


@cache
def _moses() -> "MosesTokenizer":
    try:
        from sacremoses import MosesTokenizer
    except ImportError:
        raise InputError("the encoder reads text tokenised by Moses: pip install 'hkconv[translate]'") from None
    return MosesTokenizer("en")


def _similar_lengths(ids: Sequence[Sequence[int]]) -> Iterator[np.ndarray]:
    """Numbers of sentences that fill a batch, from the shortest to the longest."""
    lengths = np.array([len(sentence) for sentence in ids])
    order = np.argsort(lengths, kind="stable")
    start = 0
    while start < len(order):
        stop = start + 1
        while stop < len(order) and (stop + 1 - start) * lengths[order[stop]] <= BATCH_TOKENS:
            stop += 1
        yield order[start:stop]
        start = stop


def _padded(rows: Sequence[Sequence[int]], padding: int) -> Tensor:
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_value=padding)
