import pytest
import torch

from hkconv.engine import devices
from hkconv.engine.devices import describe_device, find_device
from hkconv.errors import InputError


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
