import copy
import shutil

import pytest
import torch

from hkconv.engine import devices
from hkconv.engine.devices import check_compiler, compiled, describe_device, find_device
from hkconv.engine.settings import Settings
from hkconv.errors import InputError
from hkconv.models import HKN
from hkconv.tasks.fitting import fit


def test_auto_takes_a_gpu_if_there_is_one():
    assert find_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_a_processor_is_named_with_its_vector_instructions():
    described = describe_device(find_device("cpu"))
    assert described == f"cpu ({devices.cpu_model()}, {torch.backends.cpu.get_cpu_capability()})"


@pytest.mark.parametrize(
    ("info", "name"),
    [("processor : 0\nmodel name\t: Some CPU @ 2 GHz\nflags : x\n", "Some CPU @ 2 GHz"), ("processor : 0\n", "arm")],
)
def test_the_name_of_a_processor(monkeypatch, info, name):
    monkeypatch.setattr(devices.Path, "exists", lambda self: True)
    monkeypatch.setattr(devices.Path, "read_text", lambda self: info)
    monkeypatch.setattr(devices.platform, "processor", lambda: "arm")
    assert devices.cpu_model() == name


@pytest.mark.parametrize("name", ["cuda:99", "gpu", "cpu:x"])
def test_a_device_that_is_not_there(name):
    with pytest.raises(InputError, match=f"device '{name}' cannot be used; accepted: auto, cpu"):
        find_device(name)


needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="torch.compile needs a C++ compiler")


@pytest.fixture(autouse=True)
def fresh_compiler():
    """All layers share one forward, of which torch keeps only so many compiled variants."""
    torch.compiler.reset()


@pytest.fixture
def traced_only(monkeypatch):
    """Everything of the compiler but the code at its end, which takes most of the time."""
    whole = torch.compile
    monkeypatch.setattr(torch, "compile", lambda model: whole(model, backend="aot_eager"))


FORMS = {"views": {}, "paper": {"form": "paper"}}
both_forms = pytest.mark.parametrize("form", FORMS)


def histories(dataset, form, **settings):
    """Of a plain training and of a compiled one from the same weights."""
    torch.manual_seed(0)
    options = {"num_layers": 1, "task": dataset.task, "dropout": 0.0, **FORMS[form]}
    model = HKN(dataset.num_features, 4, dataset.num_classes, **options).double()
    results = []
    for compile in (False, True):
        twin = copy.deepcopy(model)
        result = fit(twin, dataset, dataset.splits[0], Settings(epochs=3, compile=compile, **settings))
        assert result.guard is None
        assert list(twin.state_dict()) == list(model.state_dict())
        epochs = [(epoch.loss, epoch.val_loss, epoch.val_metric) for epoch in result.history]
        results.append(torch.tensor([*epochs, (result.test_loss, result.val_loss, result.test_metric)]))
    return results


@pytest.mark.nightly
@needs_compiler
@both_forms
def test_a_compiled_training_equals_the_plain_one(tree, form):
    plain, with_compiler = histories(tree, form)
    torch.testing.assert_close(with_compiler, plain, rtol=1e-6, atol=0)


@pytest.mark.nightly
@both_forms
def test_batches_of_every_size(molecules, traced_only, form):
    plain, with_compiler = histories(molecules, form, batch_size=5)
    torch.testing.assert_close(with_compiler, plain, rtol=1e-6, atol=0)


@both_forms
def test_half_precision_is_compiled_too(tree, traced_only, form):
    plain, with_compiler = histories(tree, form, precision="bf16")
    torch.testing.assert_close(with_compiler, plain, rtol=1e-2, atol=0)


@both_forms
def test_a_compiled_model_answers_with_the_weights_of_now_and_without_dropout(tree, traced_only, form):
    model = HKN(4, 4, 3, num_layers=1, dropout=0.5, **FORMS[form])
    quick = compiled(model)
    graph = tree.graph
    with torch.no_grad():
        torch.testing.assert_close(quick.eval()(graph.x, graph.edge_index), model(graph.x, graph.edge_index))
        model.embedding.linear.weight.mul_(2)
        torch.testing.assert_close(quick(graph.x, graph.edge_index), model(graph.x, graph.edge_index))


def test_what_is_missing_is_said_beforehand(monkeypatch):
    monkeypatch.setattr(devices.shutil, "which", lambda name: None)
    with pytest.raises(InputError, match=r"compile needs a C\+\+ compiler: none of c\+\+, g\+\+, clang\+\+ was found"):
        check_compiler()
