import json
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from hkconv.data.catalog import CATALOG
from hkconv.errors import InputError
from hkconv.experiments import store, training, tuner
from hkconv.experiments.recipe_files import RECIPES, read_table, read_tuned
from hkconv.experiments.reproduce import Order
from hkconv.experiments.spaces import Budget, read_tuning
from hkconv.experiments.tables import Choice, Execution, list_cells
from hkconv.experiments.tuner import find_best, list_trials, tune, write_tuned

RECORDS = Path(__file__).parents[2] / "results" / "records"
# Systems that came after the stored trials.
# Every dataset has trials of these; LINKX and GMT are in one table each.
FIRST = {"HKN", "HKN (views)", "MLP", "GCN", "GAT", "GraphSAGE", "GCNII", "GIN", "HGCN", "H2H-GCN", "HyboNet", "WLHN"}
FIRST |= {"LINKX", "GMT"}
NEVER = {"node": {"GMT"}, "graph": {"LINKX"}}
SPACE = "trials: 1\nnum_splits: 1\nspace: {}\nown: {}\n"


@pytest.fixture
def order(recipes, tmp_path) -> Order:
    return Order(
        ("node",), Choice(systems=("GCN", "HKN")), Execution("cpu"), results=tmp_path / "records", recipes=recipes
    )


def trials_of(recipes, label, **options):
    found = list_trials(read_tuning("node", recipes, **options), read_table("node", recipes))
    return found["tree", "clean", label]


def test_every_system_meets_the_same_draws(recipes):
    mlp, hkn = (trials_of(recipes, label) for label in ("MLP", "HKN"))
    assert [trial.drawn for trial in mlp] == [
        {name: value for name, value in trial.drawn.items() if name != "kernel_size"} for trial in hkn
    ]
    assert len(mlp) == 4 and mlp[0].drawn == {}
    assert len({json.dumps(trial.drawn) for trial in trials_of(recipes, "HKN", trials=40)}) > 15
    # More trials are the same ones, and more.
    assert [trial.drawn for trial in trials_of(recipes, "HKN", trials=9)[:4]] == [trial.drawn for trial in hkn]


def test_a_system_s_own_values_replace_those_of_all(recipes):
    assert {trial.drawn["lr"] for trial in trials_of(recipes, "GCN", trials=20)[1:]} == {0.001}


def test_a_trial_changes_what_it_drew_alone(recipes):
    given = {cell.variant: cell.recipe for cell in list_cells(read_table("node", recipes))}
    for trial in trials_of(recipes, "HKN"):
        assert [cell.split for cell in trial.cells] == [0, 1]
        for cell in trial.cells:
            assert cell.recipe == given["HKN"].replace(**trial.drawn)


def test_edges_that_go_both_ways_have_one_reading(recipes):
    assert not CATALOG["tree"].one_way
    assert all("direction" not in trial.drawn for trial in trials_of(recipes, "MLP", trials=20))
    texas = [recipe for recipe in read_table("node") if recipe.dataset == "texas"]
    drawn = [trial.drawn for trial in list_trials(read_tuning("node"), texas)["texas", "clean", "HKN (views)"]]
    assert {settings.get("direction") for settings in drawn[1:]} == {"both", "in", "out"}
    # What the protocol fixes is not drawn.
    published = list_trials(read_tuning("node"), texas, Choice(protocols=("published",)))["texas", "published", "HKN"]
    assert not any({"direction", "normalize_features"} & set(trial.drawn) for trial in published)


def test_no_trial_is_given_test_data(order, monkeypatch):
    seen = []
    train_cell = training.train_cell

    def watched(cell, recipe, dataset, *rest):
        seen.extend(split.test for split in dataset.splits)
        return train_cell(cell, recipe, dataset, *rest)

    monkeypatch.setattr(training, "train_cell", watched)
    summary = tune(read_tuning("node", order.recipes), order)
    records, damaged = store.read(order.results, ["tuning-node"])
    assert set(seen) == {None} and len(records) == summary.added["tuning-node"] >= 12 and not damaged
    assert all(record["test"] is record["test_loss"] is None for record in records)


def test_a_tuning_goes_on_where_it_stopped(order):
    few, all_of_them = (read_tuning("node", order.recipes, trials=trials) for trials in (2, 4))
    first = tune(few, order)
    second = tune(all_of_them, order)
    assert second.stored["tuning-node"] == first.added["tuning-node"] > 0
    assert tune(all_of_them, order).added["tuning-node"] == 0


def scored(order, monkeypatch, score):
    """Trials that are not trained: their validation score and loss are what a function of their recipe says."""

    def record_of(cell):
        made = {**dict.fromkeys(("test", "test_loss", "best_epoch", "epochs", "parameters")), "seconds": 0.0}
        found = score(cell)
        if found is None:
            return {**cell.head(), "error": "diverged"}
        return {**cell.head(), **made, "metric": "accuracy", "val": found[0], "val_loss": found[1]}

    def trainer(*, test_is_hidden):
        assert test_is_hidden
        return record_of

    monkeypatch.setattr(tuner, "CellTrainer", trainer)
    plan = read_tuning("node", order.recipes)
    tune(plan, order)
    return {found.label: found for found in find_best(plan, order)}


def test_the_highest_mean_over_splits_is_best(order, monkeypatch):
    best_dropout = {0: 0.5, 1: 0.0}
    found = scored(
        order,
        monkeypatch,
        lambda cell: (cell.recipe.optim.lr + (cell.recipe.model.dropout == best_dropout[cell.split]), 1),
    )
    hkn, trials = found["HKN"], trials_of(order.recipes, "HKN")
    drawn = [trial.cells[0].recipe for trial in trials]
    highest = max(recipe.optim.lr + 0.5 * (recipe.model.dropout in (0, 0.5)) for recipe in drawn)
    assert hkn.score == pytest.approx(highest)
    assert (hkn.finished, hkn.trials, hkn.dataset, hkn.protocol) == (4, 4, "tree", "clean")


def test_among_equals_the_lowest_loss_then_the_first(order, monkeypatch):
    assert scored(order, monkeypatch, lambda cell: (0.5, 1.0))["HKN"].best.number == 0
    other = replace(order, results=order.results / "other")
    found = scored(other, monkeypatch, lambda cell: (0.5, -cell.recipe.model.hkn.kernel_size))["HKN"]
    assert found.best.drawn["kernel_size"] == max(
        trial.cells[0].recipe.model.hkn.kernel_size for trial in trials_of(other.recipes, "HKN")
    )


def test_settings_that_fail_are_not_best_and_unfinished_systems_have_none(order, monkeypatch):
    found = scored(order, monkeypatch, lambda cell: None if cell.recipe.model.hkn.kernel_size == 2 else (0.5, 1.0))
    assert found["HKN"].first is None and found["HKN"].finished < 4
    assert "HKN" not in [found.label for found in find_best(read_tuning("node", order.recipes, trials=9), order)]


def test_what_is_written_is_what_tables_then_train(order, monkeypatch):
    found = scored(
        order, monkeypatch, lambda cell: (cell.recipe.model.hkn.kernel_size + cell.recipe.model.dropout, 1.0)
    )
    write_tuned("node", [found["HKN"]], order.recipes)
    (path,) = write_tuned("node", [found["GCN"]], order.recipes)
    assert path == order.recipes / "tuned" / "node.yaml"
    cells = {cell.variant: cell.recipe for cell in list_cells(read_table("node", order.recipes))}
    for label in ("HKN", "GCN"):
        best = found[label].best
        assert cells[label] == best.cells[0].recipe.replace(device="auto")
    assert cells["MLP"].model.dropout != cells["HKN"].model.dropout or found["HKN"].best.drawn == {}


def test_some_datasets_have_a_budget_of_their_own(recipes):
    space = recipes / "tuning" / "node.yaml"
    space.write_text(space.read_text() + "budgets: {clean: {trials: 3}, clean/texas: {num_splits: 7}}\n")
    found = read_tuning("node", recipes)
    assert found.budget_of("clean", "tree") == Budget(3, 2)
    assert found.budget_of("clean", "texas") == Budget(4, 7)
    assert found.budget_of("published", "texas") == Budget(4, 2)
    assert len(trials_of(recipes, "MLP")) == 3
    # What is asked for goes before what the file says.
    asked = read_tuning("node", recipes, trials=5, num_splits=1)
    assert {asked.budget_of("clean", dataset) for dataset in ("tree", "texas", "cora")} == {Budget(5, 1)}


def settings_of(record) -> str:
    return store.training_identity({**record, "split": 0, "seed": 0})


@pytest.mark.parametrize("table", ["node", "graph"])
def test_the_settings_of_our_tables_are_what_the_stored_trials_chose(table):
    """Every system of a dataset has as many trials as the others, and the best of them is what was written.

    Trials are taken as they are on record: some are of a space that had two directions of edges. Systems without a
    trial have the settings of their recipe.
    """
    tuning = read_tuning(table)
    trials, trained = (store.read(RECORDS, [name])[0] for name in (store.TUNING + table, table))
    tried = {}
    for record in trials:
        place = record["dataset"], record["protocol"], record["variant"]
        tried.setdefault(place, {}).setdefault(settings_of(record), {}).setdefault("error" in record, []).append(record)
    planned = {
        (cell.recipe.data.dataset, cell.recipe.data.protocol, cell.variant): settings_of(cell.head())
        for cell in list_cells(read_table(table))
    }
    latest = {
        (record["dataset"], record["protocol"], record["variant"]): settings_of(record)
        for record in sorted(trained, key=lambda record: record["when"])
    }
    for place, found in tried.items():
        budget = tuning.budget_of(place[1], place[0])
        scored = [records[False] for records in found.values() if len(records.get(False, [])) >= budget.num_splits]
        assert len(found) == budget.trials, place
        best = max(scored, key=lambda records: [score(records, "val"), -score(records, "val_loss")])
        # What is no longer trained has its records alone.
        assert settings_of(best[0]) == (planned.get(place) or latest[place]), place
    for recipe in read_table(table):
        for protocol, tuned in read_tuned(table, recipe.dataset).items():
            assert set(tuned) == {label for label in recipe.systems if (recipe.dataset, protocol, label) in tried}
            assert {*tuned} | NEVER[table] | ({"HKN (views)"} if protocol == "published" else set()) >= FIRST
        assert "clean" in read_tuned(table, recipe.dataset)


def score(records, name):
    return fmean({record["split"]: record[name] for record in records}.values())


@pytest.mark.parametrize(
    "text, words",
    [
        ("trials: 4", "must hold trials, num_splits, space, own, got trials"),
        (
            "trials: 0.5\nnum_splits: 1\nspace: {}\nown: {}",
            "trials must be a whole number of at least 1 and at most 1000000000, got 0.5",
        ),
        ("trials: 1\nnum_splits: 1\nspace: {lr: 3}\nown: {}", "a space must hold a list of values for each field"),
        (
            "trials: 1\nnum_splits: 1\nspace: {lr: [-1]}\nown: {}",
            r"lr must be a number above 0 and at most 1e\+20, got -1",
        ),
        (f"{SPACE}budgets: 3", "budgets must hold trials or num_splits for each name, got 3"),
        (f"{SPACE}budgets: {{clean/txas: {{trials: 1}}}}", "for PROTOCOL or PROTOCOL/DATASET, got 'clean/txas'"),
        (f"{SPACE}budgets: {{clean: {{seeds: 1}}}}", "budget 'clean' must hold trials or num_splits, got 'seeds'"),
        (
            f"{SPACE}budgets: {{clean: {{trials: 0}}}}",
            "trials must be a whole number of at least 1 and at most 1000000000, got 0",
        ),
    ],
)
def test_a_wrong_space_is_refused(recipes, text, words):
    (recipes / "tuning" / "node.yaml").write_text(text)
    with pytest.raises(InputError, match=words):
        read_tuning("node", recipes)


def test_a_table_without_a_space_is_refused(recipes):
    with pytest.raises(InputError, match="table 'molecules' cannot be tuned; accepted: node"):
        read_tuning("molecules", recipes)
    assert sorted(path.stem for path in (RECIPES / "tuning").glob("*.yaml")) == ["graph", "links", "node"]
