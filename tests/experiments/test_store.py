import json
import multiprocessing
import os

import first_release
import pytest
from fuzzing import changed, damaged, fuzzed, input_errors_alone
from hypothesis import strategies as st

from hkconv.errors import InputError
from hkconv.experiments.store import append, failed, finished, identity, read, training_identity
from hkconv.models.options import HKNOptions
from hkconv.tasks.recipe import FIRST_RELEASE, Recipe, make_recipe


def record(**changes):
    values = {
        "schema": 1,
        "table": "node",
        "dataset": "texas",
        "protocol": "clean",
        "model": "gcn",
        "variant": "GCN",
        "split": 0,
        "seed": 0,
        "quick": False,
        "recipe": {"lr": 0.01},
        "metric": "accuracy",
        "test": 0.5,
        "val": 0.6,
        "test_loss": 1.0,
        "val_loss": 1.1,
        "best_epoch": 3,
        "epochs": 5,
        "seconds": 0.1,
        "parameters": 7,
    }
    return {**values, **changes}


def failure(**changes):
    return {**record(**changes), "error": "the training loss became nan"}


def append_many(folder, seed):
    for split in range(40):
        append(folder, record(seed=seed, split=split, note="x" * 5000))


def test_what_is_appended_is_read_back(tmp_path):
    append(tmp_path / "new", record(test=0.1 + 0.2))
    append(tmp_path / "new", record(table="graph"))
    records, damaged = read(tmp_path / "new", ("node", "graph", "molecules"))
    assert records == [record(test=0.30000000000000004), record(table="graph")]
    assert damaged == []
    assert sorted(os.listdir(tmp_path / "new")) == ["graph.jsonl", "node.jsonl"]
    assert read(tmp_path / "nowhere", ("node",)) == ([], [])


def test_a_figure_that_is_none_is_not_written(tmp_path):
    with pytest.raises(ValueError):
        append(tmp_path, record(test=float("nan")))
    assert not (tmp_path / "node.jsonl").exists()


@pytest.mark.parametrize(
    "line, reason",
    [
        ('{"schema": 1, "tab', "not valid JSON"),
        ("\udcff", "not valid JSON"),
        ("[1, 2]", "not a JSON object"),
        (json.dumps({**record(), "split": "0"}), "'split' is missing or not of type int"),
        (json.dumps({key: value for key, value in record().items() if key != "recipe"}), "'recipe' is missing"),
        (json.dumps({key: value for key, value in record().items() if key != "val"}), "'val' is missing"),
        (json.dumps(record(schema=2)), "schema 2, this hkconv reads 1"),
        (json.dumps(record(table="graph")), "a record of table 'graph' in the file of 'node'"),
        (json.dumps(record(test=None)), "'test' is no number: None"),
        (json.dumps(record(test=float("nan"))), "'test' is no number: nan"),
    ],
)
def test_a_damaged_line_is_kept_reported_and_passed_over(tmp_path, line, reason):
    append(tmp_path, record(split=0))
    path = tmp_path / "node.jsonl"
    with path.open("ab") as file:
        file.write(line.encode(errors="surrogateescape") + b"\n")
    before = path.read_bytes()
    append(tmp_path, record(split=1))
    records, (damage,) = read(tmp_path, ("node",))
    assert [entry["split"] for entry in records] == [0, 1]
    assert (damage.file, damage.line) == (path, 2)
    assert reason in damage.reason
    assert str(damage).startswith(f"{path}, line 2: ")
    assert path.read_bytes().startswith(before)


def test_half_a_line_does_not_swallow_the_next(tmp_path):
    append(tmp_path, record(split=0))
    with (tmp_path / "node.jsonl").open("ab") as file:
        file.write(b'{"schema": 1, "table": "no')
    append(tmp_path, record(split=1))
    records, damaged = read(tmp_path, ("node",))
    assert [entry["split"] for entry in records] == [0, 1]
    assert [damage.line for damage in damaged] == [2]


def test_two_processes_append_whole_lines(tmp_path):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=append_many, args=(tmp_path, seed)) for seed in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
    records, damaged = read(tmp_path, ("node",))
    assert damaged == []
    for seed in range(2):
        assert [entry["split"] for entry in records if entry["seed"] == seed] == list(range(40))


@pytest.mark.parametrize(
    "changes",
    [
        {"table": "ablations"},
        {"variant": "GCN again"},
        {"dataset": "cora"},
        {"protocol": "published"},
        {"split": 1},
        {"seed": 1},
        {"quick": True},
        {"recipe": {"lr": 0.02}},
        {"recipe": {"lr": 0.01, "epochs": 7}},
        {"recipe": {"lr": 0.01, "form": "views"}},
        {"recipe": {"lr": 0.01, "num_layers": 3}},
        {"recipe": Recipe().flat()},
    ],
)
def test_another_cell(changes):
    assert identity(record(**changes)) != identity(record())


def test_the_same_cell_elsewhere():
    whole = {**make_recipe(FIRST_RELEASE).flat(), "lr": 0.01}
    same = [
        record(test=0.9, commit="abc", device="cuda"),
        record(recipe={"lr": 0.01, "device": "cuda", "capture": True, "data": "/here", "num_splits": 10, "seeds": 3}),
        # A field that came later, or that the model does not use, was as in 0.1.0.
        record(recipe=whole),
        record(recipe={**first_release.RECIPE, "epochs": 200, "lr": 0.01}),
        record(recipe={"form": "paper", "lr": 0.01}),
        record(recipe={"kernel_size": HKNOptions.kernel_size, "lr": 0.01}),
    ]
    assert {identity(entry) for entry in same} == {identity(record())}


def test_a_training_may_stand_in_two_tables_but_a_time_belongs_to_its_device():
    other = record(table="ablations", variant="plain")
    assert training_identity(other) == training_identity(record())
    assert training_identity(record(seed=1)) != training_identity(record())
    times = [record(table="runtime", recipe={"capture": False}, device=device) for device in ("cpu", "cuda:0")]
    assert identity(times[0]) != identity(times[1])


def test_failures_are_those_that_have_not_succeeded():
    records = [
        failure(split=0),
        record(split=0),
        failure(split=1),
        record(split=2, test=0.1),
        record(split=2, test=0.2),
    ]
    assert [entry["split"] for entry in finished(records).values()] == [0, 2]
    assert finished(records)[identity(record(split=2))]["test"] == 0.1
    assert [entry["split"] for entry in failed(records).values()] == [1]


def test_a_folder_that_cannot_be_used(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="results must be a folder that can be written to"):
        append(tmp_path / "file", record())
    (tmp_path / "node.jsonl").mkdir()
    with pytest.raises(InputError, match=r"node\.jsonl cannot be read"):
        read(tmp_path, ("node",))
    with pytest.raises(InputError, match=r"node\.jsonl cannot be written"):
        append(tmp_path, record())


LINE = json.dumps(record()).encode()


@fuzzed(
    lines=st.lists(
        damaged(LINE) | changed(record()).map(lambda value: json.dumps(value).encode()) | st.just(LINE), max_size=4
    )
)
def test_whatever_a_file_holds_only_input_errors_come_out(tmp_path, lines):
    """What is read as a record can be counted, told from others and written again; the rest is reported."""
    (tmp_path / "node.jsonl").write_bytes(b"\n".join(lines))
    with input_errors_alone():
        records, damages = read(tmp_path, ["node"])
        assert len(records) + len(damages) <= sum(line.count(b"\n") + 1 for line in lines)
        assert all(isinstance(identity(found), str) for found in records)
        finished(records), failed(records)
        assert all(str(damage) for damage in damages)
