"""``hkconv train``: trains models on a dataset and prints one table.

The options are the fields of :class:`~hkconv.tasks.recipe.Recipe`, read from there: one place says what a run
can be told, what each is for and what it is by default.
"""

import inspect
import shlex
from typing import TYPE_CHECKING, Any

import typer

from hkconv.cli.exit_codes import INTERRUPTED
from hkconv.cli.output import count, make_table, percent, print_table
from hkconv.cli.recipe_options import PANELS, option, recipe_options
from hkconv.data.catalog import check_name
from hkconv.errors import InputError
from hkconv.tasks.recipe import NO_REFIT, Recipe, check_run, make_recipe, read_recipe_file, upgraded

if TYPE_CHECKING:
    from hkconv.tasks.summary import RunSummary, Spread, Unlearned

# What a model that learned nothing stays at; other rules need no article.
RULES = {
    "majority class": "the majority class",
    "constant score": "a constant score",
    "training mean": "the training mean",
}
SAMPLERS = {"numba": "hkconv (Numba)", "pyg-lib": "PyG (pyg-lib)", "torch-sparse": "PyG (torch-sparse)"}


def train(recipe: str | None, resume: str | None, refit: bool | None, **options: Any) -> None:
    """Train HKN and other models on the same splits.

    Prints one table: by default of HKN and, for scale, an MLP and a GCN.
    Without a dataset: on a tree that needs no file and no network. Own data: a folder with nodes.csv and edges.csv or
    in TU format, or a file .pt, .npz or, of SMILES, .csv. Options override the recipe.

    Example: hkconv train texas --num-splits 10 --models hkn,gcn
    """
    given = {name: value for name, value in options.items() if value is not None}
    chosen = _choose_recipe(recipe, resume, given)
    check_name(chosen.data.dataset)
    if refit and chosen.data.task == "link":
        raise InputError(NO_REFIT)

    from hkconv.cli.progress import TrainProgress
    from hkconv.engine.distributed import find_place
    from hkconv.tasks.run import train_run

    with TrainProgress() as reporter:
        summary = train_run(chosen, reporter, resume=resume is not None)
    if find_place().rank == 0:
        _print_summary(summary)
    if summary.interrupted:
        raise typer.Exit(INTERRUPTED)
    if refit and find_place().rank == 0:
        _refit(str(summary.folder))


def _refit(folder: str) -> None:
    from hkconv.cli.progress import status
    from hkconv.tasks.refit import refit_run

    with status("training on all labels"):
        found = refit_run(folder)
    if found is None:
        raise typer.Exit(INTERRUPTED)
    extent = f"{count(found.labels, 'label')}, {count(found.epochs, 'epoch')}"
    typer.echo(f"refit: {found.model} on all {extent}; hkconv predict, export and explore take it")


def _choose_recipe(file: str | None, resume: str | None, given: dict[str, Any]) -> Recipe:
    values = {} if file is None else upgraded(read_recipe_file(file))
    if resume is None:
        return make_recipe({**values, **given})
    if "out" in given:
        raise InputError("out cannot be given with resume: the run goes on in its own folder")
    check_run(resume)
    if file is None:
        from hkconv.tasks.run import read_recipe

        values = read_recipe(resume).flat()
    return make_recipe({**values, **given, "out": resume})


def _signature() -> inspect.Signature:
    """The signature that typer reads: the dataset, an option for each other field, and three of the command's own."""
    own = [
        _own_option("recipe", str, "--recipe", "YAML file with any of the options."),
        _own_option("resume", str, "--resume", "Folder of an unfinished run to go on with."),
        _own_option("refit", bool, "--refit", "At the end train the chosen settings on all labels, to predict with."),
    ]
    return inspect.Signature([*recipe_options(Recipe), *own])


def _own_option(name: str, kind: type, flag: str, help: str) -> inspect.Parameter:
    return option(name, kind, typer.Option(flag, help=help, show_default=False, rich_help_panel=PANELS["runtime"]))


train.__signature__ = _signature()  # type: ignore[attr-defined]  # inspect looks for it, and typer asks inspect


def _print_summary(summary: "RunSummary") -> None:
    has_ap = any(row.test_ap is not None for row in summary.models)
    scores = (f"test {summary.metric} %", *(("test AP %",) if has_ap else ()), "validation %")
    table = make_table("model", *scores, "parameters", "epochs", "seconds")
    for row in summary.models:
        tests = [_spread(spread) for spread in (row.test, row.test_ap) if spread is not None]
        sizes = (f"{row.parameters:,}", f"{row.mean_epochs:.0f}", f"{row.seconds:.1f}")
        table.add_row(row.model, *tests, _spread(row.val), *sizes)
    table.add_row(summary.chance_rule, _spread(summary.chance))
    print_table(table)
    for line in _footer(summary):
        typer.echo(line)


def _spread(spread: "Spread") -> str:
    mean = percent(spread.mean)
    return mean if spread.deviation is None else f"{mean} ± {percent(spread.deviation)}"


def _footer(summary: "RunSummary") -> list[str]:
    recipe, dataset = summary.recipe, summary.dataset
    optim = recipe.optim
    repeats = f"{count(recipe.data.num_splits, 'split')} x {count(optim.seeds, 'seed')} (from seed {optim.seed})"
    lines = [
        f"{dataset['name']}: {dataset['task']} task, {dataset['source']}",
        f"protocol {dataset['protocol']}, mean ± deviation of {repeats}",
        f"device {summary.device}",
        f"files: {summary.folder}",
        f"check: hkconv evaluate {shlex.quote(str(summary.folder))}",
    ]
    if "overlap" in dataset:
        shares = (f"{percent(share)} % of {name}" for name, share in dataset["overlap"].items())
        lines.insert(2, f"overlap of the splits: {', '.join(shares)}")
    lines += [f"data: {note}" for note in summary.notes]
    lines += [f"guard: {result.cell}: {result.guard}" for result in summary.cells if result.guard]
    lines += [_unlearned_line(entry, summary.chance_rule) for entry in summary.unlearned]
    if summary.sampler is not None and optim.neighbors is not None:
        sizes = ", ".join("all" if number < 0 else str(number) for number in optim.neighbors)
        batches = f"batches of {count(optim.batch_size, 'node')}, {sizes} neighbours a layer"
        lines.insert(2, f"{batches}, sampled by {SAMPLERS[summary.sampler]}")
    if not summary.interrupted:
        return [*lines, *_next_steps(summary)]
    kept = [str(result.cell) for result in summary.cells if result.interrupted]
    best = f"; {kept[0]} kept its best weights" if kept else ""
    return [
        f"interrupted: the table shows what had finished{best}",
        *lines,
        f"go on: hkconv train --resume {shlex.quote(str(summary.folder))}",
    ]


def _next_steps(summary: "RunSummary") -> list[str]:
    """Commands to go on with, of those that can do something with the run."""
    from hkconv import models
    from hkconv.data.own.loading import is_own
    from hkconv.models.hyperbolic_network import HyperbolicNetwork

    data, folder = summary.recipe.data, shlex.quote(str(summary.folder))
    best = max(summary.models, key=lambda row: row.val.mean).model
    task = "" if data.task is None else f" --task {data.task}"
    own = f" {shlex.quote(data.dataset)}" if is_own(data.dataset) else ""
    steps = [f"predict: hkconv predict {folder}{own}"]
    if any(issubclass(models.find(row.model), HyperbolicNetwork) for row in summary.models):
        steps.append(f"explore: hkconv explore {folder}")
    return [*steps, f"search: hkconv search {shlex.quote(data.dataset)} --model {best}{task}"]


def _unlearned_line(entry: "Unlearned", rule: str) -> str:
    extent = f"{entry.trainings} of {count(entry.finished, 'training')}"
    return f"{entry.model} learned nothing ({extent} at {RULES.get(rule, rule)}); try {', '.join(entry.remedies)}"
