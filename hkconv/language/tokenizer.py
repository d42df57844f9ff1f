"""Subwords: one byte-pair encoding for both languages (Sennrich et al. 2016), learned by the package ``tokenizers``.

Sentences are cut before every word and between letters and punctuation, so that raw text and text that Moses has
tokenised both give sensible pieces; an entity of Moses such as ``&apos;s`` stays one piece. The space before a word
belongs to its piece, so that ids turn back into the sentence they came from.
"""

import unicodedata
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from hkconv.data.parallel_text import ParallelText
from hkconv.engine.files import write_bytes
from hkconv.errors import InputError
from hkconv.models.translation.tokens import BEGIN, END, PAD, UNKNOWN
from hkconv.opening import read_text

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SPECIAL_TOKENS = {PAD: "<pad>", BEGIN: "<s>", END: "</s>", UNKNOWN: "<unk>"}
SPACE = "▁"
# The mark of a space is itself a symbol to Unicode, but begins pieces of all kinds.
PIECES = rf"{SPACE}?&\w+;\w*|{SPACE}?[\p{{P}}\p{{S}}&&[^{SPACE}]]+|{SPACE}?[^{SPACE}\p{{P}}\p{{S}}]+|{SPACE}"
# Large corpora hold thousands of characters that occur once or twice; a rarer one than these is unknown.
MAX_CHARACTERS = 1000


def learn_tokenizer(text: ParallelText, merges: int) -> "Tokenizer":
    """Learn an encoding.

    Args:
        text: sentences of both languages; read twice, never held.
        merges: number of merges; the vocabulary has besides them every character and the special tokens. A small text
            may run out of pairs to merge earlier.
    """
    tokenizers = _import_tokenizers()
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=SPECIAL_TOKENS[UNKNOWN]))
    tokenizer.normalizer = tokenizers.normalizers.NFC()
    spaces = tokenizers.pre_tokenizers.Metaspace(SPACE, "always")
    pieces = tokenizers.pre_tokenizers.Split(tokenizers.Regex(PIECES), "isolated")
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([spaces, pieces])
    tokenizer.decoder = tokenizers.decoders.Metaspace(SPACE, "always")
    specials = [SPECIAL_TOKENS[number] for number in range(len(SPECIAL_TOKENS))]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=len(specials) + min(_count_characters(text), MAX_CHARACTERS) + merges,
        limit_alphabet=MAX_CHARACTERS,
        special_tokens=specials,
        show_progress=False,
    )
    tokenizer.train_from_iterator(chain.from_iterable(text), trainer)
    return _reading_specials_as_text(tokenizer)


def save_tokenizer(tokenizer: "Tokenizer", path: Path) -> None:
    """Write a tokenizer as JSON, atomically."""
    write_bytes(path, tokenizer.to_str(pretty=True).encode())


def load_tokenizer(path: Path) -> "Tokenizer":
    """Read a tokenizer and check that its special tokens have the ids that the models expect."""
    tokenizers = _import_tokenizers()
    try:
        tokenizer = tokenizers.Tokenizer.from_str(read_text(path))
    except OSError as error:
        raise InputError(f"the tokenizer cannot be read: {path} ({error.strerror})") from None
    # The package raises bare exceptions for what it cannot parse.
    except Exception:
        raise InputError(f"the tokenizer is damaged: {path} is not a file of the package tokenizers") from None
    for number, token in SPECIAL_TOKENS.items():
        if tokenizer.token_to_id(token) != number:
            raise InputError(f"tokenizer {path} must give {token!r} the id {number}, as `hkconv translate train` does")
    return _reading_specials_as_text(tokenizer)


def _count_characters(text: ParallelText) -> int:
    found: set[str] = set()
    for line in chain.from_iterable(text):
        found.update(unicodedata.normalize("NFC", line))
    return len((found - {" "}) | {SPACE})


def _reading_specials_as_text(tokenizer: "Tokenizer") -> "Tokenizer":
    # A sentence about "<pad>" must not be read as padding. The setting is not kept in the file.
    tokenizer.encode_special_tokens = True
    return tokenizer


def _import_tokenizers() -> ModuleType:
    try:
        import tokenizers
    except ImportError:
        raise InputError("translation needs the package tokenizers: pip install 'hkconv[translate]'") from None
    return tokenizers
