"""The compiled kernels: which library is taken, and what happens where there is none."""

import os
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch
from fused_cases import make_problem, outputs_and_gradients, random_edges, relative_error

from hkconv.errors import InputError
from hkconv.geometry.lorentz import lift
from hkconv.nn import HKAttention, HKBlock, HKConv
from hkconv.ops import cpu, native
from hkconv.ops.backends import choose_backend
from hkconv.ops.native import build
from hkconv.ops.neighbors import neighbors

EDGES = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 1]])


@pytest.fixture
def nothing_built(tmp_path, monkeypatch):
    """A process that has loaded no library yet, a package without any, and an empty cache folder."""
    monkeypatch.setattr(native, "HERE", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    native._find.cache_clear()
    yield tmp_path / "hkconv" / "kernels"
    native._find.cache_clear()


@pytest.fixture
def no_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)


def usable_sets() -> list[str]:
    names = build.instruction_sets()
    return names[names.index(native.best_instructions()) :]


def by_instructions(name: str, monkeypatch) -> None:
    library = native.load(name)
    monkeypatch.setattr(native, "_find", lambda: (library, None))


@pytest.mark.parametrize("largest_map", [cpu.LARGEST_MAP, 0], ids=["by edges", "by nodes"])
@pytest.mark.parametrize("name", usable_sets())
def test_every_set_of_instructions_gives_the_same(name, largest_map, dtype, monkeypatch):
    monkeypatch.setattr(cpu, "LARGEST_MAP", largest_map)
    problem = make_problem(random_edges(30, 20, 400), (30, 20), 3, 17, 18, weighted=True, radius=2.0)
    by_instructions(name, monkeypatch)
    out, mass, gradients = outputs_and_gradients(problem, "fused", dtype)
    expected_out, expected_mass, expected = outputs_and_gradients(problem, "reference")
    tolerance = {torch.float32: 2e-5, torch.float64: 1e-12}[dtype]
    assert relative_error(out, expected_out) < tolerance
    assert relative_error(mass, expected_mass) < tolerance
    assert all(relative_error(found, expected[name], 0.1) < 10 * tolerance for name, found in gradients.items())


@pytest.mark.parametrize("name", usable_sets())
def test_layers_are_the_same_by_every_set_of_instructions(name, monkeypatch):
    torch.manual_seed(0)
    x = lift(torch.randn(1, 7, 9, dtype=torch.float64))
    convolutions = HKConv(9, 5, 3, attention="distance").double(), HKBlock(9, 5, 3).double()
    attention = HKAttention(9, 3, kernel_size=2).double()
    found = []
    for _ in range(2):
        loss = sum(layer(x[0], EDGES).square().sum() for layer in convolutions) + attention(x).square().sum()
        parameters = [p for layer in (*convolutions, attention) for p in layer.parameters() if p.requires_grad]
        found.append(torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True))
        by_instructions(name, monkeypatch)
    for expected, gradient in zip(*found):
        torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-12)


def test_without_a_compiler_the_reference_is_taken_with_one_warning(nothing_built, no_compiler):
    x = lift(torch.randn(3, 2))
    torch.manual_seed(0)
    conv = HKConv(2, 2, 2)
    with pytest.warns(UserWarning, match=r"slower reference.*no C\+\+ compiler.*install") as caught:
        found = [conv(x, EDGES) for _ in range(2)]
    assert len([warning for warning in caught if "reference" in str(warning.message)]) == 1
    conv.backend = "reference"
    assert torch.equal(found[0], conv(x, EDGES))
    with pytest.raises(InputError, match=r"no C\+\+ compiler.*backend='auto' takes the reference"):
        choose_backend("cpu", x, None)


def test_a_compiler_that_fails_is_named_in_the_warning(nothing_built, monkeypatch):
    monkeypatch.setenv("CXX", shutil.which("false"))
    with pytest.warns(UserWarning, match="false failed"):
        assert native.why_not() is not None
    assert list(nothing_built.iterdir()) == []


def test_what_is_compiled_is_kept_for_its_user_alone(nothing_built, capfd):
    name = native.best_instructions()
    native.load(name)
    assert "compiling" in capfd.readouterr().err
    assert nothing_built.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in nothing_built.iterdir()] == [build.library_name(name)]
    native.load(name)
    assert capfd.readouterr().err == ""


def test_a_broken_library_is_compiled_anew(nothing_built):
    nothing_built.mkdir(parents=True, mode=0o700)
    broken = nothing_built / build.library_name(native.best_instructions())
    broken.write_bytes(b"nothing that can be loaded")
    assert native.why_not() is None
    assert broken.stat().st_size > 1000


def test_a_folder_that_others_can_write_to_is_passed_over(nothing_built):
    nothing_built.mkdir(parents=True)
    nothing_built.chmod(0o777)
    (nothing_built / build.library_name(native.best_instructions())).write_bytes(b"of somebody else")
    with pytest.warns(UserWarning, match="a folder that only you can write to"):
        assert native.why_not() is not None


def test_nowhere_to_write_is_one_warning_and_no_error(nothing_built, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="a folder that only you can write to"):
        assert choose_backend("auto", torch.ones(2, 3), None) == "reference"


def test_a_library_of_other_sources_is_not_taken(tmp_path, monkeypatch):
    name = build.library_name("DEFAULT")
    shutil.copytree(build.HERE, tmp_path / "native", ignore=shutil.ignore_patterns("*.so"))
    monkeypatch.setattr(build, "HERE", tmp_path / "native")
    assert build.library_name("DEFAULT") == name
    source = tmp_path / "native" / "block.hpp"
    source.write_text(source.read_text() + "// changed")
    assert build.library_name("DEFAULT") != name
    assert len({build.library_name(other) for other in build.INSTRUCTIONS}) == len(build.INSTRUCTIONS)


@pytest.mark.parametrize("loads", [False, True], ids=["loaded before", "loaded in the fork"])
def test_a_fork_computes_what_its_parent_does(loads, generator):
    """The threads of PyTorch's team are not there in a fork, and who calls it would wait for them."""
    x = lift(torch.randn(300, 4, generator=generator))
    graph = neighbors(random_edges(300, 300, 4000), 300)
    out, given = torch.empty(2, 4000), (x, x, graph.target_pointer, graph.source)
    native.call_typed("square_distances", out.dtype, 2, 1, 300, 300, 4, *given, out[0])
    out.share_memory_()
    child = os.fork()
    if child == 0:
        if loads:
            native._find.cache_clear()
        native.call_typed("square_distances", out.dtype, 2, 1, 300, 300, 4, *given, out[1])
        os._exit(0)
    until = time.monotonic() + 60
    while os.waitpid(child, os.WNOHANG)[0] == 0:
        if time.monotonic() > until:
            os.kill(child, signal.SIGKILL)
            pytest.fail("the fork waits for threads that it does not have")
        time.sleep(0.01)
    assert torch.equal(out[0], out[1])


def test_no_more_compilers_run_at_once_than_there_are_processors(tmp_path, monkeypatch):
    """Each takes hundreds of megabytes, and there are three libraries of five sources."""
    running, most = [], []

    def compile_one(command):
        running.append(command)
        most.append(len(running))
        time.sleep(0.02)
        running.remove(command)
        Path(command[-1]).touch()

    monkeypatch.setattr(build, "_run", compile_one)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    build.compile_libraries(tmp_path, build.INSTRUCTIONS)
    assert max(most) == 2
    assert {path.name for path in tmp_path.iterdir()} == set(map(build.library_name, build.INSTRUCTIONS))
