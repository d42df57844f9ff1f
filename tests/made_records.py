"""Records of trainings that nobody did, with the scores that a test needs."""

from hkconv.tasks.recipe import make_recipe

TEXAS_SIZES = {"train": 87, "val": 59, "test": 37}


def made_record(**changes):
    """A record as the results store has it; ``changes`` replace its fields."""
    recipe = make_recipe(dataset="texas", models=("hkn",)).flat()
    return {
        "schema": 1,
        "table": "node",
        "dataset": "texas",
        "protocol": "clean",
        "model": "hkn",
        "variant": "HKN",
        "split": 0,
        "seed": 0,
        "recipe": recipe,
        "metric": "accuracy",
        "test": 0.8,
        "val": 0.85,
        "test_loss": 0.5,
        "val_loss": 0.4,
        "best_epoch": 41,
        "epochs": 100,
        "seconds": 12.0,
        "peak_memory_bytes": 1000,
        "parameters": 4711,
        "dataset_info": {"name": "texas"},
        "device": "cpu",
        "versions": {"python": "3.11.0", "torch": "2.11.0"},
        "commit": "abc1234",
        "quick": False,
        "when": "2026-01-02T03:04:05+00:00",
        **changes,
    }


def made_cell(tests, vals=None, **changes):
    """One record for each split."""
    vals = tests if vals is None else vals
    return [
        made_record(split=split, test=test, val=val, **changes) for split, (test, val) in enumerate(zip(tests, vals))
    ]


def made_failure(**changes):
    """A record of a training that gave no score."""
    record = made_record(error="the loss became NaN in epoch 3", **changes)
    without = ("metric", "test", "val", "test_loss", "val_loss", "best_epoch", "epochs", "seconds", "parameters")
    return {name: value for name, value in record.items() if name not in without}


def made_time(seconds, **changes):
    """A record of the runtime table, which has no scores."""
    scores = ("val", "test_loss", "val_loss", "best_epoch", "epochs", "seconds", "parameters")
    return made_record(table="runtime", metric="seconds an epoch", test=seconds, **dict.fromkeys(scores), **changes)
