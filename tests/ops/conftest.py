import os
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch

from hkconv.ops import attention, cpu, fused, scores


@pytest.fixture(params=["native", "by nodes", "triton"])
def device(request, monkeypatch) -> str:
    """Where to put tensors so that this backend runs: native kernels, which multiply small maps by
    edges and all by nodes if told so, and Triton, in its interpreter where there is no GPU."""
    if request.param == "by nodes":
        monkeypatch.setattr(cpu, "LARGEST_MAP", 0)
    if request.param != "triton":
        return "cpu"
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        return "cuda"
    from hkconv.ops import attention_cuda, cuda, scores_cuda

    monkeypatch.setattr(fused, "_backend", lambda x: cuda)
    monkeypatch.setattr(scores, "_backend", lambda x: scores_cuda)
    monkeypatch.setattr(attention, "_backend", lambda x: attention_cuda)
    _take_roots_as_a_gpu(monkeypatch)
    return "cpu"


def _take_roots_as_a_gpu(monkeypatch) -> None:
    """Roots of float32 numbers below the normal ones are 0 there (``sqrt.approx.ftz``)."""
    from triton.runtime.interpreter import InterpreterBuilder

    def flushed(values):
        below = np.abs(values) < np.finfo(np.float32).tiny if values.dtype == np.float32 else False
        return np.sqrt(np.where(below, values.dtype.type(0), values))

    monkeypatch.setattr(InterpreterBuilder, "create_sqrt", lambda self, value: self.unary_op(value, flushed))


@pytest.fixture
def run_with_the_compiler(tmp_path) -> Callable[[str], list[str]]:
    """Run a program in a process whose Triton compiles, and interprets nothing; returns the lines it prints."""
    pytest.importorskip("triton")
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)

    def run(program: str) -> list[str]:
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run
