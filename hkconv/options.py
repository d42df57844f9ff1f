"""Groups of checked options: what each field accepts, what it is for, and how its value is read from text.

From a field come its check, its key in a YAML file, the option of a command and its help. The groups are defined by
their owners: :class:`hkconv.data.options.DataOptions`, :class:`hkconv.models.options.ModelOptions`,
:class:`hkconv.engine.settings.OptimOptions` and :class:`hkconv.engine.settings.RuntimeOptions`. Nothing here imports
PyTorch, so that the command line starts quickly.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import cache
from typing import Any, Self

from hkconv.errors import InputError, did_you_mean, nearest_name, unknown_name


@dataclass(frozen=True)
class Interval:
    """Range of a number; every number that a person can give has one.

    Args:
        least, most: its ends.
        above: whether the least is left out.
        below: whether the most is left out.
    """

    least: float
    most: float
    above: bool = False
    below: bool = False

    def __contains__(self, value: float) -> bool:
        """Return whether a number lies within; NaN lies nowhere."""
        return (self.least < value if self.above else self.least <= value) and (
            value < self.most if self.below else value <= self.most
        )

    def __str__(self) -> str:
        start = "above" if self.above else "of at least"
        return f"{start} {_shown(self.least)} and {'below' if self.below else 'at most'} {_shown(self.most)}"

    def check(self, name: str, value: Any) -> Any:
        """Return a number, or raise an :class:`InputError` if it lies elsewhere or is none.

        Args:
            name: how the error calls it.
            value: a whole number where both ends are, else any.
        """
        kind, noun = (int, "whole number") if type(self.least) is type(self.most) is int else (float, "number")
        converted = _convert(value, kind)
        if converted is None or converted not in self:
            raise InputError(f"{name} must be a {noun} {self}, got {value!r}")
        return converted


def _shown(end: float) -> str:
    return str(int(end)) if isinstance(end, int) or (end == int(end) and abs(end) < 1e15) else f"{end:g}"


# What several groups and commands can be told; the ends leave room for what anybody has tried.
SEED = Interval(0, 2**63 - 1)
CURVATURE = Interval(-1e6, -1e-6)
COUNT = Interval(1, 10**9)
WIDTH = Interval(1, 65_536)
LAYERS = Interval(1, 1000)
KERNELS = Interval(1, 1000)
REPEATS = Interval(1, 10_000)
JOBS = Interval(1, 1024)
BEAM = Interval(1, 1000)
PENALTY = Interval(0.0, 100.0)
SAMPLE = Interval(4, 10**6)
PORT = Interval(0, 65_535)
RATE = Interval(0.0, 1.0, below=True)
POSITIVE = Interval(0.0, 1e9, above=True)
NOT_NEGATIVE = Interval(0.0, 1e9)
# Where a learning rate is too large is for the guard of a training to find out; float32 must hold it.
STEP_SIZE = Interval(0.0, 1e20, above=True)


@dataclass(frozen=True)
class Rule:
    """Accepted values of a field.

    Args:
        kind: ``int``, ``float``, ``bool``, ``str``, ``tuple`` (of names) or ``list`` (of whole numbers; they become a
            tuple).
        accepts: the accepted values in words, for the error message.
        test: whether a value of the right kind is accepted; it may raise an :class:`InputError` that says more.
        help: what the field is for, for ``--help``.
        optional: whether None is accepted; text may say it as ``none``, unless that is one of the choices.
        choices: the accepted words, where there are few.
        interval: range of a number, or of each of a list; None for what is no number.
    """

    kind: type
    accepts: str
    test: Callable[[Any], bool]
    help: str
    optional: bool = False
    choices: tuple[str, ...] = ()
    interval: Interval | None = None

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
            guess = nearest_name(value, self.choices)
            hint = f"; did you mean {guess!r}?" if guess else ""
            raise InputError(f"{key} must be {accepts}, got {value!r}{hint}")
        return converted


def _convert(value: Any, kind: type) -> Any:
    """``value`` as ``kind``, or None where it is something else."""
    if kind is tuple and value in (None, "", "none"):
        return ()
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


def whole(default: int | None, interval: Interval, help: str, *, optional: bool = False) -> Any:
    """Return a field for a whole number within a range."""
    return _numeric(int, default, f"a whole number {interval}", interval, help, optional)


def number(default: float | None, interval: Interval, help: str, *, optional: bool = False) -> Any:
    """Return a field for a number within a range."""
    return _numeric(float, default, f"a number {interval}", interval, help, optional)


def _numeric(kind: type, default: Any, accepts: str, interval: Interval, help: str, optional: bool) -> Any:
    return rule_field(default, Rule(kind, accepts, interval.__contains__, help, optional, interval=interval))


def flag(default: bool, help: str) -> Any:
    """Return a field for true or false."""
    return rule_field(default, Rule(bool, "true or false", lambda _: True, help))


def choice(default: str | None, choices: tuple[str, ...], help: str, *, optional: bool = False) -> Any:
    """Return a field for one of a few words."""
    accepts = " or ".join(choices)
    return rule_field(default, Rule(str, accepts, lambda value: value in choices, help, optional, choices))


def names(default: tuple[str, ...], noun: str, known: Collection[str], help: str, *, least: int = 0) -> Any:
    """Return a field for different names out of some, at least so many; a single one is called ``noun``."""

    def are_accepted(given: tuple[str, ...]) -> bool:
        for name in given:
            if name not in known:
                raise unknown_name(noun, name, known)
        return least <= len(given) == len(set(given))

    accepts = f"{'one or more' if least else 'some'} of {', '.join(known)}, each once"
    return rule_field(default, Rule(tuple, accepts, are_accepted, help))


def text(default: str | None, accepts: str, help: str, *, optional: bool = False) -> Any:
    """Return a field for text that is not empty and that the path of a file could hold."""
    return rule_field(default, Rule(str, accepts, _is_text, help, optional))


def _is_text(value: str) -> bool:
    # Half of a pair of surrogates, which JSON can write, is no character.
    return value != "" and "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)


def rule_field(default: Any, rule: Rule) -> Any:
    """Return a field of a dataclass with its rule."""
    return field(default=default, metadata={"rule": rule})


def rule_of(entry: Field) -> Rule:
    """Return the rule of a field."""
    return entry.metadata["rule"]


def check_fields(values: Any) -> None:
    """Replace every field of a frozen dataclass that has a rule by its checked value."""
    for entry in fields(values):
        if "rule" in entry.metadata:
            object.__setattr__(values, entry.name, rule_of(entry).check(entry.name, getattr(values, entry.name)))


class Options:
    """Base of a group: a frozen dataclass of fields with rules and of groups, in which a name occurs once."""

    def __post_init__(self) -> None:
        check_fields(self)

    @classmethod
    @cache
    def groups(cls) -> dict[str, type["Options"]]:
        """Its fields that are groups."""
        kinds = {entry.name: entry.type for entry in fields(cls)}  # type: ignore[arg-type]  # a subclass is a dataclass
        return {name: kind for name, kind in kinds.items() if isinstance(kind, type) and issubclass(kind, Options)}

    @classmethod
    @cache
    def options(cls) -> dict[str, Field]:
        """Its other fields and those of its groups by their names, in the order of the groups."""
        found: dict[str, Field] = {}
        for entry in fields(cls):  # type: ignore[arg-type]
            found |= cls.groups()[entry.name].options() if entry.name in cls.groups() else {entry.name: entry}
        return found

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The group with some values by the names of its options; values of others are left alone."""
        own = {entry.name: values[entry.name] for entry in fields(cls) if entry.name in values}  # type: ignore[arg-type]
        return cls(**{**own, **{name: inner.of(values) for name, inner in cls.groups().items()}})

    @classmethod
    def flattened(cls, values: Mapping[str, Any], where: str, also: Collection[str] = ()) -> dict[str, Any]:
        """Values by the names of fields, unchecked, from some by those names or in mappings by the names of groups.

        Args:
            values: such as ``{"lr": 0.1}`` or ``{"optim": {"lr": 0.1}}``.
            where: what they are of, for errors.
            also: further names that are accepted, in any group.

        Returns:
            The values; an :class:`InputError` names an unknown key with the nearest known one.
        """
        flat: dict[str, Any] = {}
        for key, value in values.items():
            if key in cls.groups() and isinstance(value, Mapping):
                found = cls.groups()[key].flattened(value, f"{key} of {where}", also)
            elif key in cls.options() or key in also:
                found = {key: value}
            elif key in cls.groups():
                raise InputError(f"{key} of {where} must hold keys and values, got {value!r}")
            else:
                raise InputError(f"unknown key {key!r} in {where}; {did_you_mean(key, cls.options())}")
            for name in found:
                if name in flat:
                    raise InputError(f"{name} is given twice in {where}")
            flat |= found
        return flat

    def flat(self) -> dict[str, Any]:
        """All values by the names of fields, as JSON can hold them."""
        found: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, Options):
                found |= value.flat()
            else:
                found[name] = list(value) if isinstance(value, tuple) else value
        return found

    def replace(self, **changes: Any) -> Self:
        """The same with other values of some fields, of those of its groups too."""
        return self.of({**self.flat(), **self.flattened(changes, type(self).__name__)})
