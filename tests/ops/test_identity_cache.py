import gc
import weakref

import pytest
import torch
from torch_geometric import EdgeIndex

from hkconv.ops.identity_cache import MOST_VALUES, PIECE, IdentityCache


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


def edges(count, rows=2):
    return torch.arange(rows * count).view(rows, count)


KINDS = {
    "int64": edges,
    "int32": lambda count: edges(count).int(),
    "columns": lambda count: edges(count).t().contiguous().t(),
    "float32": lambda count: torch.linspace(0, 1, count),
    "EdgeIndex": lambda count: EdgeIndex(edges(count)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", [0, 1, PIECE - 1])
def test_any_number_of_a_short_row_written_behind_pytorch_is_noticed_at_once(kind, place, recwarn):
    cache, key = IdentityCache(), KINDS[kind](PIECE)
    made = cache.get(key, None, object)
    assert cache.get(key, None, object) is made
    (key.as_tensor() if kind == "EdgeIndex" else key).numpy()[..., place] += 1
    assert cache.get(key, None, object) is not made
    assert not recwarn.list


def test_numbers_that_change_places_behind_pytorch_are_noticed():
    cache, key = IdentityCache(), edges(5)
    made = cache.get(key, None, object)
    key.numpy()[:] = key.numpy()[::-1].copy()
    assert cache.get(key, None, object) is not made


def test_one_number_of_a_long_row_is_noticed_within_as_many_calls_as_there_are_pieces():
    cache, key = IdentityCache(), edges(5 * PIECE)
    made = cache.get(key, None, object)
    key.numpy()[1, 2 * PIECE + 7] += 1
    with pytest.warns(UserWarning, match="written to where PyTorch does not see it"):
        found = [cache.get(key, None, object) for _ in range(5)]
    assert found[-1] is not made
    assert cache.get(key, None, object) is found[-1]


def test_only_the_last_values_of_a_tensor_are_kept():
    cache, key = IdentityCache(), edges(5)
    values = [cache.get(key, tag, object) for tag in range(1500)]
    (kept,) = cache._entries.values()
    assert len(kept.values) == MOST_VALUES
    last = range(1500 - MOST_VALUES, 1500)
    assert [cache.get(key, tag, object) for tag in last] == [values[tag] for tag in last]


def test_a_value_that_a_cuda_graph_recorded_is_never_dropped(monkeypatch):
    cache, key = IdentityCache(), edges(5)
    recorded = cache.get(key, "recorded", object)
    with monkeypatch.context() as patch:
        patch.setattr("hkconv.ops.identity_cache.is_capturing", lambda values: True)
        assert cache.get(key, "recorded", object) is recorded
    for tag in range(3 * MOST_VALUES):
        cache.get(key, tag, object)
    assert cache.get(key, "recorded", object) is recorded


def test_what_a_cuda_graph_recorded_outlives_a_write_to_its_tensor(monkeypatch):
    """The graph goes on reading it, and nothing else may lie there."""
    cache, key = IdentityCache(), edges(5)
    recorded = weakref.ref(cache.get(key, "recorded", lambda: torch.zeros(3)))
    with monkeypatch.context() as patch:
        patch.setattr("hkconv.ops.identity_cache.is_capturing", lambda values: True)
        cache.get(key, "recorded", object)
    for _ in range(3):
        key.add_(1)
        assert cache.get(key, "recorded", object) is not recorded()
    gc.collect()
    assert recorded() is not None
    del key
    gc.collect()
    assert recorded() is None
