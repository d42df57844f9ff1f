import json
import multiprocessing

import first_release
import pytest
from fuzzing import changed, damaged, fuzzed, input_errors_alone
from hypothesis import strategies as st

from hkconv.errors import InputError
from hkconv.experiments import store
from hkconv.experiments.store import append, failed, finished, identity, read, stored_tables, training_identity
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


def without_recipe(entry):
    return {key: value for key, value in entry.items() if key != "recipe"}


def write_json_lines(path, *lines):
    path.write_bytes(b"".join(line.encode(errors="surrogateescape") + b"\n" for line in lines))


def test_what_is_appended_is_read_back(tmp_path):
    given = [
        record(test=0.1 + 0.2, recipe={"lr": 0.01, "points": "random"}, device="cpu", when="today"),
        record(split=1, val=None, versions={"torch": "2"}, note={"said": 'a "word", another'}),
        {**failure(split=2), "error": "it said: a, b"},
        record(table="graph", quick=True, model="hkn", variant="HKN+root"),
    ]
    for entry in given:
        append(tmp_path / "new", entry)
    records, damaged = read(tmp_path / "new", ("node", "graph", "molecules"))
    assert list(map(without_recipe, records)) == list(map(without_recipe, given))
    assert list(map(identity, records)) == list(map(identity, given))
    assert (records[0]["recipe"]["lr"], records[0]["recipe"]["points"]) == (0.01, "random")
    assert damaged == []
    files = [path.relative_to(tmp_path / "new").as_posix() for path in (tmp_path / "new").rglob("*.*")]
    assert sorted(files) == ["graph/clean.csv", "graph/settings.jsonl", "node/clean.csv", "node/settings.jsonl"]
    assert stored_tables(tmp_path / "new").keys() == {"node", "graph"}
    assert read(tmp_path / "nowhere", ("node",)) == ([], [])


def test_a_row_refers_to_settings_that_stand_once(tmp_path):
    for split in range(3):
        append(tmp_path, record(split=split, device="cpu"))
    header, *rows = (tmp_path / "node" / "clean.csv").read_text().splitlines()
    assert header.startswith("dataset,protocol,system,split,seed,quick,test,val,") and len(rows) == 3
    base, *entries = map(json.loads, (tmp_path / "node" / "settings.jsonl").read_text().splitlines())
    assert base["id"] == "base" and base["recipe"]["lr"] == FIRST_RELEASE["lr"]
    assert {**entries[0], "id": ""} == {"id": "", "model": "gcn", "recipe": {"lr": 0.01}}
    assert {**entries[1], "id": ""} == {"id": "", "metric": "accuracy", "device": "cpu"}
    assert len(entries) == 2 and all(row.endswith(f"{entries[1]['id']},{entries[0]['id']}") for row in rows)


def test_settings_stay_what_they_were_when_a_default_changes(tmp_path, monkeypatch):
    append(tmp_path, record(split=0))
    monkeypatch.setitem(store._DEFAULTS, "batch_size", 5)
    append(tmp_path, record(split=1, recipe={"lr": 0.01, "batch_size": 5}))
    records, _ = read(tmp_path, ("node",))
    assert [entry["recipe"]["batch_size"] for entry in records] == [make_recipe({}).flat()["batch_size"], 5]


def test_a_figure_that_is_none_is_not_written(tmp_path):
    with pytest.raises(ValueError):
        append(tmp_path, record(test=float("nan")))
    assert not (tmp_path / "node").exists()


def test_records_of_the_first_release_are_read_too(tmp_path):
    write_json_lines(tmp_path / "node.jsonl", json.dumps(record(split=0)))
    append(tmp_path, record(split=1))
    records, damaged = read(tmp_path, ("node",))
    assert [entry["split"] for entry in records] == [0, 1] and not damaged
    assert stored_tables(tmp_path).keys() == {"node"}


@pytest.mark.parametrize("then, now", [({"undirected": False}, "in"), ({"undirected": True}, "both"), ({}, "both")])
def test_records_from_before_edges_had_a_direction_are_what_they_were(tmp_path, then, now):
    """In a folder whose settings are differences to those of then, and in JSON lines."""
    base = {"id": "base", "recipe": {**first_release.RECIPE, "undirected": True}}
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "settings.jsonl").write_text(json.dumps(base) + "\n")
    append(tmp_path, record(recipe=then))
    write_json_lines(tmp_path / "node.jsonl", json.dumps(record(recipe={**first_release.RECIPE, **then})))
    whole = {name: value for name, value in first_release.RECIPE.items() if name != "undirected"}
    today = [record(recipe={**whole, "direction": direction}) for direction in ("in", "out", "both")]
    for entry in today:
        append(tmp_path, entry)
    records, _ = read(tmp_path, ("node",))
    assert len({identity(entry) for entry in today}) == 3
    same = dict(zip(("in", "out", "both"), map(identity, today)))
    assert [identity(entry) for entry in records] == [same[word] for word in (now, now, "in", "out", "both")]


def test_options_that_are_gone_count_where_they_made_another_network(tmp_path):
    """Of HKN alone; and a record of today is not given those of a folder's settings of then."""
    base = {"id": "base", "recipe": {**first_release.RECIPE, "root": True}}
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "settings.jsonl").write_text(json.dumps(base) + "\n")
    today = [record(model=model, recipe=make_recipe(FIRST_RELEASE).flat()) for model in ("hkn", "gcn")]
    then = [{**entry, "recipe": {**first_release.RECIPE, "epochs": 200}} for entry in today]
    other = [
        {**entry, "recipe": {**entry["recipe"], name: value}}
        for entry in then
        for name, value in (("root", True), ("attention", "distance"), ("directions", True))
    ]
    for entry in (*today, *then, *other):
        append(tmp_path, entry)
    records, _ = read(tmp_path, ("node",))
    found = [identity(entry) for entry in records]
    assert found[:4] == [*map(identity, today)] * 2
    assert len(set(found[4:7]) - {found[0]}) == 3 and set(found[7:]) == {found[1]}


@pytest.mark.parametrize(
    "line, reason",
    [
        ('{"schema": 1, "tab', "not valid JSON"),
        ("\udcff", "not valid JSON"),
        ("[1, 2]", "not a JSON object"),
        ("{}", "'schema' is missing"),
        (json.dumps({**record(), "split": "0"}), "'split' is missing or not of type int"),
        (json.dumps({key: value for key, value in record().items() if key != "recipe"}), "'recipe' is missing"),
        (json.dumps({key: value for key, value in record().items() if key != "val"}), "'val' is missing"),
        (json.dumps(record(schema=2)), "schema 2, this hkconv reads 1"),
        (json.dumps(record(table="graph")), "a record of table 'graph' in the file of 'node'"),
        (json.dumps(record(test=None)), "'test' is no number: None"),
        (json.dumps(record(test=float("nan"))), "'test' is no number: nan"),
    ],
)
def test_a_damaged_line_of_the_first_release_is_reported_and_passed_over(tmp_path, line, reason):
    path = tmp_path / "node.jsonl"
    write_json_lines(path, json.dumps(record(split=0)), line, json.dumps(record(split=1)))
    records, (damage,) = read(tmp_path, ("node",))
    assert [entry["split"] for entry in records] == [0, 1]
    assert (damage.file, damage.line) == (path, 2) and reason in damage.reason


@pytest.mark.parametrize(
    "change, reason",
    [
        (lambda row: "\udcff" + row, "not valid CSV"),
        (lambda row: row[:-1], "are not in settings.jsonl"),
        (lambda row: row[:40], "values, not 21"),
        (lambda row: row.replace(",0.5,", ",half,"), "a value is no number"),
        (lambda row: row.replace(",0.5,", ",,"), "'test' is no number: None"),
        (lambda row: row.replace(",0.5,", ",NaN,"), "'test' is no number: nan"),
        (lambda row: row.replace("GCN,0", "GCN,0.5"), "'split' is missing or not of type int"),
    ],
)
def test_a_damaged_row_is_kept_reported_and_passed_over(tmp_path, change, reason):
    append(tmp_path, record(split=0))
    path = tmp_path / "node" / "clean.csv"
    row = path.read_text().splitlines()[1]
    with path.open("ab") as file:
        file.write(change(row).encode(errors="surrogateescape") + b"\n")
    before = path.read_bytes()
    append(tmp_path, record(split=1))
    records, (damage,) = read(tmp_path, ("node",))
    assert [entry["split"] for entry in records] == [0, 1]
    assert (damage.file, damage.line) == (path, 3)
    assert reason in damage.reason
    assert str(damage).startswith(f"{path}, line 3: ")
    assert path.read_bytes().startswith(before)


def test_damaged_settings_are_reported_with_the_rows_that_need_them(tmp_path):
    append(tmp_path, record(split=0))
    append(tmp_path, record(split=1, recipe={"lr": 0.5}))
    path = tmp_path / "node" / "settings.jsonl"
    path.write_text(path.read_text().replace('{"lr": 0.5}', "3"))
    records, damaged = read(tmp_path, ("node",))
    assert [entry["split"] for entry in records] == [0]
    assert [(damage.file.name, damage.line) for damage in damaged] == [("settings.jsonl", 4), ("clean.csv", 3)]
    # What is written anew can be read again.
    append(tmp_path, record(split=1, recipe={"lr": 0.5}))
    assert [entry["split"] for entry in read(tmp_path, ("node",))[0]] == [0, 1, 1]


def test_half_a_line_does_not_swallow_the_next(tmp_path):
    append(tmp_path, record(split=0))
    with (tmp_path / "node" / "clean.csv").open("ab") as file:
        file.write(b"texas,clean,GC")
    append(tmp_path, record(split=1))
    records, damaged = read(tmp_path, ("node",))
    assert [entry["split"] for entry in records] == [0, 1]
    assert [damage.line for damage in damaged] == [3]


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


def test_the_time_of_a_captured_training_is_another_and_its_score_the_same():
    plain, captured = ({"capture": False}, {"capture": True})
    times = [record(table="runtime", device="cuda:0", recipe=recipe) for recipe in ({}, plain, captured)]
    assert identity(times[0]) == identity(times[1]) != identity(times[2])
    assert len(finished(times)) == 2
    assert identity(record(recipe=plain)) == identity(record(recipe=captured))


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
    (tmp_path / "node" / "clean.csv").mkdir(parents=True)
    with pytest.raises(InputError, match=r"clean\.csv cannot be read"):
        read(tmp_path, ("node",))
    with pytest.raises(InputError, match=r"clean\.csv cannot be written"):
        append(tmp_path, record())


LINE = json.dumps(record()).encode()
ROWS = damaged(b"texas,clean,GCN,0,0,0,0.5,0.6,1.0,1.1,3,5,0.1,7,,,,,,,ab,cd")
ENTRIES = [{"id": "ab", "metric": "accuracy"}, {"id": "cd", "model": "gcn", "recipe": {"lr": 0.01}}]


def lines_of(sound, valid):
    return st.lists(damaged(valid) | changed(sound).map(lambda value: json.dumps(value).encode()), max_size=3)


@fuzzed(
    old=lines_of(record(), LINE),
    rows=st.lists(ROWS, max_size=3),
    entries=lines_of(ENTRIES[1], json.dumps(ENTRIES[1]).encode()),
)
def test_whatever_the_files_hold_only_input_errors_come_out(tmp_path, old, rows, entries):
    """What is read as a record can be counted, told from others and written again; the rest is reported."""
    (tmp_path / "node").mkdir(exist_ok=True)
    whole = [json.dumps(entry).encode() for entry in ENTRIES]
    files = {"node.jsonl": old, "node/clean.csv": rows, "node/settings.jsonl": [*entries, *whole]}
    for name, lines in files.items():
        (tmp_path / name).write_bytes(b"\n".join(lines))
    with input_errors_alone():
        records, damages = read(tmp_path, ["node"])
        lines = [line for found in files.values() for line in found]
        assert len(records) + len(damages) <= sum(line.count(b"\n") + 1 for line in lines)
        assert all(isinstance(identity(found), str) for found in records)
        finished(records), failed(records)
        assert all(str(damage) for damage in damages)
