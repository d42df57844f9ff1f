import pytest
import torch

from hkconv.errors import InputError
from hkconv.training.devices import describe_device, find_device


def test_auto_takes_a_gpu_if_there_is_one():
    assert find_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert describe_device(find_device("cpu")) == "cpu"


@pytest.mark.parametrize("name", ["cuda:99", "gpu", "cpu:x"])
def test_a_device_that_is_not_there(name):
    with pytest.raises(InputError, match=f"device '{name}' cannot be used; accepted: auto, cpu"):
        find_device(name)
