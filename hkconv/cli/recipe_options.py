"""The fields of :class:`~hkconv.tasks.recipe.Recipe` as options of a command, for typer to read."""

import inspect
from collections.abc import Callable, Collection
from dataclasses import Field
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from hkconv.errors import InputError
from hkconv.options import Interval, Options, rule_of
from hkconv.tasks.recipe import check_run

# Options of several commands.
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
DataFolder = Annotated[
    str | None, typer.Option(help="Folder of the datasets, else HKCONV_DATA or the cache.", show_default=False)
]

ALIASES = {"models": ["--model"]}
# Headings of the groups of a recipe in the help.
PANELS = {"data": "Data", "model": "Model", "optim": "Training", "runtime": "Running"}


class GroupedCommand(TyperCommand):
    """Command whose plain help lists its options group by group."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if record is not None:
                title = "Arguments" if param.param_type_name == "argument" else "Options"
                sections.setdefault(getattr(param, "rich_help_panel", None) or title, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def recipe_options(recipe: type[Options], without: Collection[str] = ()) -> list[inspect.Parameter]:
    """The options of a recipe as parameters of a command, group by group.

    Args:
        recipe: with groups alone.
        without: names of options to leave out.
    """
    return [
        recipe_option(entry, PANELS[group])
        for group, options in recipe.groups().items()
        for name, entry in options.options().items()
        if name not in without
    ]


def recipe_option(entry: Field, panel: str | None = None) -> inspect.Parameter:
    """A field of a recipe as an option; the dataset as an argument.

    Args:
        entry: the field.
        panel: heading in the help.

    Returns:
        A parameter that is None where the user says nothing, so that a recipe file shows through.
    """
    rule = rule_of(entry)
    kind = str if rule.kind in (tuple, list) else rule.kind
    if entry.name == "dataset":
        return option(entry.name, kind, typer.Argument(help=rule.help, show_default=str(entry.default)))
    name = entry.name.replace("_", "-")
    names = [f"--{name}/--no-{name}" if kind is bool else f"--{name}", *ALIASES.get(entry.name, [])]
    words = dict.fromkeys([*rule.choices, "none"] if rule.optional else rule.choices)
    info = typer.Option(
        *names,
        help=rule.help,
        show_default=_shown_default(name, entry.default),
        metavar="|".join(words) if rule.choices else None,
        rich_help_panel=panel,
    )
    return option(entry.name, kind, info)


def option(name: str, kind: type, info: Any) -> inspect.Parameter:
    """A parameter of a command that is None by default."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, info]
    )


def ranged(interval: Interval, *names: str, **info: Any) -> Any:
    """A command's own option for a number within a range; ``names`` and ``info`` as for ``typer.Option``."""
    return typer.Option(*names, callback=_check_in(interval), **info)


def ranged_argument(interval: Interval, **info: Any) -> Any:
    """A command's argument for a number, or several, within a range; ``info`` as for ``typer.Argument``."""
    return typer.Argument(callback=_check_in(interval), **info)


def one_of(choices: Collection[str], *names: str, **info: Any) -> Any:
    """A command's own option for one of a few words; ``names`` and ``info`` as for ``typer.Option``."""
    return typer.Option(*names, metavar="|".join(choices), callback=_check_among(choices), **info)


def run_argument(help: str) -> Any:
    """A command's argument for the folder of a run."""
    return typer.Argument(help=help, callback=_check_run, show_default=False)


def _check_run(folder: str) -> str:
    check_run(folder)
    return folder


def _check_among(choices: Collection[str]) -> Callable[..., Any]:
    def check(param: typer.CallbackParam, value: str | None) -> str | None:
        if value and value not in choices:
            raise InputError(f"{param.name} must be {' or '.join(choices)}, got {value!r}")
        return value

    return check


def _check_in(interval: Interval) -> Callable[..., Any]:
    def check(param: typer.CallbackParam, value: Any) -> Any:
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                interval.check(str(param.name), each)
        return value

    # For whoever wants to know the range of an option.
    check.interval = interval  # type: ignore[attr-defined]
    return check


def _shown_default(name: str, default: Any) -> str | bool:
    if default in (None, ()):
        return False
    if isinstance(default, bool):
        return name if default else f"no-{name}"
    return ",".join(default) if isinstance(default, tuple) else str(default)
