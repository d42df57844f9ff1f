import pytest
import torch

from hkconv.errors import InputError
from hkconv.geometry import lorentz
from hkconv.nn import HKConv
from hkconv.ops import backends
from hkconv.ops.backends import BACKENDS, Launcher, choose_backend

EDGES = torch.tensor([[0, 1, 2], [1, 2, 0]])


class OnCuda:
    """All that is asked of a tensor, where there may be no GPU to make one."""

    device = torch.device("cuda")


def message(call) -> str:
    with pytest.raises(InputError) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize(("asked", "taken"), [("auto", "cpu"), ("cpu", "cpu"), ("reference", "reference")])
def test_backends_of_cpu_tensors(asked, taken, dtype):
    assert choose_backend(asked, torch.ones(2, 3, dtype=dtype), None) == taken


@pytest.mark.parametrize(("asked", "taken"), [("auto", "cuda"), ("cuda", "cuda"), ("reference", "reference")])
def test_backends_of_cuda_tensors(asked, taken, monkeypatch):
    monkeypatch.setattr(backends, "_has_triton", lambda: True)
    assert choose_backend(asked, OnCuda(), None) == taken


def test_cuda_tensors_without_triton(monkeypatch):
    monkeypatch.setattr(backends, "_has_triton", lambda: False)
    assert choose_backend("auto", OnCuda(), None) == "reference"
    assert choose_backend("reference", OnCuda(), None) == "reference"
    assert "Triton" in message(lambda: choose_backend("cuda", OnCuda(), None))


@pytest.mark.parametrize(
    ("device", "act"), [("cpu", torch.tanh), ("cpu", torch.nn.ELU()), ("meta", torch.relu)], ids=["tanh", "elu", "meta"]
)
@pytest.mark.parametrize("asked", ["auto", "reference"])
def test_activation_takes_the_reference(asked, device, act):
    assert choose_backend(asked, torch.ones(2, 3, device=device), act) == "reference"


@pytest.mark.parametrize(
    "act", [torch.relu, torch.nn.functional.relu, torch.nn.ReLU()], ids=["torch", "functional", "module"]
)
def test_relu_is_fused_on_both_devices(act, monkeypatch):
    monkeypatch.setattr(backends, "_has_triton", lambda: True)
    assert choose_backend("auto", torch.ones(2, 3), act) == "cpu"
    assert choose_backend("auto", OnCuda(), act) == "cuda"


@pytest.mark.parametrize("asked", ["auto", "reference"])
def test_unknown_device_takes_the_reference(asked):
    assert choose_backend(asked, torch.ones(2, 3, device="meta"), None) == "reference"


@pytest.mark.parametrize(("asked", "device"), [("cpu", "meta"), ("cuda", "meta"), ("cuda", "cpu")])
@pytest.mark.parametrize("act", [None, torch.relu])
def test_backend_of_another_device_is_refused(asked, device, act):
    said = message(lambda: choose_backend(asked, torch.ones(2, 3, device=device), act))
    assert f"backend='{asked}' needs {asked} tensors, got {device}" in said
    assert "backend='auto'" in said


def test_cpu_backend_of_cuda_tensors_is_refused():
    assert "needs cpu tensors, got cuda" in message(lambda: choose_backend("cpu", OnCuda(), None))


def test_activation_is_refused_at_forward_in_one_line():
    conv = HKConv(3, 2, 2, act="tanh", backend="cpu")
    said = message(lambda: conv(lorentz.lift(torch.randn(3, 3)), EDGES))
    assert said.count("\n") == 0
    assert "backend='cpu' does not cover act" in said


def test_layer_takes_the_fused_backend_unless_there_is_an_activation_that_it_does_not_cover(monkeypatch):
    taken = []
    for name in ("_aggregate_fused", "_aggregate_by_edges"):
        method = getattr(HKConv, name)
        monkeypatch.setattr(HKConv, name, lambda *given, _name=name, _run=method: taken.append(_name) or _run(*given))
    x = lorentz.lift(torch.randn(3, 3))
    for options in ({"act": "relu"}, {"backend": "cpu"}, {"act": "tanh"}, {"backend": "reference"}):
        HKConv(3, 2, 2, **options)(x, EDGES)
    assert taken == ["_aggregate_fused", "_aggregate_fused", "_aggregate_by_edges", "_aggregate_by_edges"]


@pytest.mark.parametrize("backend", ["nonsense", "CPU", "", None])
def test_unknown_backend_is_refused_when_the_layer_is_made(backend):
    said = message(lambda: HKConv(3, 2, 2, backend=backend))
    assert all(name in said for name in BACKENDS)
    assert repr(backend) in said


# The way around Triton's own launch, without a GPU: the kernel and its tensors are stand-ins that count.


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
