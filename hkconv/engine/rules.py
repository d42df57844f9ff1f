"""Checked fields of a dataclass: what each accepts, what it is for, and how its value is read from text.

From these come the checks of a recipe, the options of a command and their help, in one place.
"""

import math
from collections.abc import Callable
from dataclasses import Field as DataclassField
from dataclasses import dataclass, field, fields
from typing import Any

from hkconv.errors import InputError


@dataclass(frozen=True)
class Rule:
    """What a field accepts.

    Args:
        kind: ``int``, ``float``, ``bool``, ``str``, ``tuple`` (of names) or ``list`` (of whole numbers; they become a
            tuple).
        accepts: the accepted values in words, for the error message.
        test: whether a value of the right kind is accepted.
        help: what the field is for, for ``--help``.
        optional: whether None is accepted; text may say it as ``none``, unless that is one of the choices.
        choices: the accepted words, where there are few.
    """

    kind: type
    accepts: str
    test: Callable[[Any], bool]
    help: str
    optional: bool = False
    choices: tuple[str, ...] = ()

    def check(self, key: str, value: Any) -> Any:
        """The value as the field's kind.

        Args:
            key: name of the field.
            value: what the user gave; numbers may come as text, for YAML reads ``1e-3`` as text.

        Returns:
            The value; an :class:`InputError` if it is not accepted.
        """
        if value is None and self.optional:
            return None
        if value == "none" and self.optional and "none" not in self.choices:
            return None
        converted = _convert(value, self.kind)
        if converted is None or not self.test(converted):
            accepts = f"{self.accepts} or none" if self.optional and "none" not in self.choices else self.accepts
            raise InputError(f"{key} must be {accepts}, got {value!r}")
        return converted


def _convert(value: Any, kind: type) -> Any:
    """``value`` as ``kind``, or None where it is something else."""
    if kind is tuple:
        names = value.split(",") if isinstance(value, str) else value
        is_list = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
        return tuple(name.strip() for name in names) if is_list else None
    if kind is list:
        return _whole_numbers(value.split(",") if isinstance(value, str) else value)
    if kind is float and isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            return float(value)
        except (ValueError, OverflowError):
            return None
    # A bool is an int to Python, but not to a person who writes `epochs: yes`.
    return value if type(value) is kind else None


def _whole_numbers(values: Any) -> tuple[int, ...] | None:
    """Whole numbers, or text that says some, as a tuple."""
    if not isinstance(values, list | tuple) or not all(type(value) in (int, str) for value in values):
        return None
    try:
        return tuple(int(value) for value in values)
    except ValueError:
        return None


def whole(default: int | None, least: int, help: str, *, optional: bool = False) -> Any:
    """A whole number of at least ``least``."""
    accepts = f"a whole number of at least {least}"
    return rule_field(default, Rule(int, accepts, lambda value: value >= least, help, optional))


def number(
    default: float | None, accepts: str, test: Callable[[float], bool], help: str, *, optional: bool = False
) -> Any:
    """A finite number that passes a test."""
    return rule_field(default, Rule(float, accepts, lambda value: math.isfinite(value) and test(value), help, optional))


def flag(default: bool, help: str) -> Any:
    """True or false."""
    return rule_field(default, Rule(bool, "true or false", lambda _: True, help))


def choice(default: str | None, choices: tuple[str, ...], help: str, *, optional: bool = False) -> Any:
    """One of a few words."""
    accepts = " or ".join(choices)
    return rule_field(default, Rule(str, accepts, lambda value: value in choices, help, optional, choices))


def text(default: str | None, accepts: str, help: str, *, optional: bool = False) -> Any:
    """Text that is not empty and that the name of a file could hold."""
    return rule_field(default, Rule(str, accepts, _is_text, help, optional))


def _is_text(value: str) -> bool:
    # Half of a pair of surrogates, which JSON can write, is no character.
    return value != "" and "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)


def rule_field(default: Any, rule: Rule) -> Any:
    """A field of a dataclass with its rule."""
    return field(default=default, metadata={"rule": rule})


def rule_of(entry: DataclassField) -> Rule:
    """What a field accepts."""
    return entry.metadata["rule"]


def check_fields(values: Any) -> None:
    """Replace every field of a frozen dataclass by its checked value.

    Args:
        values: an instance, all of whose fields have rules.
    """
    for entry in fields(values):
        object.__setattr__(values, entry.name, rule_of(entry).check(entry.name, getattr(values, entry.name)))
