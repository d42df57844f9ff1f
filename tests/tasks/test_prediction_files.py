import csv
import os
import sys

import pytest
import torch
from pyarrow import parquet

from hkconv.errors import InputError
from hkconv.tasks.predict import Predictions
from hkconv.tasks.prediction_files import check_target, write_predictions


@pytest.fixture
def predictions():
    probabilities = torch.tensor([[0.25, 0.75], [1 / 3, 2 / 3], [0.9, 0.1]], dtype=torch.float64)
    return Predictions(None, "node", ["a,b", 'c"', "日本"], ("no", "yes, sure"), probabilities)


def test_csv(tmp_path, predictions):
    path = write_predictions(tmp_path / "out.csv", predictions)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["id", "class", "p_no", "p_yes, sure"]
    assert [row[:2] for row in rows[1:]] == [["a,b", "yes, sure"], ['c"', "yes, sure"], ["日本", "no"]]
    assert rows[1][2:] == ["0.25", "0.75"]
    assert [float(value) for value in rows[2][2:]] == pytest.approx([1 / 3, 2 / 3], rel=1e-8)


def test_parquet(tmp_path, predictions):
    found = parquet.read_table(write_predictions(tmp_path / "out.parquet", predictions)).to_pydict()
    assert found == {
        "id": ["a,b", 'c"', "日本"],
        "class": ["yes, sure", "yes, sure", "no"],
        "p_no": [0.25, 1 / 3, 0.9],
        "p_yes, sure": [0.75, 2 / 3, 0.1],
    }


def test_an_older_file_stays_whole_if_the_new_one_cannot_be_written(tmp_path, predictions, monkeypatch):
    (tmp_path / "out.csv").write_text("older")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(InputError, match=r"out\.csv cannot be written \(No space left on device\)"):
        write_predictions(tmp_path / "out.csv", predictions)
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"] and (tmp_path / "out.csv").read_text() == "older"


def test_targets_are_checked_first(tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"out must end in \.csv or \.parquet"):
        check_target(tmp_path / "out.txt")
    with pytest.raises(InputError, match="does not exist"):
        check_target(tmp_path / "nowhere" / "out.csv")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"install it with pip install 'hkconv\[parquet\]'"):
        check_target(tmp_path / "out.parquet")
