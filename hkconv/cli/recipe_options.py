"""The fields of :class:`~hkconv.tasks.recipe.Recipe` as options of a command, for typer to read."""

import inspect
from dataclasses import Field
from typing import Annotated, Any

import typer

from hkconv.options import rule_of

ALIASES = {"models": ["--model"]}


def recipe_option(entry: Field) -> inspect.Parameter:
    """A field of a recipe as an option; the dataset as an argument.

    Args:
        entry: the field.

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
    )
    return option(entry.name, kind, info)


def option(name: str, kind: type, info: Any) -> inspect.Parameter:
    """A parameter of a command that is None by default."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, info]
    )


def _shown_default(name: str, default: Any) -> str | bool:
    if default is None:
        return False
    if isinstance(default, bool):
        return name if default else f"no-{name}"
    return ",".join(default) if isinstance(default, tuple) else str(default)
