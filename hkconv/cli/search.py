"""``hkconv search``: looks for good settings of a model on validation data and writes the best as a recipe."""

import inspect
import shlex
from typing import TYPE_CHECKING, Any

import typer

from hkconv.cli.exit_codes import INTERRUPTED
from hkconv.cli.output import count, make_table, percent, print_table
from hkconv.cli.recipe_options import one_of, option, ranged, recipe_options
from hkconv.cli.reproduce import BATCH
from hkconv.data.catalog import check_name
from hkconv.options import COUNT, JOBS
from hkconv.tasks.recipe import Recipe, make_recipe, read_recipe_file, upgraded

if TYPE_CHECKING:
    from hkconv.experiments.tuner import SearchResult

# A search is for one model and trains it once on a split; a trial that was stopped is replaced.
NOT_OPTIONS = ("models", "seeds", "keep_every", "log")

SHOWN_TRIALS = 5


def search(
    model: str | None,
    space: str | None,
    trials: int | None,
    jobs: int | None,
    batch: int | None,
    storage: str | None,
    study: str | None,
    recipe: str | None,
    **options: Any,
) -> None:
    """Search good settings of a model on validation data.

    Test data stays hidden. Options fix what they name, and the rest of the
    space is searched. What was stopped goes on by the same command. Bad trials
    are cut short, but not while several of their splits are trained at once,
    see --batch.

    Example: hkconv search texas --space wide --trials 100 --jobs 4
    """
    given = {name: value for name, value in options.items() if value is not None}
    values = {} if recipe is None else upgraded(read_recipe_file(recipe))
    # The recipe of an earlier run may hold these; a search has its own.
    values = {name: value for name, value in values.items() if name not in NOT_OPTIONS}
    model = "hkn" if model is None else model
    chosen = make_recipe({**values, **given, "models": [model]})
    check_name(chosen.data.dataset)

    from hkconv.cli.progress import SearchProgress
    from hkconv.experiments.tuner import plan_search, run_search

    plan = plan_search(chosen, space or "grid", fixed=tuple(given), storage=storage, study=study, batch=batch)
    with SearchProgress() as progress:
        result = run_search(plan, 50 if trials is None else trials, 1 if jobs is None else jobs, progress.trial_ended)
    _print_result(result)
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)


def _signature() -> inspect.Signature:
    """The signature that typer reads: the dataset, the search's own options, and an option for each other field."""
    own = [
        option("model", str, typer.Option(help="Model to tune.", show_default="hkn")),
        option(
            "space",
            str,
            one_of(("grid", "wide"), help="The paper's grid, or wide ranges and levers.", show_default="grid"),
        ),
        option("trials", int, ranged(COUNT, help="Trials in all, earlier ones included.", show_default="50")),
        option("jobs", int, ranged(JOBS, help="Processes that train at the same time.", show_default="1")),
        option("batch", int, BATCH),
        option(
            "storage",
            str,
            typer.Option(help="Database URL for many machines, else an SQLite file in out.", show_default=False),
        ),
        option("study", str, typer.Option(help="Name of the study in the storage.", show_default=False)),
        option("recipe", str, typer.Option(help="YAML file for what is not searched.", show_default=False)),
    ]
    dataset, *others = recipe_options(Recipe, without=(*NOT_OPTIONS, "out"))
    out = option("out", str, typer.Option(help="Folder of the search; else one in searches/.", show_default=False))
    return inspect.Signature([dataset, *own, out, *others])


search.__signature__ = _signature()  # type: ignore[attr-defined]  # inspect looks for it, and typer asks inspect


def _print_result(result: "SearchResult") -> None:
    plan = result.search
    if result.best:
        shown = result.best[:SHOWN_TRIALS]
        table = make_table("", *(f"trial {trial.number}" for trial in shown))
        table.add_row(f"validation {result.metric} %", *(percent(trial.value) for trial in shown))
        for name in plan.space:
            table.add_row(name, *(_shown(trial.params[name]) for trial in shown))
        print_table(table)
    recipe = plan.recipe
    repeats = f"mean of {count(recipe.data.num_splits, 'split')}, seed {recipe.optim.seed}"
    states = ", ".join(f"{number} {state}" for state, number in result.counts.items())
    typer.echo(f"{recipe.data.dataset}, model {plan.model}: trials {states}; {repeats}")
    if result.interrupted:
        typer.echo("interrupted: the same command goes on")
    if result.best:
        path = plan.folder / "best.yaml"
        typer.echo(f"best: {path}")
        typer.echo(f"train: hkconv train --recipe {shlex.quote(str(path))}")


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.3g}" if isinstance(value, float) else str(value).lower()
