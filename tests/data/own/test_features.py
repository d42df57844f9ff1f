import re

import pytest
import torch

from hkconv.data.own.features import MOST_CATEGORIES, Feature, encode, learn_features, sorted_names
from hkconv.data.own.tables import read_table
from hkconv.errors import InputError


def table(folder, content, name="nodes.csv"):
    path = folder / name
    path.write_text(content)
    return read_table(path)


def refused(message):
    return pytest.raises(InputError, match=re.escape(message))


CONTENT = "age,colour,size\n1.5,red,10\n-2,blue,9\n3,red,10\n"


def test_numbers_and_categories_become_columns_in_order(tmp_path):
    found = table(tmp_path, CONTENT)
    features = learn_features(found, ["age", "colour", "size"])
    assert features == (Feature("age"), Feature("colour", ("blue", "red")), Feature("size"))
    assert encode(found, features).tolist() == [[1.5, 0, 1, 10], [-2, 1, 0, 9], [3, 0, 1, 10]]
    assert encode(found, features).dtype == torch.float32


def test_numbers_can_be_categories(tmp_path):
    found = table(tmp_path, CONTENT)
    features = learn_features(found, ["size", "age"], categorical=["size"])
    assert features == (Feature("size", ("9", "10")), Feature("age"))
    assert encode(found, features).tolist() == [[0, 1, 1.5], [1, 0, -2], [0, 1, 3]]


def test_other_data_are_encoded_as_those_that_were_learned(tmp_path):
    features = learn_features(table(tmp_path, CONTENT), ["age", "colour"])
    other = table(tmp_path, "colour,extra,age\nblue,0,7\nblue,0,8\n", "other.csv")
    assert encode(other, features).tolist() == [[7, 1, 0], [8, 1, 0]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("colour\nred\n", "other.csv, line 1, column age is missing; there are colour"),
        (
            "age,colour\n1,red\n2,green\n",
            "other.csv, line 3, column colour: category 'green' was not there in training; ",
        ),
        ("age,colour\n1,\n", "other.csv, line 2, column colour is empty"),
        ("age,colour\n\n,red\n", "other.csv, line 3, column age must be a finite number, the cell is empty"),
        ("age,colour\nold,red\n", "other.csv, line 2, column age must be a finite number, got 'old'"),
    ],
)
def test_what_does_not_fit_is_named_by_file_line_and_column(tmp_path, content, message):
    features = learn_features(table(tmp_path, CONTENT), ["age", "colour"])
    with refused(message):
        encode(table(tmp_path, content, "other.csv"), features)


def test_a_slip_among_numbers_does_not_make_them_categories(tmp_path):
    found = table(tmp_path, "age\n1\n2\n3..5\n4\n")
    with refused("nodes.csv, line 4, column age: '3..5' is no number, but other cells of the column are"):
        learn_features(found, ["age"])
    with refused("nodes.csv, line 3, column age is empty"):
        learn_features(table(tmp_path, "age,b\n1,x\n,x\n"), ["age"])


def test_names_are_no_categories(tmp_path):
    rows = "".join(f"name{number}\n" for number in range(MOST_CATEGORIES + 1))
    with refused(f"column name has {MOST_CATEGORIES + 1} different categories, more than {MOST_CATEGORIES}"):
        learn_features(table(tmp_path, "name\n" + rows), ["name"])


def test_names_in_order():
    assert sorted_names({"10", "9", "-1"}) == ("-1", "9", "10")
    assert sorted_names({"10", "9", "b", "a"}) == ("10", "9", "a", "b")
    # A NaN that took part as a number would let the order depend on chance.
    assert sorted_names({"nan", "3", "2", "1"}) == ("1", "2", "3", "nan")
