import pytest
import torch

from hkconv.ops import attention, fused, scores


@pytest.fixture(params=["numba", "triton"])
def device(request, monkeypatch) -> str:
    """Where to put tensors so that this backend runs: Triton in its interpreter where there is no GPU."""
    if request.param == "numba":
        return "cpu"
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        return "cuda"
    from hkconv.ops import attention_cuda, cuda, scores_cuda

    monkeypatch.setattr(fused, "_backend", lambda x: cuda)
    monkeypatch.setattr(scores, "_backend", lambda x: scores_cuda)
    monkeypatch.setattr(attention, "_backend", lambda x: attention_cuda)
    return "cpu"
