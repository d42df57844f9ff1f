"""The way around Triton's own launch, without a GPU: the kernel and its tensors are stand-ins that count."""

import pytest
import torch

from hkconv.ops.launch import Launcher


class Compiled:
    def __init__(self, launches):
        self.launches = launches

    def __getitem__(self, grid):
        return lambda *arguments: self.launches.append(("compiled", grid, arguments))


class Kernel:
    arg_names = ("a", "b", "count", "n", "FLAG")

    def __init__(self):
        self.launches = []

    def __getitem__(self, grid):
        def launch(*arguments, **constants):
            self.launches.append(("plain", grid, arguments))
            return Compiled(self.launches)

        return launch


class Pointer:
    device = torch.device("cuda", 0)

    def __init__(self, address=64, dtype=torch.float32):
        self.address, self.dtype = address, dtype

    def data_ptr(self):
        return self.address


@pytest.fixture
def kernel(monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    return Kernel()


def ways(kernel):
    return [way for way, _, _ in kernel.launches]


def test_the_second_launch_takes_the_compiled_form_with_constants_in_the_kernels_order(kernel):
    launch, tensors = Launcher(kernel), [Pointer(), Pointer(dtype=torch.int32)]
    for _ in range(2):
        launch((3, 1), tensors, 7, FLAG=True, n=5, num_warps=2)
    assert ways(kernel) == ["plain", "compiled"]
    assert kernel.launches[1] == ("compiled", (3, 1, 1), (*tensors, 7, 5, True))


@pytest.mark.parametrize(
    "other", [{"tensors": [Pointer(), Pointer(dtype=torch.float64)]}, {"n": 6}, {"num_warps": 4}, {"FLAG": False}]
)
def test_what_the_compiled_form_depends_on_makes_another(kernel, other):
    launch = Launcher(kernel)
    given = {"tensors": [Pointer(), Pointer()], "FLAG": True, "n": 5, "num_warps": 2}
    for constants in (given, {**given, **other}):
        tensors = constants.pop("tensors")
        launch((3, 1), tensors, 7, **constants)
    assert ways(kernel) == ["plain", "plain"]


def test_tensors_that_are_not_aligned_neither_make_nor_take_the_compiled_form(kernel):
    launch, aligned, shifted = Launcher(kernel), [Pointer(64), Pointer(128)], [Pointer(64), Pointer(132)]
    for tensors in (shifted, aligned, shifted, aligned):
        launch((3, 1), tensors, 7, FLAG=True, n=5)
    assert ways(kernel) == ["plain", "plain", "plain", "compiled"]
