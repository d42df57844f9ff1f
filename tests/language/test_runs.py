import json
import os

import pytest
import torch
from fuzzing import changed, damaged, fuzzed, input_errors_alone
from hypothesis import strategies as st
from toy_translation import toy_recipe

from hkconv.engine.callbacks import Callback
from hkconv.engine.state import read_tensors
from hkconv.errors import InputError
from hkconv.language import runs
from hkconv.language.runs import list_weights, load_run
from hkconv.language.train import train_translator


@pytest.fixture
def folder(tmp_path):
    return train_translator(toy_recipe(tmp_path, keep=2)).folder


def test_what_is_in_the_folder(folder):
    assert sorted(os.listdir(folder)) == [
        "config.json",
        "corpus",
        "log.jsonl",
        "state.safetensors",
        "tokenizer.json",
        "weights",
    ]
    config = json.loads((folder / "config.json").read_text())
    assert config["recipe"]["steps"] == 12
    assert config["versions"]["torch"]


def test_the_latest_weights_and_the_best_are_kept(tmp_path):
    # The rate makes it worse from its best step on.
    recipe = toy_recipe(tmp_path, keep=2, validate_every=1, steps=12, lr=200.0, clip=100.0)
    losses = {}

    class Recorder(Callback):
        def steps_logged(self, entry):
            losses[entry.step] = entry.validation_loss

    folder = train_translator(recipe, Recorder()).folder
    best = min(losses, key=losses.get)
    assert best < 11
    assert [weights.step for weights in list_weights(folder)] == [best, 11, 12]
    assert load_run(folder).steps == [best]
    assert load_run(folder, "last").steps == [12]
    assert load_run(folder, "average").steps == [11, 12]


def test_the_average_is_of_the_latest_weights(folder):
    paths = [weights.path for weights in list_weights(folder)][-2:]
    states = [read_tensors(path)[0] for path in paths]
    averaged = load_run(folder, "average").model.state_dict()
    for name, tensor in averaged.items():
        torch.testing.assert_close(tensor, (states[0][name] + states[1][name]) / 2)
    assert not load_run(folder).model.training


def test_a_run_comes_back_in_its_form_and_one_of_before_in_the_paper_s(tmp_path):
    folder = train_translator(toy_recipe(tmp_path, model="hkn", form="views", output="planes", steps=2)).folder
    loaded = load_run(folder).model
    assert loaded.embedding.output == "planes"
    assert all(layer.attention.form == "views" for layer in [*loaded.encoder, *loaded.decoder])
    trained = read_tensors(list_weights(folder)[-1].path)[0]
    for name, tensor in loaded.state_dict().items():
        assert torch.equal(tensor, trained[name]), name
    # 0.1.0 did not know of these.
    config = json.loads((folder / "config.json").read_text())
    del config["recipe"]["form"], config["recipe"]["output"]
    (folder / "config.json").write_text(json.dumps(config))
    before = runs.read_recipe(folder)
    assert (before.form, before.output) == ("paper", "distance")
    with pytest.raises(InputError, match="gate_"):
        load_run(folder)


def test_a_tokenizer_of_another_size_or_content_is_refused(folder, tmp_path):
    path = folder / "tokenizer.json"
    (tmp_path / "other").mkdir()
    other = train_translator(toy_recipe(tmp_path / "other", merges=20, steps=1)).folder
    original = path.read_bytes()
    path.write_bytes((other / "tokenizer.json").read_bytes())
    with pytest.raises(InputError, match=r"tokenizer\.json has \d+ tokens, but checkpoint .* has \d+"):
        load_run(folder)
    changed = json.loads(original)
    vocabulary = changed["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    path.write_text(json.dumps(changed))
    with pytest.raises(InputError, match=r"is not the tokenizer that checkpoint .* was trained with"):
        load_run(folder)
    with pytest.raises(InputError, match=r"is not the tokenizer that checkpoint .* was trained with"):
        train_translator(toy_recipe(tmp_path, keep=2, steps=20), resume=True)


def test_weights_of_another_shape_are_refused(folder):
    config = json.loads((folder / "config.json").read_text())
    config["recipe"]["dim"] = 16
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"does not fit the run: .* is \(.*\), expected \("):
        load_run(folder)


def test_folders_and_files_that_are_no_run(folder, tmp_path):
    with pytest.raises(InputError, match="run must be a folder that `hkconv translate train` made"):
        load_run(tmp_path)
    with pytest.raises(InputError, match="weights must be one of best, last, average, got 'worst'"):
        load_run(folder, "worst")
    for weights in list_weights(folder):
        weights.path.write_bytes(b"nonsense")
    with pytest.raises(InputError, match="is damaged: it is not a safetensors file"):
        load_run(folder)
    for path in (folder / "weights").iterdir():
        path.unlink()
    with pytest.raises(InputError, match="has no weights yet"):
        load_run(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "format_version": 99}))
    with pytest.raises(InputError, match="has format version 99"):
        load_run(folder)


def test_scores_are_added_with_what_made_them(tmp_path):
    for value in (1.0, 2.0):
        runs.append_score(tmp_path, {"value": value})
    lines = [json.loads(line) for line in (tmp_path / "scores.jsonl").read_text().splitlines()]
    assert [line["value"] for line in lines] == [1.0, 2.0]
    assert lines[0]["hkconv"]


@fuzzed(drawn=st.data())
def test_whatever_the_files_of_a_run_hold_only_input_errors_come_out(folder, drawn):
    weights = [str(path.relative_to(folder)) for path in (folder / "weights").iterdir()]
    path = folder / drawn.draw(st.sampled_from(["config.json", "tokenizer.json", *weights]))
    sound = path.read_bytes()
    kinds = damaged(sound)
    if path.name == "config.json":
        kinds |= changed(json.loads(sound)).map(json.dumps).map(str.encode)
    try:
        path.write_bytes(drawn.draw(kinds))
        with input_errors_alone():
            load_run(folder)
    finally:
        path.write_bytes(sound)
