"""``hkconv train``: trains models on a dataset and prints one table.

The options are the fields of :class:`~hkconv.training.recipe.Recipe`, read from there: one place says what a run
can be told, what each is for and what it is by default.
"""

import inspect
import shlex
from dataclasses import Field, fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hkconv.cli.exit_codes import INTERRUPTED
from hkconv.cli.output import count, make_table, percent, print_table
from hkconv.errors import InputError
from hkconv.training.recipe import Recipe, make_recipe, read_recipe_file, rule_of

if TYPE_CHECKING:
    from hkconv.training.summary import RunSummary, Spread

ALIASES = {"models": ["--model"]}


def train(recipe: str | None, resume: str | None, **options: Any) -> None:
    """Train HKN and, for scale, an MLP and a GCN on the same splits, and print one table.

    Without a dataset: on a tree that needs no file and no network. Options override the recipe.

    Example: hkconv train texas --num-splits 10 --models hkn,gcn
    """
    given = {name: value for name, value in options.items() if value is not None}
    chosen = _choose_recipe(recipe, resume, given)

    from hkconv.cli.progress import ProgressReporter
    from hkconv.training.run import train_run

    with ProgressReporter() as reporter:
        summary = train_run(chosen, reporter, resume=resume is not None)
    _print_summary(summary)
    if summary.interrupted:
        raise typer.Exit(INTERRUPTED)


def _choose_recipe(file: str | None, resume: str | None, given: dict[str, Any]) -> Recipe:
    values = {} if file is None else read_recipe_file(file)
    if resume is None:
        return make_recipe({**values, **given})
    if "out" in given:
        raise InputError("out cannot be given with resume: the run goes on in its own folder")
    if file is None:
        from hkconv.training.run import read_recipe

        values = read_recipe(resume).as_dict()
    return make_recipe({**values, **given, "out": resume})


def _signature() -> inspect.Signature:
    """The signature that typer reads: the dataset, an option for each other field, and the two that name files."""
    recipe = _parameter("recipe", str, typer.Option(help="YAML file with any of the options.", show_default=False))
    resume = _parameter(
        "resume", str, typer.Option(help="Folder of an unfinished run to go on with.", show_default=False)
    )
    return inspect.Signature([*map(_field_parameter, fields(Recipe)), recipe, resume])


def _field_parameter(entry: Field) -> inspect.Parameter:
    rule = rule_of(entry)
    kind = str if rule.kind is tuple else rule.kind
    if entry.name == "dataset":
        return _parameter(entry.name, kind, typer.Argument(help=rule.help, show_default=entry.default))
    name = entry.name.replace("_", "-")
    names = [f"--{name}/--no-{name}" if kind is bool else f"--{name}", *ALIASES.get(entry.name, [])]
    words = [*rule.choices, "none"] if rule.optional else rule.choices
    option = typer.Option(
        *names,
        help=rule.help,
        show_default=_shown_default(name, entry.default),
        metavar="|".join(words) if rule.choices else None,
    )
    return _parameter(entry.name, kind, option)


def _shown_default(name: str, default: Any) -> str | bool:
    """What the help shows; the option's own default is None, so that a recipe shows through."""
    if default is None:
        return False
    if isinstance(default, bool):
        return name if default else f"no-{name}"
    return ",".join(default) if isinstance(default, tuple) else str(default)


def _parameter(name: str, kind: type, info: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, info]
    )


train.__signature__ = _signature()


def _print_summary(summary: "RunSummary") -> None:
    table = make_table("model", f"test {summary.metric} %", "validation %", "parameters", "epochs", "seconds")
    for row in summary.models:
        sizes = (f"{row.parameters:,}", f"{row.mean_epochs:.0f}", f"{row.seconds:.1f}")
        table.add_row(row.model, _spread(row.test), _spread(row.val), *sizes)
    table.add_row(summary.chance_rule, _spread(summary.chance))
    print_table(table)
    for line in _footer(summary):
        typer.echo(line)


def _spread(spread: "Spread") -> str:
    mean = percent(spread.mean)
    return mean if spread.deviation is None else f"{mean} ± {percent(spread.deviation)}"


def _footer(summary: "RunSummary") -> list[str]:
    recipe, dataset = summary.recipe, summary.dataset
    repeats = f"{count(recipe.num_splits, 'split')} x {count(recipe.seeds, 'seed')} (from seed {recipe.seed})"
    lines = [
        f"{dataset['name']}: {dataset['task']} task, {dataset['source']}",
        f"protocol {dataset['protocol']}, mean ± deviation of {repeats}, device {summary.device}",
        f"files: {summary.folder}",
        f"check: hkconv evaluate {shlex.quote(str(summary.folder))}",
    ]
    if "overlap" in dataset:
        shares = (f"{percent(share)} % of {name}" for name, share in dataset["overlap"].items())
        lines.insert(2, f"overlap of the splits: {', '.join(shares)}")
    if not summary.interrupted:
        return lines
    kept = [str(result.cell) for result in summary.cells if result.interrupted]
    best = f"; {kept[0]} kept its best weights" if kept else ""
    return [
        f"interrupted: the table shows what had finished{best}",
        *lines,
        f"go on: hkconv train --resume {shlex.quote(str(summary.folder))}",
    ]
