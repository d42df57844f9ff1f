import re

import pytest
import torch

from hkconv.data.own.features import (
    BOOLEAN,
    DATE,
    MOST_CATEGORIES,
    UNUSED,
    Feature,
    describe_features,
    encode,
    learn_features,
    sorted_names,
)
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
        ("age,colour\n1e400,red\n", "other.csv, line 2, column age must be a finite number, got '1e400'"),
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


def test_too_many_categories_are_refused(tmp_path):
    rows = "".join(f"name{number}\n" * 2 for number in range(MOST_CATEGORIES + 1))
    with refused(f"column name has {MOST_CATEGORIES + 1} different categories, more than {MOST_CATEGORIES}"):
        learn_features(table(tmp_path, "name\n" + rows), ["name"])


def test_names_in_order():
    assert sorted_names({"10", "9", "-1"}) == ("-1", "9", "10")
    assert sorted_names({"10", "9", "b", "a"}) == ("10", "9", "a", "b")
    # A NaN that took part as a number would let the order depend on chance.
    assert sorted_names({"nan", "3", "2", "1"}) == ("1", "2", "3", "nan")


def test_a_column_that_differs_in_every_row_is_a_name_and_not_a_feature(tmp_path):
    found = table(tmp_path, "name,group\n" + "".join(f"Žofie {number},{number % 2}x\n" for number in range(300)))
    features = learn_features(found, ["name", "group"])
    assert features == (Feature("name", kind=UNUSED), Feature("group", ("0x", "1x")))
    assert encode(found, features).shape == (300, 2)
    (note,) = describe_features(found, features, "mean")
    assert note == "taken as names, different in nearly every row, not as features: name"
    # Newcomers have names of their own, or none.
    assert encode(table(tmp_path, "group\n1x\n", "other.csv"), features).tolist() == [[0, 1]]


GAPS = "age,colour,empty\n1,red,\nnan,NA,\n3,blue,N/A\n,red,nan\n5,red,\n"


def test_what_says_that_a_value_is_missing_is_no_category(tmp_path):
    found = table(tmp_path, GAPS)
    features = learn_features(found, ["age", "colour", "empty"])
    assert features == (Feature("age"), Feature("colour", ("blue", "red")), Feature("empty", kind=UNUSED))
    x = encode(found, features)
    assert x[[0, 2, 4]].tolist() == [[1, 0, 1], [3, 1, 0], [5, 0, 1]]
    assert x[1].isnan().all() and x[3].isnan().tolist() == [True, False, False]
    assert describe_features(found, features, "mean") == (
        "missing values: age 2, colour 1; they count as the mean of the training rows",
        "empty, not used: empty",
    )


def test_missing_values_can_be_categories(tmp_path):
    found = table(tmp_path, GAPS)
    features = learn_features(found, ["age", "colour"], missing="category")
    assert [feature.has_missing for feature in features] == [True, True]
    x = encode(found, features)
    assert x[1].tolist()[1:] == [1, 0, 0, 1] and x[1, 0].isnan() and x[0].tolist() == [1, 0, 0, 1, 0]
    assert features[0].are_numbers == [True, False] and features[1].are_numbers == [False, False, False]


def test_missing_values_can_be_an_error_that_counts_them_by_column(tmp_path):
    found = table(tmp_path, GAPS)
    with refused("nodes.csv: values are missing in age 2, colour 1; fill them in, or let missing be mean or category"):
        encode(found, learn_features(found, ["age", "colour", "empty"], missing="error"), "error")


def test_dates_and_booleans_are_numbers(tmp_path):
    found = table(
        tmp_path, "born,seen,paid,ok\n1970-01-02,01.03.1970,yes,TRUE\n1971-01-01T12:00,,No,false\n,2.1.1970,,\n"
    )
    features = learn_features(found, ["born", "seen", "paid", "ok"])
    assert [feature.kind for feature in features] == [DATE, DATE, BOOLEAN, BOOLEAN]
    x = encode(found, features).nan_to_num(-1)
    assert x.tolist() == [[1, 59, 1, 1], [365.5, -1, 0, 0], [-1, 1, -1, -1]]
    with refused("other.csv, line 2, column born must be a date (ISO 8601), got 'soon'"):
        encode(table(tmp_path, "born,seen,paid,ok\nsoon,01.03.1970,yes,no\n", "other.csv"), features)
    with refused("other.csv, line 2, column paid must be yes, no, true or false, got 'maybe'"):
        encode(table(tmp_path, "born,seen,paid,ok\n,,maybe,no\n", "other.csv"), features)


def test_days_and_months_are_told_apart_or_asked_for(tmp_path):
    (feature,) = learn_features(table(tmp_path, "day\n02/01/1970\n31/01/1970\n"), ["day"])
    assert encode(table(tmp_path, "day\n03/01/1970\n", "other.csv"), [feature]).tolist() == [[2]]
    with refused("column day: '02/01/1970' and all others may be days and months in either order"):
        learn_features(table(tmp_path, "day\n02/01/1970\n03/01/1970\n"), ["day"])


def test_a_run_of_the_first_release_keeps_its_categories(tmp_path):
    known = Feature("colour", ("blue", "nan"))
    assert encode(table(tmp_path, "colour\nnan\nblue\n"), [known], "error").tolist() == [[0, 1], [1, 0]]
