import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from toy_translation import toy_recipe
from watching import Operations

from hkconv.language.train import train_translator
from hkconv.language.walk import Walk


@pytest.mark.parametrize("model", ["transformer", "hybonet", "hkn"])
def test_results_come_to_the_host_only_where_a_line_is_logged(tmp_path, monkeypatch, model):
    """Every tensor that is read outside of logging would make the host wait for a GPU in each step."""
    recipe = toy_recipe(tmp_path, model=model, steps=4, log_every=2, validate_every=100, accumulate=2)
    lists = []

    def tolist(tensor):
        if tensor.is_floating_point():
            lists.append(tuple(tensor.shape))
        return original(tensor)

    original = torch.Tensor.tolist
    monkeypatch.setattr(torch.Tensor, "tolist", tolist)
    seen = Operations()

    def pause(*_):
        seen.paused = True

    def go_on(*_):
        seen.paused = False

    take_step, reads = Walk.take, []

    def watched(walk):
        # Optimizers count on the CPU and read only that.
        hooks = register_optimizer_step_pre_hook(pause), register_optimizer_step_post_hook(go_on)
        with seen:
            take_step(walk)
        for hook in hooks:
            hook.remove()
        reads.append(seen.reads)

    monkeypatch.setattr(Walk, "take", watched)
    train_translator(recipe)
    assert reads == [0] * 4
    assert seen.counts["aten.embedding_dense_backward"] > 0
    # Two losses, two norms and the largest parameter.
    assert lists == [(5,)] * 2
