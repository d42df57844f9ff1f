"""BLEU and chrF by sacrebleu, in the two ways that translation papers report them.

On *detokenised* text sacrebleu does its own tokenisation, and its signature says all that a score depends on. The
*tokenised lower-cased* BLEU is what HyboNet reports: text as Moses tokenises it, in lower case, compared word by word.
It is the higher of the two by a point or so, and the two must not be compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hkconv.errors import InputError

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric


@dataclass(frozen=True)
class TextScore:
    """A score of a corpus with the signature of sacrebleu that says how it was computed."""

    name: str
    value: float
    signature: str


def check_scoring() -> None:
    """Refuse early where the packages that scores need are missing."""
    try:
        import sacrebleu  # noqa: F401
        import sacremoses  # noqa: F401
    except ImportError as error:
        raise InputError(
            f"scores need the package {error.name}: pip install 'hkconv[translate]'; or translate here by "
            "`hkconv translate run` and score the file elsewhere by `hkconv translate score --hypotheses`"
        ) from None


def detokenised_scores(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False
) -> list[TextScore]:
    """BLEU and chrF of plain text.

    Args:
        hypotheses: translations.
        references: what they should be.
        lowercase: ignore case, for a translator that knows lower case only.
    """
    check_scoring()
    from sacrebleu.metrics import BLEU, CHRF

    return [
        _score("BLEU", BLEU(lowercase=lowercase), hypotheses, references),
        _score("chrF", CHRF(lowercase=lowercase), hypotheses, references),
    ]


def all_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    language: str,
    *,
    moses: bool = False,
    raw_references: Sequence[str] | None = None,
    lowercase: bool = False,
) -> list[TextScore]:
    """The scores of translations both ways.

    Args:
        hypotheses: translations, in the form of the training text.
        references: what they should be, in the same form.
        language: theirs, for the rules of Moses.
        moses: whether that form is the one of Moses's tokeniser; else it is plain text.
        raw_references: the references as plain text, where they exist in both forms; else Moses's detokeniser makes
            them from ``references``.
        lowercase: ignore case on detokenised text too.
    """
    tokenised: tuple[Sequence[str], Sequence[str]]
    plain: Sequence[str]
    raw: Sequence[str]
    if moses:
        tokenised, plain = (hypotheses, references), moses_detokenise(hypotheses, language)
        raw = moses_detokenise(references, language) if raw_references is None else raw_references
    else:
        tokenised = moses_tokenise(hypotheses, language), moses_tokenise(references, language)
        plain, raw = hypotheses, references if raw_references is None else raw_references
    return [*detokenised_scores(plain, raw, lowercase=lowercase), tokenised_score(*tokenised)]


def tokenised_score(hypotheses: Sequence[str], references: Sequence[str]) -> TextScore:
    """BLEU of text that is tokenised already: lower-cased, words as they stand.

    Args:
        hypotheses: translations, tokenised.
        references: what they should be, tokenised.
    """
    check_scoring()
    from sacrebleu.metrics import BLEU

    metric = BLEU(lowercase=True, tokenize="none", force=True)
    return _score("BLEU tokenised lower-cased", metric, hypotheses, references)


def moses_tokenise(lines: Sequence[str], language: str) -> list[str]:
    """Text as Moses tokenises it, its special characters escaped."""
    check_scoring()
    from sacremoses import MosesTokenizer

    tokenizer = MosesTokenizer(lang=language)
    return [tokenizer.tokenize(line, return_str=True) for line in lines]


def moses_detokenise(lines: Sequence[str], language: str) -> list[str]:
    """Plain text from text that Moses has tokenised."""
    check_scoring()
    from sacremoses import MosesDetokenizer

    detokenizer = MosesDetokenizer(lang=language)
    return [detokenizer.detokenize(line.split()) for line in lines]


def _score(name: str, metric: "Metric", hypotheses: Sequence[str], references: Sequence[str]) -> TextScore:
    if len(hypotheses) != len(references):
        raise InputError(f"there are {len(hypotheses)} hypotheses for {len(references)} references")
    value = metric.corpus_score(list(hypotheses), [list(references)]).score
    return TextScore(name, value, str(metric.get_signature()))
