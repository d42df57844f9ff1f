import json
import re

import numpy as np
import pytest
import torch
from fuzzing import changed, damaged, fuzzed, input_errors_alone
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays, scalar_dtypes

from hkconv.data import Split, load
from hkconv.data.split_files import read_split_parts, read_splits, write_masks
from hkconv.errors import InputError

SOUND = {"train": [0, 1], "val": [2], "test": [4, 3]}


def written(folder, content, name="mine.json"):
    path = folder / name
    if isinstance(content, dict | list):
        path.write_text(json.dumps(content))
    else:
        path.write_bytes(content)
    return path


def as_lists(parts):
    return {name: members.tolist() for name, members in parts.items()}


def test_json_of_one_split_and_of_many(tmp_path):
    (found,) = read_split_parts(written(tmp_path, SOUND), 5)
    assert as_lists(found) == SOUND and list(found) == ["train", "val", "test"]
    other = {**SOUND, "test": [3]}
    assert list(map(as_lists, read_split_parts(written(tmp_path, [SOUND, other]), 5))) == [SOUND, other]


def test_geom_gcn_files_are_read(load_real, real_data):
    dataset = load_real("texas")
    for index in (0, 7):
        file = real_data / f"webkb/texas/raw/texas_split_0.6_0.2_{index}.npz"
        (found,) = read_splits(file, dataset.graph.num_nodes, 1)
        for name, members in found.parts.items():
            assert torch.equal(members, dataset.splits[index].parts[name])


def test_many_masks_in_one_file(load_real, real_data):
    dataset = load_real("squirrel-filtered")
    file = real_data / "wikipedia_filtered/squirrel_filtered.npz"
    found = read_splits(file, dataset.graph.num_nodes, 10)
    assert all(torch.equal(one.test, other.test) for one, other in zip(found, dataset.splits, strict=True))


def test_an_audit_reads_overlap_and_nothing_else_does(tmp_path):
    path = written(tmp_path, [SOUND, {**SOUND, "test": [1, 3, 3]}])
    assert as_lists(read_split_parts(path, 5)[1])["test"] == [1, 3, 3]
    with pytest.raises(InputError, match=r"test of split 1 of .*mine.json lists 1 of its members more than once"):
        read_splits(path, 5, 1)
    path = written(tmp_path, {**SOUND, "test": [1, 3]})
    with pytest.raises(InputError, match=r"train and test of split 0 of .*mine.json share 1 members") as caught:
        read_splits(path, 5, 1)
    assert "\n" not in str(caught.value)


def test_a_dataset_with_splits_of_ones_own(tmp_path):
    dataset = load("tree", split_file=written(tmp_path, [SOUND, SOUND]), num_splits=2)
    assert dataset.protocol == "own" and len(dataset.splits) == 2
    assert as_lists(dataset.splits[1].parts) == SOUND
    with pytest.raises(InputError, match=r"num_splits of split file .*mine.json must be from 1 to 2, got 3"):
        load("tree", split_file=tmp_path / "mine.json", num_splits=3)
    with pytest.raises(InputError, match="split_file is for node and graph tasks, not for links"):
        load("tree", split_file=tmp_path / "mine.json", task="link")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not valid JSON"),
        (b"\xff\xfe\xfd", "is not valid JSON"),
        ([], "holds no split"),
        ([1], "split 0 of {path} must have the keys train, val, test and no other"),
        ({"train": [0], "test": [1]}, "must have the keys train, val, test and no other"),
        ({**SOUND, "valid": [1]}, "must have the keys train, val, test and no other"),
        ({**SOUND, "val": 3}, "val of split 0 of {path} must be a list of whole numbers"),
        ({**SOUND, "val": [1.5]}, "val of split 0 of {path} must be a list of whole numbers"),
        ({**SOUND, "val": [True]}, "val of split 0 of {path} must be a list of whole numbers"),
        ({**SOUND, "val": []}, "val of split 0 of {path} is empty"),
        ({**SOUND, "val": [-1]}, "must hold indices of zero or more, got -1"),
        ({**SOUND, "val": [-(10**30)]}, f"must hold indices of zero or more, got -{10**30}"),
        ({**SOUND, "val": [5]}, "a split of {path} mentions index 5, but indices end at 4"),
        ({**SOUND, "val": [10**30]}, f"a split of {{path}} mentions index {10**30}, but indices end at 4"),
    ],
)
def test_json_that_cannot_be(tmp_path, content, message):
    path = written(tmp_path, content)
    with pytest.raises(InputError, match=re.escape(message.format(path=path))) as caught:
        read_split_parts(path, 5)
    assert "\n" not in str(caught.value)


def mask(*members, count=5):
    return np.isin(np.arange(count), members).astype(np.uint8)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"train_mask": mask(0), "val_mask": mask(1)}, "must hold test_mask, got train_mask, val_mask"),
        (
            {"test_mask": mask(2, count=4)},
            "test_mask of split file {path} must hold 5 zeros and ones a split, got shape (1, 4)",
        ),
        ({"test_mask": np.full(5, 3)}, "must hold 5 zeros and ones a split"),
        ({"test_mask": mask()}, "test of split 0 of {path} is empty"),
        ({"test_mask": np.stack([mask(2), mask(3)])}, "must hold the same number of splits"),
    ],
)
def test_masks_that_cannot_be(tmp_path, arrays, message):
    path = tmp_path / "mine.npz"
    np.savez(path, **{"train_mask": mask(0), "val_mask": mask(1), **arrays})
    with pytest.raises(InputError, match=re.escape(message.format(path=path))):
        read_split_parts(path, 5)


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04half an archive"])
def test_an_archive_that_cannot_be(tmp_path, content):
    with pytest.raises(InputError, match=r"is not a valid .npz file of plain arrays"):
        read_split_parts(written(tmp_path, content, "mine.npz"), 5)


def test_a_single_array_is_no_archive(tmp_path):
    np.save(tmp_path / "mine.npy", mask(1))
    (tmp_path / "mine.npy").rename(tmp_path / "mine.npz")
    with pytest.raises(InputError, match=r"must be an \.npz file of named arrays, got a single array"):
        read_split_parts(tmp_path / "mine.npz", 5)


def test_pickled_arrays_are_not_opened(tmp_path):
    np.savez(tmp_path / "mine.npz", train_mask=np.array([print], dtype=object))
    with pytest.raises(InputError, match=r"is not a valid .npz file of plain arrays"):
        read_split_parts(tmp_path / "mine.npz", 5)


def test_other_files(tmp_path):
    with pytest.raises(InputError, match=r"split file must end in .json or .npz, got mine.csv"):
        read_split_parts("mine.csv", 5)
    for name in ("absent.json", "absent.npz"):
        with pytest.raises(InputError, match="cannot be read"):
            read_split_parts(tmp_path / name, 5)


def test_masks_are_written_and_read_again(tmp_path):
    contents = [{"train": [0, 4], "val": [1], "test": [2]}, {"train": [2], "val": [0, 1], "test": [3]}]
    splits = [Split(**{name: torch.tensor(members) for name, members in parts.items()}) for parts in contents]
    found = read_splits(written(tmp_path, write_masks(splits, 6), "mine.npz"), 6)
    assert [as_lists(split.parts) for split in found] == contents


MASKS = write_masks([Split(*(torch.tensor([member]) for member in range(3)))], 5)


@fuzzed(content=changed(SOUND).map(json.dumps).map(str.encode) | damaged(json.dumps([SOUND]).encode()))
def test_whatever_a_json_file_says_only_input_errors_come_out(tmp_path, content):
    with input_errors_alone():
        read_splits(written(tmp_path, content), 5)


NUMBERS = scalar_dtypes().filter(lambda dtype: dtype.kind in "biufcUS")
ARRAYS = NUMBERS.flatmap(lambda dtype: arrays(dtype, st.sampled_from([(), (5,), (2, 5), (0, 5), (1, 2, 5)])))


@fuzzed(masks=st.dictionaries(st.sampled_from(["train_mask", "val_mask", "test_mask", "val_masks", "more"]), ARRAYS))
def test_masks_of_any_kind_give_input_errors_alone(tmp_path, masks):
    np.savez(tmp_path / "mine.npz", **masks)
    with input_errors_alone():
        read_splits(tmp_path / "mine.npz", 5)


@fuzzed(content=damaged(MASKS))
def test_a_damaged_archive_gives_input_errors_alone(tmp_path, content):
    with input_errors_alone():
        read_splits(written(tmp_path, content, "mine.npz"), 5)
