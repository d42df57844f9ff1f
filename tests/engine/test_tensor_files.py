from pathlib import Path

import pytest
import torch

from hkconv.engine.tensor_files import (
    by_part,
    check_shapes,
    count_numbers,
    read_facts,
    read_tensors,
    write_tensors,
)
from hkconv.errors import InputError


def test_tensors_and_facts_come_back(tmp_path, dtype):
    shared = torch.randn(3, 4, dtype=dtype)
    tensors = {"a": shared, "tied": shared, "part": shared.t()[1:], "count": torch.tensor(7)}
    write_tensors(tmp_path / "file", tensors, {"step": 3, "name": "±"})
    found, facts = read_tensors(tmp_path / "file")
    assert found.keys() == tensors.keys()
    assert all(
        torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype for name, tensor in tensors.items()
    )
    assert facts == read_facts(tmp_path / "file") == {"format_version": 1, "step": 3, "name": "±"}
    assert count_numbers(tmp_path / "file") == 12 + 12 + 9 + 1


@pytest.mark.parametrize("read", [read_facts, read_tensors, count_numbers])
def test_files_that_are_none(tmp_path, read):
    with pytest.raises(InputError, match=r"checkpoint .*absent"):
        read(tmp_path / "absent")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(InputError, match="is damaged: it is not a safetensors file"):
        read(tmp_path / "text")


def test_names_are_sorted_into_parts():
    one = torch.zeros(1)
    found = by_part({"model/a/b": one, "best/c": one}, ("model", "best", "more"), Path("file"))
    assert {part: list(names) for part, names in found.items()} == {"model": ["a/b"], "best": ["c"], "more": []}
    with pytest.raises(InputError, match="has no place for tensor 'other/a'"):
        by_part({"other/a": one}, ("model",), Path("file"))


def test_shapes_and_sizes_that_do_not_fit():
    a, b = torch.zeros(2, 3), torch.zeros(3, 2)
    check_shapes({"a": a}, {"a": a}, Path("file"))
    with pytest.raises(InputError, match=r"'a' is \(3, 2\), expected \(2, 3\)"):
        check_shapes({"a": a}, {"a": b}, Path("file"))
    with pytest.raises(InputError, match=r"'b' is \(3, 2\), expected nothing"):
        check_shapes({"a": a}, {"a": a, "b": b}, Path("file"))
