import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from fuzzing import fuzzed, input_errors_alone
from hypothesis import strategies as st

from hkconv.data.own.labels import Labels, answers, is_label, label_numbers, numbers, read_labels, split_of_column
from hkconv.data.own.tables import ColumnTable, read_table
from hkconv.errors import InputError


def table(**columns) -> ColumnTable:
    named = {name.replace("_", ":", 1): cells for name, cells in columns.items()}
    (count,) = {len(cells) for cells in named.values()}
    return ColumnTable(Path("nodes.csv"), named, range(2, 2 + count), "line")


def refused(message):
    return pytest.raises(InputError, match=f"^{re.escape(message)}")


def test_a_column_of_names_is_one_of_classes():
    found = read_labels(table(age=["1", "2", "3"], label=["cat", "nan", "7"]))
    assert found == Labels(["cat", "", "7"], "accuracy", ())
    assert label_numbers(found.words, found.metric, ("7", "cat")).tolist() == [1, -1, 0]
    assert read_labels(table(age=["1", "2"])) == Labels(["", ""])


def test_a_column_of_numbers_to_predict():
    found = read_labels(table(target=["1.5", "", "-2e3", "NA", "7"]))
    assert (found.metric, found.names) == ("R2", ("target",))
    y = label_numbers(*found)
    assert y.dtype == torch.float32 and y.shape == (5, 1)
    np.testing.assert_array_equal(y[:, 0], np.array([1.5, math.nan, -2000, math.nan, 7], dtype=np.float32))


def test_every_number_comes_back_as_it_was(generator):
    values = torch.randn(200, generator=generator) * 10.0 ** torch.randint(-30, 30, (200,), generator=generator)
    values[::9] = math.nan
    torch.testing.assert_close(
        label_numbers(*numbers(values.numpy(), "price"))[:, 0], values, equal_nan=True, rtol=0, atol=0
    )


def test_columns_of_answers_in_every_spelling():
    found = read_labels(
        table(label_tea=["yes", "False", "1", "0.0", ""], age=["1"] * 5, label_coffee=["", "n/a", "TRUE", "no", ""])
    )
    assert (found.metric, found.names) == ("ROC-AUC", ("tea", "coffee"))
    expected = np.array([[1, math.nan], [0, math.nan], [1, 1], [0, 0], [math.nan, math.nan]], dtype=np.float32)
    np.testing.assert_array_equal(label_numbers(*found), expected)
    # Of the last nothing is known, as of a node without a class.
    assert [bool(word) for word in found.words] == [True, True, True, True, False]


def test_one_question_with_one_unknown_answer():
    found = answers(np.array([[1.0], [math.nan]]), ["toxic"])
    assert label_numbers(*found)[0].item() == 1 and label_numbers(*found)[1].isnan()


def test_columns_of_labels_are_told_from_features():
    assert [
        name for name in ("label", "target", "label:x", "labels", "Label", "targets", "split") if is_label(name)
    ] == [*("label", "target", "label:x")]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"label": ["a"], "target": ["1"]}, "nodes.csv, line 1: there is one task at a time"),
        ({"label": ["a"], "label_q": ["1"]}, "nodes.csv, line 1: there is one task at a time"),
        ({"target": ["1"], "label_q": ["1"], "label_r": ["1"]}, "nodes.csv, line 1: there is one task at a time"),
        ({"target": ["1", "many"]}, "nodes.csv, line 3, column target must be a finite number, got 'many'"),
        ({"target": ["1", "inf"]}, "nodes.csv, line 3, column target must be a finite number, got 'inf'"),
        ({"target": ["1e39"]}, "nodes.csv, line 2, column target must be a finite number, got '1e39'"),
        (
            {"label_q": ["yes", "maybe"]},
            "nodes.csv, line 3, column label:q must be yes, no, true, false, 1, 0 or empty, got 'maybe'",
        ),
        ({"label_q": ["1", "2"]}, "nodes.csv, line 3, column label:q must be yes, no, true, false, 1, 0 or empty"),
        ({"label_": ["1"]}, "nodes.csv, line 1, column label:: the name of the question is missing after the colon"),
        (
            {"label": [f"{number}.5" for number in range(30)]},
            "nodes.csv, line 1, column label has 30 different numbers in 30 rows, a class for each: "
            "to predict numbers call the column target",
        ),
    ],
)
def test_faults_are_named_by_file_line_and_column(columns, message):
    with refused(message) as caught:
        read_labels(table(**columns))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "cells",
    [
        [str(number) for number in range(20)],  # few rows
        [f"name {number}" for number in range(30)],  # no numbers
        [str(number % 25) for number in range(100)],  # each of them often
    ],
)
def test_what_may_be_classes_is_taken_as_classes(cells):
    assert read_labels(table(label=cells)).words == cells


def test_a_column_of_words_is_a_split():
    words, labels = ["test", "", "train", "test"], Labels(["a", "", "b", "a"])
    (split,) = split_of_column(table(label=labels.words, split=words), labels)
    assert {name: members.tolist() for name, members in split.items()} == {"train": [2], "val": [], "test": [0, 3]}
    with refused("nodes.csv, line 3, column split must be train, val, test or empty, got 'Train'"):
        split_of_column(table(label=["a", "a"], split=["", "Train"]), Labels(["a", "a"]))
    with refused("nodes.csv, line 2, column split is val, but the label is empty"):
        split_of_column(table(label=[""], split=["val"]), Labels([""]))
    with refused("nodes.csv, line 2, column split is val, but the label is empty"):
        split_of_column(table(target=[""], split=["val"]), read_labels(table(target=[""])))
    assert split_of_column(table(label=["a"]), Labels(["a"])) is None
    assert split_of_column(table(split=["train"]), Labels([""])) is None


CELLS = st.sampled_from(["", "yes", "1", "0", "nan", "2.5", "1e400", "-inf", "x,y", "1_0", "\x00", "½"])
NAMES = st.sampled_from(["label", "target", "label:a", "label:", "label:b,c", "split", "id"])


@fuzzed(columns=st.dictionaries(NAMES, st.lists(CELLS, min_size=3, max_size=3), min_size=1, max_size=4))
def test_whatever_the_cells_hold_only_input_errors_come_out(tmp_path, columns):
    path = tmp_path / "nodes.csv"
    quoted = [",".join(f'"{cell}"' for cell in row) for row in ([*columns], *zip(*columns.values()))]
    path.write_text("\n".join(quoted) + "\n", encoding="utf-8")
    with input_errors_alone():
        rows = read_table(path)
        found = read_labels(rows)
        y = label_numbers(found.words, found.metric, found.names or tuple({*found.words} - {""}))
        assert len(y) == len(rows) and not y.isinf().any()
