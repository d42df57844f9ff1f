import csv
import os
from pathlib import Path

import pytest
import torch
from own_files import write_houses, write_papers, write_people


@pytest.fixture
def run(hkconv) -> Path:
    write_papers(Path("papers"))
    arguments = ("--epochs", 2, "--num-splits", 1, "--models", "gcn", "--hidden-dim", 4)
    result = hkconv("train", "papers", *arguments, "--out", "run")
    assert result.exit_code == 0, result.output
    assert "papers: node task, own data: " in result.stdout
    return Path("run")


def test_own_data_from_training_to_prediction(hkconv, run):
    assert hkconv("evaluate", run).exit_code == 0
    assert hkconv("train", "--resume", run).exit_code == 0
    result = hkconv("predict", run, "papers")
    assert result.exit_code == 0, result.output
    first, second = result.stdout.splitlines()
    assert first.startswith("gcn split 0 seed 0, validation accuracy ")
    assert second == "60 nodes written to predictions.csv"
    with open("predictions.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [f"paper {number}" for number in range(60)]
    for row in rows:
        shares = {name: float(row[f"p_{name}"]) for name in ("high", "low", "mid")}
        assert sum(shares.values()) == pytest.approx(1, abs=1e-6) and row["class"] == max(shares, key=shares.get)


def test_faults_are_one_line_and_exit_code_2(hkconv, run):
    assert "papers2 do not exist" in hkconv.fails("predict", run, "papers2")
    assert "out must end in .csv or .parquet" in hkconv.fails("predict", run, "papers", "--out", "p.txt")
    assert "run must be a folder" in hkconv.fails("predict", "nowhere", "papers")
    nodes = Path("papers/nodes.csv")
    nodes.write_text(nodes.read_text().replace("red", "pink", 1))
    assert "nodes.csv, line 7, column colour: category 'pink'" in hkconv.fails("predict", run, "papers")
    assert "category 'pink'" in hkconv.fails("evaluate", run)
    assert "category 'pink'" in hkconv.fails("train", "--resume", run)
    assert sorted(os.listdir()) == ["papers", "run"]


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


def test_a_file_that_would_run_a_command_is_refused(hkconv):
    torch.save(Bomb(), "graphs.pt")
    assert "is refused: it asks for posix.mkdir" in hkconv.fails("train", "graphs.pt")
    assert os.listdir() == ["graphs.pt"]


def test_predictions_to_standard_output_alone(hkconv, run):
    result = hkconv("predict", run, "--out", "-")
    assert result.exit_code == 0 and result.stderr.startswith("gcn split 0 seed 0, validation accuracy ")
    rows = list(csv.reader(result.stdout.splitlines()))
    assert rows[0] == ["id", "class", "p_high", "p_low", "p_mid"] and len(rows) == 61
    assert not Path("predictions.csv").exists()


def test_newcomers_are_encoded_as_those_that_were_trained_on(hkconv):
    """In a folder of their own with gaps and names of their own, and the same answers as beside all others."""
    people = write_people(Path("people"), count=120)
    arguments = ("--epochs", 20, "--num-splits", 1, "--models", "mlp", "--hidden-dim", 8, "--out", "run")
    assert hkconv("train", people, *arguments).exit_code == 0
    Path("new").mkdir()
    with open("people/nodes.csv", newline="", encoding="utf-8") as file:
        heading, *rows = csv.reader(file)
    with open("new/nodes.csv", "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([heading, *rows[80:]])
    Path("new/edges.csv").write_text("source,target\n")
    every, some = (hkconv("predict", "run", data, "--out", "-").stdout.splitlines()[1:] for data in ("people", "new"))
    assert len(some) == 40 and some == every[80:]


@pytest.mark.parametrize(("labels", "metric"), [("target", "R2"), ("questions", "ROC-AUC")])
def test_numbers_and_answers_from_a_first_look_to_prediction(hkconv, labels, metric):
    write_houses(Path("houses"), labels)

    def screen(*arguments):
        result = hkconv(*arguments)
        assert result.exit_code == 0, result.output
        return result.stdout

    assert ("a number to predict" if labels == "target" else "is big, has garden") in screen("datasets", "houses")
    assert f"validation {metric} %" in screen("advise", "houses", "--seconds", 0.1)
    assert ("with a number" if labels == "target" else "has garden yes") in screen("audit", "houses")
    quick = ("--epochs", 3, "--num-splits", 2, "--hidden-dim", 4, "--num-layers", 1)
    trained = screen("train", "houses", "--models", "mlp,gcn,hkn", *quick, "--refit", "--out", "run")
    assert f"test {metric} %" in trained and "refit: hkn on all 81 labels" in trained
    assert ("training mean" if labels == "target" else "constant score") in trained
    assert "All 6 checkpoints give their stored result." in screen("evaluate", "run")
    heading, *rows = screen("predict", "run", "--out", "-").splitlines()
    assert heading == ("id,target" if labels == "target" else "id,p_is big,p_has garden") and len(rows) == 90
    numbers = [float(cell) for row in rows for cell in row.split(",")[1:]]
    assert min(numbers) > 50_000 if labels == "target" else 0 <= min(numbers) <= max(numbers) <= 1
    assert "90 nodes" in screen("explore", "run")
    assert "best: found/best.yaml" in screen(
        *("search", "houses", "--model", "gcn", "--trials", 2, "--epochs", 2, "--num-splits", 1, "--batch", 2),
        *("--out", "found"),
    )


def test_every_task_of_the_catalog_is_predicted_to_standard_output(hkconv):
    quick = ("--epochs", 1, "--num-splits", 1, "--models", "gcn", "--hidden-dim", 4)
    for task, heading in (("node", "id,class,p_0,p_1,"), ("link", "source,target,p")):
        assert hkconv("train", "tree", "--task", task, *quick, "--out", task).exit_code == 0
        lines = hkconv("predict", task, "--out", "-").stdout.splitlines()
        assert lines[0].startswith(heading) and len(lines) == {"node": 972, "link": 1001}[task]
    assert not Path("predictions.csv").exists()
