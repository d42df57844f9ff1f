import pytest

from hkconv.engine.launch import NAMES, Place, find_place


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in NAMES.values():
        monkeypatch.delenv(name, raising=False)


def test_a_place_is_what_torchrun_says(monkeypatch):
    for name, value in {"RANK": 11, "WORLD_SIZE": 16, "LOCAL_RANK": 3, "LOCAL_WORLD_SIZE": 8}.items():
        monkeypatch.setenv(name, str(value))
    assert find_place() == Place(rank=11, count=16, local_rank=3, local_count=8)


@pytest.mark.parametrize("given", [{}, {"RANK": "1", "WORLD_SIZE": "2"}, dict.fromkeys(NAMES.values(), "many")])
def test_without_a_launcher_a_process_is_the_only_one(monkeypatch, given):
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert find_place() == Place(rank=0, count=1, local_rank=0, local_count=1)
