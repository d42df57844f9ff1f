import gc

import torch

from hkconv.ops.identity_cache import IdentityCache


def test_cache_forgets_a_tensor_that_is_gone():
    cache, key = IdentityCache(), torch.zeros(1)
    assert cache.get(key, None, lambda: "made") == "made"
    assert cache.get(key, None, lambda: "made again") == "made"
    assert cache.get(key, "other", lambda: "made again") == "made again"
    assert cache.get(key, None, lambda: "made once more") == "made"
    key += 1
    assert cache.get(key, None, lambda: "made once more") == "made once more"
    assert cache.get(key, "other", lambda: "and so is this") == "and so is this"
    del key
    gc.collect()
    assert len(cache) == 0


def test_what_was_made_during_inference_serves_training():
    cache, key = IdentityCache(), torch.zeros(1)
    with torch.inference_mode():
        assert not cache.get(key, None, lambda: torch.ones(1)).is_inference()
