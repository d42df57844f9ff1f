"""``hkconv translate`` as a user meets it: the three commands, and one line for everything that is wrong."""

import gzip
import json
import subprocess
import sys

import pytest
import torch
from toy_translation import make_pairs, prepared, spoils, toy_options, write_pairs
from typer.testing import CliRunner

from hkconv.cli.main import app
from hkconv.engine.devices import describe_device


def as_arguments(options):
    return [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]


def toy_arguments(folder, **changes):
    return as_arguments(toy_options(folder, **{"out": folder / "run", **changes}))


def translate_input(run, content, *options):
    return CliRunner().invoke(app, ["translate", "run", str(run), *options], input=content, prog_name="hkconv")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of text and of a run in it."""
    folder = tmp_path_factory.mktemp("trained")
    result = CliRunner().invoke(app, ["translate", "train", *map(str, toy_arguments(folder))], prog_name="hkconv")
    assert result.exit_code == 0, result.output
    write_pairs(folder / "test", make_pairs(15, seed=2, longest=4))
    return folder


@pytest.mark.parametrize("command", ["train", "score", "run"])
def test_help_has_one_example_and_fits(hkconv, command):
    result = hkconv("translate", command, "--help")
    assert result.exit_code == 0
    assert result.stdout.count("Example: ") == 1
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_train_prints_progress_and_what_to_do_next(hkconv, tmp_path):
    result = hkconv("translate", "train", *toy_arguments(tmp_path))
    assert result.exit_code == 0, result.output
    steps = [line for line in result.stderr.splitlines() if line.startswith("step ")]
    assert [line.split()[1] for line in steps] == [f"{step}/12" for step in (2, 4, 5, 6, 8, 10, 12)]
    assert "tokens/s" in steps[0]
    assert "val " not in steps[0]
    assert "val " in steps[2]
    lines = result.stdout.splitlines()
    assert lines[0].startswith("step 12, ")
    assert lines[0].endswith(f" parameters, device {describe_device(torch.device('cpu'))}")
    assert lines[1].startswith("best validation loss ")
    assert lines[2] == f"files: {tmp_path / 'run'}"
    assert lines[3] == f"score: hkconv translate score {tmp_path / 'run'} --test PREFIX"


def test_train_says_what_the_guard_did(hkconv, tmp_path):
    arguments = toy_arguments(tmp_path, steps=3, log_every=1)
    # The second step, and when it is looked at again.
    with prepared(spoils((2, 3))):
        result = hkconv("translate", "train", *arguments)
    assert result.exit_code == 0, result.output
    words = "the training loss became nan in step 2; first not finite: the output of module 'encoder.0.feedforward'"
    told = f"{words} in step 2; went back to step 1 with half the learning rate"
    assert told in result.stderr.splitlines()
    assert f"guard: {told}" in result.stdout.splitlines()
    # Without its state the run begins again, and is spoilt again and again.
    (tmp_path / "run" / "state.safetensors").unlink()
    with prepared(spoils(range(2, 99))):
        result = hkconv("translate", "train", "--resume", tmp_path / "run")
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"; before that, {told}; a smaller lr" in result.stderr.splitlines()[-1]


def test_train_stops_for_time_and_says_how_to_go_on(hkconv, tmp_path):
    result = hkconv("translate", "train", *toy_arguments(tmp_path, minutes=1e-6))
    assert result.exit_code == 0, result.output
    assert f"time is up; go on: hkconv translate train --resume {tmp_path / 'run'}" in result.stdout
    result = hkconv("translate", "train", "--resume", tmp_path / "run", "--steps", 3)
    assert result.stdout.startswith("step 3, ")
    assert "out cannot be given" in hkconv.fails("translate", "train", "--resume", tmp_path / "run", "--out", "x")


def test_score_translates_keeps_and_agrees_with_sacrebleu(hkconv, trained):
    run = trained / "run"
    result = hkconv("translate", "score", run, "--test", trained / "test", "--beam", 2, "--weights", "average")
    assert result.exit_code == 0, result.output
    record = json.loads((run / "scores.jsonl").read_text().splitlines()[-1])
    hypotheses = run / record["hypotheses"]
    assert len(hypotheses.read_text().splitlines()) == record["sentences"] == 15
    assert (record["beam"], record["weights"], record["steps"]) == (2, "average", [5, 10, 12])
    command = [sys.executable, "-m", "sacrebleu", trained / "test.de", "-i", hypotheses, "-f", "json", "-w", "6"]
    expected = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert record["scores"][0]["value"] == pytest.approx(expected["score"], abs=1e-5)
    assert record["scores"][0]["signature"] == expected["signature"]
    assert expected["signature"] in result.stdout
    again = hkconv("translate", "score", "--hypotheses", hypotheses, "--references", trained / "test.de")
    assert again.stdout.splitlines()[:3] == result.stdout.splitlines()[:3]


def test_perfect_hypotheses_score_100_in_either_form(hkconv, tmp_path):
    plain, tokens = ['Er sagte: "Ja."', "Das ist gut, oder?"], ["er sagte : &quot; ja . &quot;", "das ist gut , oder ?"]
    for name, lines in (("plain", plain), ("tokens", tokens)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    tokens = as_arguments({"hypotheses": tmp_path / "tokens", "references": tmp_path / "tokens"})
    options = ["--moses", "--lowercase", "--raw-references", tmp_path / "plain"]
    result = hkconv("translate", "score", *tokens, *options)
    assert result.exit_code == 0, result.output
    assert [line.split("  nrefs")[0].split()[-1] for line in result.stdout.splitlines()[:3]] == ["100.00"] * 3


def test_run_translates_line_by_line(trained):
    result = translate_input(trained / "run", "two dogs.\n\none big tree.\n")
    assert result.exit_code == 0, result.output
    lines = result.stdout.split("\n")
    assert len(lines) == 4
    assert lines[1] == lines[3] == ""
    alone = translate_input(trained / "run", "one big tree.")
    assert alone.stdout == f"{lines[2]}\n"


def test_training_and_translating_need_no_sacrebleu(hkconv, tmp_path, monkeypatch):
    for package in ("sacrebleu", "sacremoses"):
        monkeypatch.setitem(sys.modules, package, None)
    assert hkconv("translate", "train", *toy_arguments(tmp_path, steps=2)).exit_code == 0
    assert translate_input(tmp_path / "run", "two dogs.\n").exit_code == 0
    line = hkconv.fails("translate", "score", tmp_path / "run", "--test", tmp_path / "train")
    assert "scores need the package sacrebleu" in line
    assert "hkconv translate score --hypotheses" in line


def bad_text(folder, english, german, compress=False):
    for language, content in (("en", english), ("de", german)):
        (folder / f"bad.{language}{'.gz' if compress else ''}").write_bytes(
            gzip.compress(content) if compress else content
        )
    return folder / "bad"


@pytest.mark.parametrize("part", ["train", "valid"])
@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize(
    "english, german, message",
    [
        (b"a\nb\n", b"c\n", "bad.de has 1 lines and bad.en has 2"),
        (b"a\n\n", b"c\nd\n", "bad.en, line 2 is empty"),
        (b"a\nb\n", b"c\n\xe4\n", "bad.de, line 2 is not valid UTF-8: byte 1 is 0xe4"),
    ],
)
def test_unusable_text(hkconv, tmp_path, part, compress, english, german, message):
    prefix = bad_text(tmp_path, english, german, compress)
    line = hkconv.fails("translate", "train", *toy_arguments(tmp_path, **{part: prefix}))
    assert message in line.replace(f"{tmp_path}/", "").replace(".gz", "")
    assert not (tmp_path / "run").exists()


def test_other_unusable_input(hkconv, trained, tmp_path):
    run = trained / "run"
    (tmp_path / "short").write_text("a\n")
    references = ["--references", trained / "test.de"]
    cases = {
        "score needs a run and --test, or else --hypotheses": ["score", run],
        "has 1 lines, but": ["score", "--hypotheses", tmp_path / "short", *references],
        "there are 15 hypotheses for 1 references": [
            *("score", "--hypotheses", trained / "test.de", *references),
            *("--raw-references", tmp_path / "short"),
        ],
        "beam must be a whole number of at least 1": ["score", run, "--test", trained / "test", "--beam", 0],
        "weights must be best or last or average": ["score", run, "--test", trained / "test", "--weights", "worst"],
        "run must be a folder that": ["score", tmp_path, "--test", trained / "test"],
        "parallel text not found": ["score", run, "--test", tmp_path / "absent"],
        "model must be hkn or": ["train", *toy_arguments(tmp_path, model="hkm")],
        "train must be the common beginning": ["train"],
        "warmup cannot change": ["train", "--resume", run, "--warmup", 7],
    }
    for message, arguments in cases.items():
        assert message in hkconv.fails("translate", *arguments)


def test_input_that_cannot_be_translated(trained):
    long = " ".join(["dog"] * 200)
    for content, message in (
        (f"two dogs.\n{long}\n", "error: standard input, line 2 has "),
        (b"a\n\xff\n", "error: standard input, line 2 is not valid UTF-8"),
    ):
        result = translate_input(trained / "run", content)
        assert result.exit_code == 2
        (line,) = result.stderr.splitlines()
        assert line.startswith(message)


def test_a_vocabulary_that_does_not_fit_the_checkpoint(hkconv, tmp_path):
    assert hkconv("translate", "train", *toy_arguments(tmp_path, steps=1)).exit_code == 0
    path = tmp_path / "run" / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["§"] = len(vocabulary)
    path.write_text(json.dumps(tokenizer))
    result = translate_input(tmp_path / "run", "two dogs.\n")
    assert result.exit_code == 2
    assert "tokens, but checkpoint" in result.stderr
    assert "tokens, but checkpoint" in hkconv.fails(
        "translate", "score", tmp_path / "run", "--test", tmp_path / "train"
    )


def test_sentences_too_long_to_translate_are_counted_in_the_score(hkconv, trained, tmp_path):
    long = " ".join(["dog"] * 200)
    test = write_pairs(tmp_path / "long", [("two dogs.", "Hund zwei."), (long, long)])
    result = hkconv("translate", "score", trained / "run", "--test", test)
    assert "sentences longer than the run's limit, scored as empty: 1" in result.stdout
    record = json.loads((trained / "run" / "scores.jsonl").read_text().splitlines()[-1])
    assert record["too_long"] == 1
