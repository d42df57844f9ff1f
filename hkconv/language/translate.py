"""Sentences in, translations out: subwords, batches of like length, beam search, and back to text."""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from hkconv.language.batches import padded_width
from hkconv.language.beam import BeamSettings, beam_search
from hkconv.language.runs import TranslationRun
from hkconv.models.translation.tokens import END, PAD

# Most tokens of all hypotheses of a batch at the source's length; what a GPU of a few gigabytes can hold.
BATCH_TOKENS = 32_768


class Translator:
    """Translates with a trained run.

    Args:
        run: the translator and its tokenizer.
        settings: how to search.
    """

    def __init__(self, run: TranslationRun, settings: BeamSettings | None = None):
        self.run, self.settings = run, settings or BeamSettings()
        self.device = next(run.model.parameters()).device
        #: Most tokens of a sentence without its end.
        self.limit = run.recipe.max_length - 1

    def token_counts(self, sentences: Sequence[str]) -> list[int]:
        """Return how many tokens each sentence has."""
        return [len(encoding) for encoding in self.run.tokenizer.encode_batch_fast(list(sentences))]

    def __call__(self, sentences: Sequence[str]) -> list[str]:
        """Translate sentences; an empty one, and one with more than ``limit`` tokens, has an empty translation.

        Args:
            sentences: of the source language.

        Returns:
            As many translations, in the same order.
        """
        ids = [encoding.ids for encoding in self.run.tokenizer.encode_batch_fast(list(sentences))]
        translations = [""] * len(ids)
        for chosen in self._batches(ids):
            tokens = beam_search(
                self.run.model, self._pad([ids[index] for index in chosen]), self.limit + 1, self.settings
            ).tokens
            for index, row in zip(chosen, tokens.tolist()):
                translations[index] = self.run.tokenizer.decode(row[: row.index(END)]).strip()
        return translations

    def _batches(self, ids: list[list[int]]) -> Iterator[list[int]]:
        """Numbers of sentences that are translated together, the longest first, so that memory runs out at once."""
        usable = (index for index, tokens in enumerate(ids) if 0 < len(tokens) <= self.limit)
        order = iter(sorted(usable, key=lambda index: -len(ids[index])))
        for first in order:
            rows = BATCH_TOKENS // (self._width(len(ids[first])) * self.settings.beam)
            yield [first, *islice(order, max(rows, 1) - 1)]

    def _pad(self, rows: list[list[int]]) -> Tensor:
        width = self._width(max(map(len, rows)))
        padded = torch.full((len(rows), width), PAD)
        for index, tokens in enumerate(rows):
            padded[index, : len(tokens) + 1] = torch.tensor([*tokens, END])
        return padded.to(self.device)

    def _width(self, tokens: int) -> int:
        return int(padded_width(np.array(tokens + 1), self.limit + 1))
