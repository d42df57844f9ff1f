import json

import pytest
import torch
from toy_translation import toy_recipe
from toy_treebank import write_treebank

from hkconv.errors import InputError
from hkconv.language import probe_training
from hkconv.language.probe_run import TRAINED, UNTRAINED, probe_run, untrained_model
from hkconv.language.probing import CHAIN
from hkconv.language.runs import load_run
from hkconv.language.train import train_translator


@pytest.fixture(autouse=True)
def short_training(monkeypatch):
    monkeypatch.setattr(probe_training, "EPOCHS", 2)


def make_run(folder, model):
    folder.mkdir()
    train_translator(toy_recipe(folder, model=model, steps=3, validate_every=3))
    return folder / "run"


@pytest.fixture
def treebank(tmp_path):
    return write_treebank(tmp_path / "treebank", {"train": 60, "dev": 15, "test": 20})


@pytest.mark.parametrize("model", ["transformer", "hybonet", "hatt", "hnn++"])
def test_every_layer_of_systems_of_either_geometry(tmp_path, treebank, model):
    run = make_run(tmp_path / model, model)
    found = probe_run(run, treebank, device="cpu")
    rows = [(entry.encoder, entry.layer, entry.probe) for entry in found.results]
    assert rows == [
        (CHAIN, None, None),
        *(
            (name, layer, kind)
            for name in (TRAINED, UNTRAINED)
            for layer in (0, 1)
            for kind in ("euclidean", "hyperbolic")
        ),
    ]
    assert [path.parent for path in found.files] == [run / "probe"] * len(found.files)
    stored = json.loads((run / "probe" / "probe.json").read_text())
    assert stored["recipe"]["model"] == model and stored["steps"] == [3]
    assert stored["parts"]["train"] == found.parts["train"].summary()
    assert stored["parts"]["train"]["sentences"] == 60 and stored["parts"]["test"]["unknown_share"] == 0
    assert stored["text_form"] == "plain, cased"


def test_the_same_seed_gives_the_same_report(tmp_path, treebank):
    run = make_run(tmp_path / "a", "transformer")
    for state, out in enumerate(("first", "second")):
        torch.manual_seed(state)
        probe_run(run, treebank, device="cpu", seed=5, sentences=[2, 9], out=tmp_path / out)
    for name in ("probe.json", "probe.md", "trees.svg"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()
    assert "test sentence 9" in (tmp_path / "first" / "trees.svg").read_text()
    other = probe_run(run, treebank, device="cpu", seed=6, out=tmp_path / "third")
    assert other.results[0].test == probe_run(run, treebank, device="cpu", out=tmp_path / "fourth").results[0].test
    assert (tmp_path / "third" / "probe.md").read_bytes() != (tmp_path / "first" / "probe.md").read_bytes()


def test_the_untrained_model_has_the_shape_but_not_the_weights(tmp_path):
    run = load_run(make_run(tmp_path / "a", "transformer"))
    before = torch.random.get_rng_state()
    first, second, third = (untrained_model(run, seed, torch.device("cpu")) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not first.training
    shapes = {name: tensor.shape for name, tensor in run.model.state_dict().items()}
    assert {name: tensor.shape for name, tensor in first.state_dict().items()} == shapes
    weights = [next(iter(model.parameters())) for model in (first, second, third, run.model)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2]) and not torch.equal(weights[0], weights[3])


def test_a_sentence_that_the_encoder_does_not_read_cannot_be_drawn(tmp_path, treebank):
    path = treebank / "toy-test.conllu"
    words = "\n".join(f"{n}\tthree\t_\tX\tNN\t_\t{n - 1}\tdep\t_\t_" for n in range(1, 41))
    path.write_text(f"{words}\n\n{path.read_text()}")
    run = make_run(tmp_path / "a", "transformer")
    with pytest.raises(InputError, match="sentences must be numbers of test sentences that the encoder reads"):
        probe_run(run, treebank, device="cpu", sentences=[1])
    found = probe_run(run, treebank, device="cpu", sentences=[2], layers=[1])
    assert found.parts["test"].too_long == 1
    assert "test sentence 2" in (run / "probe" / "trees.svg").read_text()
