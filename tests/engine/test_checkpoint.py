import hashlib
import json
import os

import first_release
import pytest
import torch
from fuzzing import changed, damaged, fuzzed, input_errors_alone
from hypothesis import strategies as st
from safetensors.torch import save as to_safetensors

from hkconv.engine.checkpoint import CheckpointInfo, load_checkpoint, save_checkpoint
from hkconv.errors import InputError
from hkconv.models import create
from hkconv.models.options import without_removed

MLP = {"in_features": 3, "hidden_dim": 4, "num_classes": 2, "num_layers": 2}
VIEWS = {**MLP, "kernel_size": 3, "curvature": -0.5}
HKN = {**VIEWS, "form": "paper", "relative": False}
LEVERS_OF_BOTH = {**dict.fromkeys(("mass", "structure", "learn_curvature"), True), "num_nodes": 5}
LEVERS = {
    "views": {**VIEWS, **LEVERS_OF_BOTH, "points": "trainable"},
    "paper": {**HKN, **LEVERS_OF_BOTH, "norm": "batch", "readout": "all"},
}
CONFIGS = {"hkn": VIEWS, "hkn of the paper": HKN, "hkn-flat": MLP, "mlp": MLP, "gcn": MLP}


@pytest.fixture
def saved(tmp_path):
    save_checkpoint(tmp_path, create("mlp", **MLP), CheckpointInfo("mlp", MLP))
    return tmp_path


def edit_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("case", CONFIGS)
def test_round_trip(case, dtype, tmp_path, generator):
    name = case.split(" ")[0]
    model = create(name, **CONFIGS[case]).to(dtype).eval()
    info = CheckpointInfo(name, CONFIGS[case], {"name": "tree"}, {"seed": 3})
    save_checkpoint(tmp_path / "deep" / "down", model, info)
    loaded, loaded_info = load_checkpoint(tmp_path / "deep" / "down", expected=name)
    assert loaded_info == info
    assert not loaded.training
    x = torch.randn(5, 3, generator=generator).to(dtype)
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    assert torch.equal(loaded(x, edges), model(x, edges))


@pytest.mark.parametrize("form", LEVERS)
def test_a_model_with_levers_comes_back_with_all_it_has_learned(form, tmp_path, generator):
    model = create("hkn", **LEVERS[form])
    x, edges = torch.randn(5, 3, generator=generator), torch.tensor([[0, 1, 2], [1, 2, 3]])
    model(x, edges)  # moves the running estimates
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "curvature" in name or "logit" in name or "gate" in name:
                parameter.add_(0.3)
    save_checkpoint(tmp_path, model.eval(), CheckpointInfo("hkn", LEVERS[form]))
    assert torch.equal(load_checkpoint(tmp_path)[0](x, edges), model(x, edges))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "batch", "hidden_act": "relu", "readout": "all", "mass": True, "reach": 5.0},
        {"norm": "layer", "act": "relu", "relative": False, "learn_curvature": True},
    ],
)
def test_a_checkpoint_of_the_first_release_answers_as_it_did(changes, tmp_path, generator):
    config = {**first_release.CONFIG, "hidden_dim": 4, **changes}
    model = create("hkn", form="paper", **without_removed(config))
    x, edges = torch.randn(5, 3, generator=generator), torch.tensor([[0, 1, 2], [1, 2, 3]])
    model(x, edges)
    save_checkpoint(tmp_path, model.eval(), CheckpointInfo("hkn", config))
    edit_config(tmp_path, format_version=1)
    loaded, info = load_checkpoint(tmp_path, expected="hkn")
    assert torch.equal(loaded(x, edges), model(x, edges))
    assert info.config == {**without_removed(config), "form": "paper"}


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name, value", [("root", True), ("directions", True), ("attention", "distance")])
def test_a_network_with_an_option_that_is_gone_is_refused_in_a_line(name, value, version, tmp_path):
    save_checkpoint(tmp_path, create("hkn", **HKN), CheckpointInfo("hkn", {**HKN, name: value}))
    edit_config(tmp_path, format_version=version)
    with pytest.raises(InputError) as caught:
        load_checkpoint(tmp_path)
    assert str(caught.value).startswith(f"checkpoint {tmp_path}: HKN no longer has the option {name}, and this has ")
    assert "\n" not in str(caught.value)


def test_a_baseline_of_the_first_release_is_as_it_was(saved, generator):
    edit_config(saved, format_version=1)
    loaded, info = load_checkpoint(saved, expected="mlp")
    assert info.config == MLP and not loaded.training


def test_can_be_replaced_and_holds_two_files(saved):
    save_checkpoint(saved, create("gcn", **MLP), CheckpointInfo("gcn", MLP))
    assert sorted(os.listdir(saved)) == ["config.json", "model.safetensors"]
    assert load_checkpoint(saved)[1].model == "gcn"


def test_missing(tmp_path, saved):
    with pytest.raises(InputError, match="configuration cannot be read"):
        load_checkpoint(tmp_path / "nowhere")
    (saved / "model.safetensors").unlink()
    with pytest.raises(InputError, match="weights cannot be read"):
        load_checkpoint(saved)


@pytest.mark.parametrize("damage", [b"", b"nonsense", b"\x80\x04pickle"])
def test_weights_of_another_kind(saved, damage):
    (saved / "model.safetensors").write_bytes(damage)
    with pytest.raises(InputError, match=r"damaged: .* is not a safetensors file"):
        load_checkpoint(saved)


def test_one_flipped_bit(saved):
    content = bytearray((saved / "model.safetensors").read_bytes())
    content[-1] ^= 1
    (saved / "model.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=r"is not the file that config\.json describes"):
        load_checkpoint(saved)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"format_version": 99}, "has format version 99; this hkconv reads 1 and 2"),
        ({"model": "transformer"}, "unknown model 'transformer'; accepted: hkn, mlp, gcn"),
        ({"model": "hkn"}, "does not fit its configuration: tensor '.*' is missing"),
        ({"model": 5}, "'model' in config.json must be a str"),
        ({"dtype": "int8"}, "dtype 'int8'; accepted: float32, float64"),
        ({"config": {**MLP, "depth": 3}}, "does not describe a model 'mlp'"),
        ({"config": {**MLP, "hidden_dim": "wide"}}, "does not describe a model 'mlp'|hidden_dim"),
        ({"config": {**MLP, "hidden_dim": 5}}, r"tensor '.*' has shape \(.*\), expected \(.*\)"),
        ({"config": {**MLP, "num_layers": 3}}, "is missing|has shape"),
    ],
)
def test_a_configuration_that_does_not_fit(saved, changes, message):
    edit_config(saved, **changes)
    with pytest.raises(InputError, match=message) as caught:
        load_checkpoint(saved)
    assert "\n" not in str(caught.value)


def test_extra_tensors(tmp_path):
    save_checkpoint(
        tmp_path, create("mlp", **{**MLP, "num_layers": 3}), CheckpointInfo("mlp", {**MLP, "num_layers": 3})
    )
    model = create("mlp", **MLP)
    model.extra = torch.nn.Linear(2, 2)
    save_checkpoint(tmp_path, model, CheckpointInfo("mlp", MLP))
    with pytest.raises(InputError, match=r"tensor 'extra\.\w+' is unknown"):
        load_checkpoint(tmp_path)


def test_another_model_than_expected(saved):
    with pytest.raises(InputError, match="is of model 'mlp', expected 'hkn'"):
        load_checkpoint(saved, expected="hkn")


@fuzzed(values=changed({"model": "mlp", "config": MLP, "dataset": {}, "training": {}, "dtype": "float32"}))
def test_whatever_the_configuration_says_only_input_errors_come_out(saved, values):
    path = saved / "config.json"
    sound = path.read_text()
    try:
        path.write_text(json.dumps({**json.loads(sound), **values} if isinstance(values, dict) else values))
        with input_errors_alone():
            load_checkpoint(saved)
    finally:
        path.write_text(sound)


WEIGHTS = to_safetensors({name: tensor.clone() for name, tensor in create("mlp", **MLP).state_dict().items()})


@fuzzed(content=damaged(WEIGHTS), is_signed=st.booleans())
def test_whatever_the_weights_are_only_input_errors_come_out(saved, content, is_signed):
    """Who changes the weights can change their digest too."""
    (saved / "model.safetensors").write_bytes(content)
    if is_signed:
        edit_config(saved, weights_sha256=hashlib.sha256(content).hexdigest())
    with input_errors_alone():
        load_checkpoint(saved)


def test_a_configuration_that_means_gigabytes_is_refused_before_they_are_asked_for(saved):
    edit_config(saved, config={**MLP, "hidden_dim": 10**9})
    with pytest.raises(InputError, match="does not fit its configuration: hidden_dim is 1000000000, weights are 26"):
        load_checkpoint(saved)
