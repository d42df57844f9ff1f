"""Every number that a person can give has a range, from whichever door it comes."""

import inspect
import math
from dataclasses import replace
from typing import get_args

import pytest
from typer.models import ArgumentInfo
from typer.testing import CliRunner

from hkconv.cli.main import app
from hkconv.engine.settings import OptimOptions
from hkconv.errors import InputError
from hkconv.language.recipe import TranslationRecipe
from hkconv.options import Interval, rule_of
from hkconv.tasks.recipe import Recipe

NUMERIC = (int, float, list)
FIELDS = [
    pytest.param(group, name, id=f"{group.__name__}-{name}")
    for group in (Recipe, TranslationRecipe)
    for name, entry in group.options().items()
    if rule_of(entry).kind in NUMERIC
]
NEEDED = {TranslationRecipe: {"train": "a", "valid": "b"}}


def outside(interval):
    return [math.nan, math.inf, -math.inf, 10**30, -(10**30), interval.most + interval.most - interval.least + 1]


@pytest.mark.parametrize("group, name", FIELDS)
def test_a_field_refuses_what_is_out_of_its_range_and_takes_its_ends(group, name):
    rule = rule_of(group.options()[name])
    assert isinstance(rule.interval, Interval)
    for value in outside(rule.interval):
        with pytest.raises(InputError, match=f"^{name} must be [^\n]*, got "):
            rule.check(name, [value] if rule.kind is list else value)
        with pytest.raises(InputError):
            group.of({**NEEDED.get(group, {}), name: [value] if rule.kind is list else value})
    for end, excluded in ((rule.interval.least, rule.interval.above), (rule.interval.most, rule.interval.below)):
        assert excluded or rule.check(name, [end] if rule.kind is list else end) in (end, (end,))


def commands(typed, path=()):
    """The functions behind the commands, by what a user types."""
    for found in typed.registered_commands:
        yield (*path, found.name or found.callback.__name__.replace("_", "-")), found.callback
    for group in typed.registered_groups:
        yield from commands(group.typer_instance, (*path, group.name))


def numeric_options():
    for path, function in commands(app):
        for name, param in inspect.signature(function).parameters.items():
            kind, info = get_args(param.annotation)[:2]
            if {int, float, list[int]} & {kind, *get_args(kind)}:
                yield pytest.param(path, name, info, id="-".join((*path, name)))


OPTIONS = list(numeric_options())
# What else a command cannot do without.
NEEDED_WORDS = {
    ("probe",): ["run", "--treebank", "t"],
    ("tune",): ["node"],
    ("reproduce",): ["node"],
    ("points",): ["4", "2"],
    ("serve",): ["run"],
    ("translate", "train"): ["--train", "a", "--valid", "b"],
    ("translate", "run"): ["run"],
    **{("plot", name): ["run"] for name in ("training-curves", "class-distances", "confusion")},
    ("hyperbolicity",): ["tree"],
}


def test_the_commands_have_numeric_options():
    assert {path[0] for path, *_ in (option.values for option in OPTIONS)} > {"train", "search", "points", "plot"}
    assert len(OPTIONS) > 60


@pytest.mark.parametrize("path, name, info", OPTIONS)
def test_an_option_refuses_what_is_out_of_its_range_in_one_line(path, name, info, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for value in ("nan", "inf", f"{10**30}", f"-{10**30}"):
        words = NEEDED_WORDS.get(path, [])
        if isinstance(info, ArgumentInfo):
            words = ["--", *({"k": [value, "2"], "dim": ["4", value]}.get(name, [value]))]
        else:
            words = [*words, f"--{name.replace('_', '-')}={value}"]
        result = CliRunner().invoke(app, [*path, *words], prog_name="hkconv")
        assert result.exit_code == 2, result.output
        (line,) = result.stderr.splitlines()
        assert line.startswith("error: ")
        assert name in line.replace("-", "_") or f"'{info.metavar}'" in line
        assert result.stdout == "" and not list(tmp_path.iterdir())


def test_a_range_says_where_it_ends():
    assert str(Interval(1, 3)) == "of at least 1 and at most 3"
    assert str(Interval(0.0, 1.0, above=True, below=True)) == "above 0 and below 1"
    with pytest.raises(InputError, match=r"size must be a whole number of at least 1 and at most 3, got 2\.0"):
        Interval(1, 3).check("size", 2.0)
    with pytest.raises(InputError, match=r"lr must be a number above 0 and at most 1e\+20, got 1e\+300"):
        replace(OptimOptions(), lr=1e300)
