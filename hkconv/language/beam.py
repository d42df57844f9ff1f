"""Beam search: the likeliest translations of a batch of sentences at once, on whatever device the model is."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.models.translation.seq2seq import Seq2Seq
from hkconv.models.translation.tokens import BEGIN, END, PAD, UNKNOWN
from hkconv.options import BEAM, PENALTY

# What no translation holds: the first two are no words, and the third would stand for one that nobody can read.
NEVER = (PAD, BEGIN, UNKNOWN)


@dataclass(frozen=True)
class BeamSettings:
    r"""Settings of the search.

    Args:
        beam: hypotheses that are followed at once; with 1 the search is greedy.
        length_penalty: :math:`\alpha`; a hypothesis of :math:`n` tokens, its end included, is worth its log
            likelihood divided by :math:`((5 + n) / 6)^\alpha` (Wu et al. 2016). 0 prefers short ones.
        ratio, extra: a translation has at most ``ratio`` times as many tokens as its source and ``extra`` more.
    """

    beam: int = 5
    length_penalty: float = 0.6
    ratio: float = 2.0
    extra: int = 10

    def __post_init__(self) -> None:
        BEAM.check("beam", self.beam)
        PENALTY.check("length_penalty", self.length_penalty)


class Found(NamedTuple):
    """The best hypotheses of a batch.

    Args:
        tokens: ids, an end and padding, ``(B, T)``.
        score: log likelihood divided by the length penalty, ``(B,)``.
    """

    tokens: Tensor
    score: Tensor


@torch.no_grad()
def beam_search(model: Seq2Seq, source: Tensor, max_length: int, settings: BeamSettings | None = None) -> Found:
    """Translate a batch. What is found for a sentence does not depend on the others of its batch.

    At each step the hypotheses of a sentence compete with all their continuations. Of the best ``beam`` of these the
    finished ones leave the search, and the best ``beam`` unfinished ones go on. A sentence is done when ``beam`` of
    its hypotheses are finished. At its longest length a hypothesis can only end.

    Args:
        model: the translator, in evaluation mode.
        source: ids, ends and padding, ``(B, S)``, on the model's device.
        max_length: most tokens of a translation, its end included.
        settings: how to search.
    """
    settings = settings or BeamSettings()
    lengths = (source != PAD).sum(1)
    limits = (settings.ratio * lengths + settings.extra).long().clamp(max=max_length)
    search = _Search(source.size(0), limits, settings, source.device)
    memory = model.encode(source)
    state = model.start(memory)
    rows = torch.arange(source.size(0), device=source.device).repeat_interleave(settings.beam)
    state, memory = model.reorder(state, memory, rows)
    last = torch.full((len(rows), 1), BEGIN, device=source.device)
    while True:
        logits = model.decode(last, memory, state)[:, -1]
        parents, last = search.advance(logits.float().log_softmax(-1))
        if search.is_done():
            return search.found()
        state, memory = model.reorder(state, memory, parents)


class _Search:
    """The hypotheses of a batch: ``beam`` live ones a sentence, and the best finished one.

    Args:
        sentences: B.
        limits: most tokens of each sentence's translation, ``(B,)``.
        settings: how to search.
        device: of the model.
    """

    def __init__(self, sentences: int, limits: Tensor, settings: BeamSettings, device: torch.device):
        self.settings, self.limits = settings, limits
        self.longest = int(limits.max())
        self.step = 0
        beam = settings.beam
        self.tokens = torch.empty(sentences, beam, 0, dtype=torch.long, device=device)
        # All hypotheses begin alike, so that only one may count.
        self.scores = torch.full((sentences, beam), -torch.inf, device=device)
        self.scores[:, 0] = 0
        self.best = torch.full((sentences, self.longest), PAD, device=device)
        self.best_score = torch.full((sentences,), -torch.inf, device=device)
        self.finished = torch.zeros(sentences, dtype=torch.long, device=device)
        self.never = torch.tensor(NEVER, device=device)
        self.sentence = torch.arange(sentences, device=device)[:, None]

    def advance(self, log_probabilities: Tensor) -> tuple[Tensor, Tensor]:
        """Lengthen every hypothesis by a token.

        Args:
            log_probabilities: of every token after each live hypothesis, ``(B beam, V)``.

        Returns:
            Which rows the live hypotheses now continue, ``(B beam,)``, and their last tokens, ``(B beam, 1)``.
        """
        beam, vocabulary = self.settings.beam, log_probabilities.size(1)
        self.step += 1
        allowed = self._allow(log_probabilities.view(-1, beam, vocabulary))
        candidates = (self.scores[:, :, None] + allowed).flatten(1)
        # Each hypothesis ends in one way only, so that among twice as many there are enough that go on.
        scores, index = candidates.topk(2 * beam)
        parents, tokens = index // vocabulary, index % vocabulary
        ends = tokens == END
        self._finish(scores[:, :beam], parents[:, :beam], ends[:, :beam])
        self.scores, kept = scores.masked_fill(ends, -torch.inf).topk(beam)
        parents, tokens = parents.gather(1, kept), tokens.gather(1, kept)
        self.tokens = torch.cat([self.tokens[self.sentence, parents], tokens[:, :, None]], dim=2)
        return (self.sentence * beam + parents).flatten(), tokens.view(-1, 1)

    def is_done(self) -> bool:
        """Return whether every sentence has its translation."""
        done = (self.finished >= self.settings.beam) | (self.step >= self.limits)
        return self.step == self.longest or bool(done.all())

    def found(self) -> Found:
        """The best finished hypothesis of each sentence."""
        if not self.best_score.isfinite().all():
            raise InputError("the model gives probabilities that are not finite; its weights cannot be used")
        return Found(self.best, self.best_score)

    def _allow(self, log_probabilities: Tensor) -> Tensor:
        """Allow what may come next: at a sentence's limit its end alone."""
        allowed = log_probabilities.index_fill(2, self.never, -torch.inf)
        can_only_end = (self.step >= self.limits)[:, None, None]
        is_other = torch.arange(allowed.size(2), device=allowed.device) != END
        return allowed.masked_fill(can_only_end & is_other, -torch.inf)

    def _finish(self, scores: Tensor, parents: Tensor, ends: Tensor) -> None:
        """Keep the best of the hypotheses that ended, unless their sentence is done already."""
        is_open = (self.finished < self.settings.beam) & (self.step <= self.limits)
        ends = ends & scores.isfinite() & is_open[:, None]
        penalty = ((5 + self.step) / 6) ** self.settings.length_penalty
        score, place = (scores / penalty).masked_fill(~ends, -torch.inf).max(1)
        tokens = self.tokens[self.sentence[:, 0], parents.gather(1, place[:, None])[:, 0]]
        ended = torch.nn.functional.pad(tokens, (0, 1), value=END)
        ended = torch.nn.functional.pad(ended, (0, self.longest - self.step), value=PAD)
        better = score > self.best_score
        self.best_score = torch.where(better, score, self.best_score)
        self.best = torch.where(better[:, None], ended, self.best)
        self.finished += ends.sum(1)
