"""The keys of recipes as tables, made from the dataclasses that check them whenever the site is built."""

import re
from dataclasses import Field
from importlib import import_module

from hkconv.options import Options, rule_of

_MARK = re.compile(r"^<!-- keys of (\S+)\.(\w+) -->$", re.M)


def on_page_markdown(markdown: str, **_) -> str:
    """The page with a table in place of every mark ``<!-- keys of MODULE.CLASS -->``."""
    return _MARK.sub(lambda found: table(getattr(import_module(found[1]), found[2])), markdown)


def table(group: type[Options]) -> str:
    """The keys of a group and of the groups in it: what they accept, their defaults and what they are for."""
    rows = [_row(entry) for entry in group.options().values()]
    return "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows])


def _row(entry: Field) -> str:
    rule = rule_of(entry)
    accepts = f"{rule.accepts} or none" if rule.optional and "none" not in rule.choices else rule.accepts
    cells = (f"`{entry.name}`", accepts, _written(entry.default, rule.optional), rule.help)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _written(default: object, is_optional: bool) -> str:
    """A default as YAML and the command line take it."""
    if default is None:
        return "not set" if is_optional else "required"
    if isinstance(default, tuple):
        return f"`{','.join(map(str, default)) or 'none'}`"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"
