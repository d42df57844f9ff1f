"""Whole trainings: the same again, after a kill too; and what is told of data that cannot be used."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
from toy_translation import make_pairs, toy_options, toy_recipe, write_pairs

from hkconv.data.parallel_text import find_parallel_text
from hkconv.engine.callbacks import Callback
from hkconv.engine.state import read_tensors
from hkconv.engine.steps import read_log
from hkconv.errors import InputError
from hkconv.language.batches import Buckets
from hkconv.language.beam import BeamSettings
from hkconv.language.corpus import Corpus
from hkconv.language.loss import summed_loss
from hkconv.language.recipe import TranslationRecipe
from hkconv.language.runs import build_model, load_run, write_weights
from hkconv.language.tokenizer import load_tokenizer, save_tokenizer
from hkconv.language.train import train_translator
from hkconv.language.translate import Translator
from hkconv.models.translation import TRANSLATION_MODELS


class Recorder(Callback):
    def __init__(self):
        self.texts = []

    def told(self, text):
        self.texts.append(text)


def curve(folder):
    """The log without what depends on the clock."""
    entries = [asdict(entry) for entry in read_log(folder / "log.jsonl")]
    return [{name: entry[name] for name in entry if "second" not in name} for entry in entries]


def assert_same_state(first, second):
    tensors, others = (read_tensors(folder / "state.safetensors")[0] for folder in (first, second))
    assert tensors.keys() == others.keys()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, others[name]), name


def folder_for(tmp_path, name):
    (tmp_path / name).mkdir()
    return tmp_path / name


@pytest.mark.parametrize("changes", [{}, {"accumulate": 3}, {"bf16": True}])
def test_same_seed_same_curve(tmp_path, changes):
    first, second, other = (
        train_translator(toy_recipe(folder_for(tmp_path, name), dropout=0.3, seed=seed, **changes)).folder
        for name, seed in (("a", 4), ("b", 4), ("c", 5))
    )
    assert curve(first) == curve(second)
    assert_same_state(first, second)
    assert curve(first)[0]["loss"] != curve(other)[0]["loss"]
    assert [entry["step"] for entry in curve(first)] == [2, 4, 5, 6, 8, 10, 12]
    assert [entry["step"] for entry in curve(first) if entry["validation_loss"] is not None] == [5, 10, 12]


def test_stopping_for_time_and_going_on_equals_one_training(tmp_path, monkeypatch):
    changes = {"dropout": 0.3, "log_every": 4, "validate_every": 100}
    whole = train_translator(toy_recipe(folder_for(tmp_path, "whole"), **changes))
    assert whole.is_finished
    part = toy_recipe(folder_for(tmp_path, "part"), **changes, minutes=1e-9)
    # A deadline that has passed: nothing is trained, but everything is there to go on with.
    assert train_translator(part).step == 0
    clock = iter(range(10**6))
    with monkeypatch.context() as patch:
        # One tick a look: the time is up after a few steps, between two lines of the log.
        patch.setattr(time, "perf_counter", lambda: float(next(clock)))
        stopped = train_translator(replace(part, minutes=0.17), resume=True)
    assert 4 < stopped.step < 12
    assert stopped.step % 4 != 0
    assert not stopped.is_finished
    resumed = train_translator(replace(part, minutes=None), resume=True)
    assert resumed.is_finished
    assert curve(resumed.folder) == curve(whole.folder)
    assert_same_state(resumed.folder, whole.folder)


def test_kill_9_in_the_middle_and_resume_equals_one_training(tmp_path):
    """A real process is killed between two checkpoints; the steps it had taken since are taken again, to the bit."""
    changes = {"dropout": 0.3, "log_every": 1, "validate_every": 20, "accumulate": 2}
    killed = folder_for(tmp_path, "killed")
    options = toy_options(killed, **changes, steps=100_000, out=str(killed / "run"))
    arguments = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    process = subprocess.Popen(
        [sys.executable, "-m", "hkconv", "translate", "train", *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    log = killed / "run" / "log.jsonl"
    deadline = time.monotonic() + 120
    while not (log.exists() and (lines := log.read_bytes().count(b"\n")) > 20 and 2 < lines % 20 < 12):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    saved = read_tensors(killed / "run" / "state.safetensors")[1]["progress"]["step"]
    assert 20 <= saved < read_log(log)[-1].step
    assert saved % 20 == 0
    steps = saved + 15
    resumed = train_translator(toy_recipe(killed, **changes, steps=steps), resume=True)
    whole = train_translator(toy_recipe(folder_for(tmp_path, "whole"), **changes, steps=steps))
    assert len(curve(whole.folder)) == steps
    assert curve(resumed.folder) == curve(whole.folder)
    assert_same_state(resumed.folder, whole.folder)


def test_a_killed_training_without_a_checkpoint_begins_again(tmp_path):
    folder = train_translator(toy_recipe(tmp_path)).folder
    expected = curve(folder)
    (folder / "state.safetensors").unlink()
    shutil.rmtree(folder / "weights")
    train_translator(toy_recipe(tmp_path), resume=True)
    assert curve(folder) == expected


def test_the_corpus_is_made_anew_from_the_same_text_only(tmp_path):
    recipe = toy_recipe(tmp_path)
    folder = train_translator(recipe).folder
    shutil.rmtree(folder / "corpus")
    assert train_translator(replace(recipe, steps=14), resume=True).step == 14
    shutil.rmtree(folder / "corpus")
    write_pairs(tmp_path / "train", make_pairs(200, seed=9))
    with pytest.raises(InputError, match=r"the training text is not the one that .* was begun with"):
        train_translator(replace(recipe, steps=16), resume=True)


def test_a_step_of_several_batches_is_a_step_of_all_their_tokens(tmp_path):
    """Against a literal step: the mean loss of a token, its gradient clipped as one vector, and Adam at Noam's rate."""
    recipe = toy_recipe(tmp_path, dropout=0.0, steps=1, accumulate=3, clip=0.1, lr=2.0, label_smoothing=0.2)
    folder = train_translator(recipe).folder
    torch.manual_seed(recipe.seed)
    model = build_model(recipe, load_tokenizer(folder / "tokenizer.json"))
    buckets = Buckets(Corpus(folder / "corpus", "train"), recipe.batch_tokens)
    batches = [buckets.load(pairs) for pairs in buckets.shuffled(recipe.seed, 0)[:3]]
    loss = sum(summed_loss(model(batch.source, batch.target[:, :-1]), batch.target[:, 1:], 0.2) for batch in batches)
    loss = loss / sum(batch.target_tokens for batch in batches)
    loss.backward()
    norm = torch.cat([parameter.grad.flatten() for parameter in model.parameters()]).norm()
    assert norm > 0.1
    for parameter in model.parameters():
        parameter.grad *= 0.1 / norm
    torch.optim.Adam(model.parameters(), lr=2 * 8**-0.5 * 20**-1.5, betas=(0.9, 0.98), eps=1e-9).step()
    (entry,) = read_log(folder / "log.jsonl")
    assert entry.loss == pytest.approx(loss.item(), rel=1e-6)
    assert entry.gradient_norm == pytest.approx(norm.item(), rel=1e-5)
    for name, tensor in load_run(folder).model.state_dict().items():
        torch.testing.assert_close(tensor, model.state_dict()[name], rtol=1e-5, atol=1e-7)


def test_sentences_that_are_too_long_are_told_of(tmp_path):
    recorder = Recorder()
    long = " ".join(["dog"] * 300)
    folder = folder_for(tmp_path, "text")
    options = toy_options(folder, out=str(tmp_path / "run"), steps=1, max_length=128)
    write_pairs(folder / "train", [*make_pairs(50), (long, long)])
    train_translator(TranslationRecipe(**options), recorder)
    assert "train: 1 of 51 pairs left out: longer than 128 tokens (lines 51)" in recorder.texts


def test_divergence_is_one_line_and_keeps_the_last_good_state(tmp_path):
    recipe = toy_recipe(tmp_path, lr=1e20, warmup=1, validate_every=2, steps=50)
    with pytest.raises(InputError, match=r"became (nan|inf) (in|by) step \d+; first not finite: .* smaller lr"):
        train_translator(recipe)


def test_unusable_input_writes_nothing(tmp_path):
    options = toy_options(tmp_path)
    (tmp_path / "bad.en").write_text("a\n\n")
    (tmp_path / "bad.de").write_text("a\nb\n")
    cases = [
        ({"train": str(tmp_path / "bad")}, r"bad\.en, line 2 is empty"),
        ({"valid": str(tmp_path / "bad")}, r"bad\.en, line 2 is empty"),
        ({"train": str(tmp_path / "absent")}, "parallel text not found"),
        ({"num_heads": 3}, "dim must be a multiple of num_heads"),
        ({"device": "cuda:99"}, "cannot be used"),
    ]
    for changes, message in cases:
        with pytest.raises(InputError, match=message):
            train_translator(TranslationRecipe(**{**options, **changes}, out=str(tmp_path / "run")))
    assert not (tmp_path / "run").exists()


def test_what_a_resumed_run_may_change(tmp_path):
    recipe = toy_recipe(tmp_path)
    train_translator(recipe)
    with pytest.raises(InputError, match=r"is not empty: name another folder, or continue its run with --resume"):
        train_translator(recipe)
    with pytest.raises(InputError, match=r"warmup cannot change when a run is resumed: it has 20, got 30"):
        train_translator(replace(recipe, warmup=30), resume=True)
    with pytest.raises(InputError, match="out must name the folder"):
        train_translator(replace(recipe, out=None), resume=True)
    assert train_translator(replace(recipe, steps=13), resume=True).step == 13


def test_a_few_hundred_captions_lower_the_loss(real_data, tmp_path):
    for part, count in (("train", 300), ("valid", 60)):
        text = find_parallel_text(real_data / "mt" / "multi30k" / part, "en", "de")
        write_pairs(tmp_path / part, list(text)[:count])
    sizes = {"model": "transformer", "dim": 32, "num_layers": 1, "merges": 300, "max_length": 128, "warmup": 40}
    pace = {"batch_tokens": 1024, "steps": 80, "validate_every": 20, "log_every": 20, "device": "cpu"}
    texts = {part: str(tmp_path / part) for part in ("train", "valid")}
    folder = train_translator(TranslationRecipe(**texts, **sizes, **pace, out=str(tmp_path / "run"))).folder
    entries = read_log(folder / "log.jsonl")
    losses = [entry.validation_loss for entry in entries]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] - 0.5
    assert entries[-1].loss < entries[0].loss - 0.8


@pytest.mark.parametrize("model", sorted({*TRANSLATION_MODELS} - {"bibert"}))
def test_every_system_trains_stops_goes_on_and_translates(tmp_path, model):
    whole = train_translator(toy_recipe(folder_for(tmp_path, "whole"), model=model, dropout=0.2, steps=4))
    part = toy_recipe(folder_for(tmp_path, "part"), model=model, dropout=0.2, steps=2)
    train_translator(part)
    resumed = train_translator(replace(part, steps=4), resume=True)
    assert [entry["loss"] for entry in curve(resumed.folder)] == [entry["loss"] for entry in curve(whole.folder)]
    assert_same_state(resumed.folder, whole.folder)
    run = load_run(resumed.folder, "average")
    assert run.steps == [2, 4]
    assert len(Translator(run, BeamSettings(beam=2))(["one dog."])) == 1


def test_bibert_brings_its_own_tokenizer(tmp_path):
    transformers = pytest.importorskip("transformers")
    recipe = toy_recipe(tmp_path, steps=1)
    tokenizer = load_tokenizer(train_translator(recipe).folder / "tokenizer.json")
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = transformers.BertConfig(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=32, **sizes)
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(tmp_path / "bert")
    save_tokenizer(tokenizer, tmp_path / "bert" / "tokenizer.json")
    options = {"model": "bibert", "bert": str(tmp_path / "bert"), "merges": 7, "out": str(tmp_path / "bibert")}
    run = load_run(train_translator(replace(recipe, **options)).folder)
    assert run.tokenizer.to_str() == tokenizer.to_str()


def test_default_folders_are_in_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = TranslationRecipe(**toy_options(tmp_path, steps=1))
    folders = {train_translator(recipe).folder for _ in range(2)}
    assert len(folders) == 2
    assert all(folder.parent == Path("runs") for folder in folders)


def test_weights_that_a_kill_kept_from_being_removed_go_with_the_next_resume(tmp_path):
    recipe = toy_recipe(tmp_path, keep=1, steps=4, validate_every=2)
    folder = train_translator(recipe).folder
    kept = sorted((folder / "weights").iterdir())
    run = load_run(folder)
    write_weights(folder, run.model, run.tokenizer, 1, validation_loss=99.0)
    train_translator(recipe, resume=True)
    assert sorted((folder / "weights").iterdir()) == kept
