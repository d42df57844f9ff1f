r"""Docstrings are written for ``help()`` and Sphinx; here they become Markdown before the reference shows them.

``:math:`` and ``.. math::`` become equations in dollars. ``:class:`` and its like become links where the reference has
the object, and code where it has not.
"""

import re

import griffe

_ROLE = re.compile(r":(?:class|func|meth|mod|data|attr):`([^`]+)`")
_INLINE = re.compile(r":math:`([^`]+)`")
_BLOCK = re.compile(r"^( *)\.\. math::(.*)\n((?:\1 +\S.*\n|[ ]*\n)*)", re.M)


class Docstrings(griffe.Extension):
    """Rewrites every docstring of a package once it is read."""

    def on_package(self, *, pkg: griffe.Module, **_) -> None:
        for owner in _objects(pkg):
            if owner.docstring is not None:
                owner.docstring.value = to_markdown(owner.docstring.value, owner)


def to_markdown(text: str, owner: griffe.Object) -> str:
    """A docstring with dollars and links in place of roles."""
    text = _BLOCK.sub(_display, text + "\n")
    text = _INLINE.sub(lambda found: f"${' '.join(found[1].split())}$", text)
    return _ROLE.sub(lambda found: _link(found[1], owner), text).rstrip("\n")


def _display(found: re.Match) -> str:
    # Under an item of a list, which Sphinx indents by what its number takes, Markdown wants four spaces.
    indent, lines = " " * (-(-len(found[1]) // 4) * 4), [found[2], *found[3].split("\n")]
    rows = "".join(f"{indent}{line.strip()}\n" for line in lines if line.strip())
    return f"\n{indent}$$\n{rows}{indent}$$\n\n"


def _link(target: str, owner: griffe.Object) -> str:
    path = target.lstrip("~")
    shown = path.rsplit(".", 1)[-1] if target.startswith("~") else path
    return f'<autoref optional identifier="{_full_path(path, owner)}"><code>{shown}</code></autoref>'


def _full_path(path: str, owner: griffe.Object) -> str:
    """Where the object is defined, for names that are short or re-exported."""
    try:
        full = path if path.startswith("hkconv.") else owner.resolve(path)
        return owner.modules_collection[full].canonical_path
    except (KeyError, griffe.GriffeError):
        return path


def _objects(owner: griffe.Object):
    yield owner
    for member in owner.members.values():
        if not member.is_alias:
            yield from _objects(member)
