import json
import subprocess
import sys

import pytest

from hkconv.data.parallel_text import read_lines
from hkconv.errors import InputError
from hkconv.language.scores import (
    all_scores,
    check_scoring,
    detokenised_scores,
    moses_detokenise,
    moses_tokenise,
    tokenised_score,
)


@pytest.fixture(scope="module")
def references(real_data):
    return list(read_lines(real_data / "mt" / "multi30k" / "test2017_mscoco.de.gz"))


@pytest.fixture(scope="module")
def hypotheses(references):
    """Bad translations: every third sentence lacks a word, every fifth is in lower case."""
    changed = []
    for index, line in enumerate(references):
        words = line.split()
        kept = words[:1] + words[2:] if index % 3 == 0 else words
        changed.append(" ".join(kept).lower() if index % 5 == 0 else " ".join(kept))
    return changed


def by_command(tmp_path, hypotheses, references, *options):
    """What sacrebleu's own command says of the same files."""
    for name, lines in (("hypotheses", hypotheses), ("references", references)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", "references", "-i", "hypotheses", "-f", "json", "-w", "6", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    return found if isinstance(found, list) else [found]


@pytest.mark.parametrize("options", [(), ("-lc", "--chrf-lowercase")])
def test_detokenised_scores_are_those_of_sacrebleu(tmp_path, hypotheses, references, options):
    bleu, chrf = by_command(tmp_path, hypotheses, references, "-m", "bleu", "chrf", *options)
    found = detokenised_scores(hypotheses, references, lowercase=bool(options))
    assert [score.name for score in found] == ["BLEU", "chrF"]
    for score, expected in zip(found, (bleu, chrf)):
        assert score.value == pytest.approx(expected["score"], abs=1e-5)
        assert 20 < score.value < 99
        assert score.signature == expected["signature"]


def test_tokenised_score_is_sacrebleu_on_lower_cased_tokens(tmp_path, hypotheses, references):
    tokens = [moses_tokenise(lines, "de") for lines in (hypotheses, references)]
    (expected,) = by_command(tmp_path, *tokens, "-lc", "-tok", "none", "--force")
    found = tokenised_score(*tokens)
    assert found.value == pytest.approx(expected["score"], abs=1e-5)
    assert "case:lc" in found.signature
    assert "tok:none" in found.signature


def test_the_two_forms_of_iwslt_belong_together(real_data):
    folder = real_data / "mt" / "iwslt14"
    tokenised, raw = (list(read_lines(folder / f"{name}.de.gz"))[:300] for name in ("test", "test.raw"))
    assert moses_detokenise(["das ist &quot; gut &quot; , oder ?"], "de") == ['das ist "gut", oder?']
    found = all_scores(tokenised, tokenised, "de", moses=True, raw_references=raw, lowercase=True)
    assert [score.name for score in found] == ["BLEU", "chrF", "BLEU tokenised lower-cased"]
    assert found[0].value == pytest.approx(100, abs=3)
    assert found[2].value == pytest.approx(100)
    cased = all_scores(tokenised, tokenised, "de", moses=True, raw_references=raw)
    assert cased[0].value < 75
    own = all_scores(tokenised, tokenised, "de", moses=True)
    assert own[0].value == pytest.approx(100)


def test_plain_text_is_scored_as_it_is_and_tokenised(hypotheses, references):
    found = all_scores(hypotheses, references, "de")
    assert found[0] == detokenised_scores(hypotheses, references)[0]
    assert found[2] == tokenised_score(moses_tokenise(hypotheses, "de"), moses_tokenise(references, "de"))


def test_counts_that_differ(references):
    with pytest.raises(InputError, match="there are 3 hypotheses for 461 references"):
        detokenised_scores(references[:3], references)


def test_without_sacrebleu_one_line_says_what_to_do(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    with pytest.raises(InputError, match="scores need the package sacrebleu: pip install"):
        check_scoring()
