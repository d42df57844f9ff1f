"""A document as a list of blocks, and its two faces: Markdown, and an HTML page that needs no other file."""

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from hkconv.report.figures import Panel

SECTION = 2


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the document's title, and those of level 2 are all different."""

    text: str
    level: int = SECTION


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list of short texts."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class Links:
    """A list of other files: a text and a place relative to this document for each."""

    links: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Bold:
    """The text of a table's cell that stands out."""

    text: str


@dataclass(frozen=True)
class Table:
    """A table; rows with an empty first cell belong to the row above."""

    head: tuple[str, ...]
    rows: tuple[tuple[str | Bold, ...], ...]


@dataclass(frozen=True)
class Plot:
    """Small plots that are kept in a file of their own too."""

    file_name: str
    panels: tuple[Panel, ...]
    description: str


Block = Heading | Text | Items | Links | Table | Plot


def as_markdown(blocks: Sequence[Block]) -> str:
    """The document in Markdown. Plots are referred to by their file names."""
    return "\n\n".join(_markdown(block) for block in blocks) + "\n"


def as_html(blocks: Sequence[Block], drawings: Mapping[str, str] | None = None) -> str:
    """The document as one HTML page: styles and plots inside, no script, nothing fetched.

    Args:
        blocks: of the document.
        drawings: SVG of its plots by their file names; of a plot without there is the description alone.
    """
    drawings = drawings or {}
    title = next(block.text for block in blocks if isinstance(block, Heading) and block.level == 1)
    sections = [block.text for block in blocks if isinstance(block, Heading) and block.level == SECTION]
    links = " ".join(f'<a href="#{_anchor(text)}">{html.escape(text)}</a>' for text in sections)
    body = "\n".join(_html(block, drawings) for block in blocks)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(title)}</title>\n<style>\n{STYLE}</style>\n</head>\n"
        f"<body>\n<nav>{links}</nav>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


STYLE = """\
body { margin: 0; font: 15px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; }
nav { padding: .5rem 1.5rem; border-bottom: 1px solid #ccc; }
nav a { margin-right: 1rem; }
a { color: #00568a; }
main { padding: 0 1.5rem 3rem; }
p, ul { max-width: 52rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .7rem; text-align: right; white-space: nowrap; }
th { border-bottom: 2px solid #555; }
th:first-child, td:first-child { position: sticky; left: 0; background: #fff; text-align: left; }
tr.start td { border-top: 1px solid #ccc; }
strong { color: #004b78; }
svg { max-width: 100%; height: auto; }
"""


def _markdown(block: Block) -> str:
    match block:
        case Heading(text, level):
            return f"{'#' * level} {_escape(text)}"
        case Text(text):
            return _escape(text)
        case Items(texts):
            return "\n".join(f"- {_escape(text)}" for text in texts)
        case Links(links):
            return "\n".join(f"- [{_escape(text)}]({quote(place)})" for text, place in links)
        case Plot(file_name, _, description):
            return f"![{_escape(description)}]({file_name})"
        case Table(head, rows):
            lines = [head, ("---", *("---:" for _ in head[1:])), *rows]
            return "\n".join(f"| {' | '.join(map(_markdown_cell, line))} |" for line in lines)


def _markdown_cell(cell: str | Bold) -> str:
    return f"**{_escape(cell.text)}**" if isinstance(cell, Bold) else _escape(cell)


def _escape(text: str) -> str:
    """Text that comes from files must not turn into markup."""
    return re.sub(r"([\\|<*`\[\]])", r"\\\1", " ".join(text.split()))


def _html(block: Block, drawings: Mapping[str, str]) -> str:
    match block:
        case Heading(text, level):
            place = f' id="{_anchor(text)}"' if level == SECTION else ""
            return f"<h{level}{place}>{html.escape(text)}</h{level}>"
        case Text(text):
            return f"<p>{html.escape(text)}</p>"
        case Items(texts):
            return "<ul>\n" + "\n".join(f"<li>{html.escape(text)}</li>" for text in texts) + "\n</ul>"
        case Links(links):
            items = (f'<li><a href="{html.escape(quote(place))}">{html.escape(text)}</a></li>' for text, place in links)
            return "<ul>\n" + "\n".join(items) + "\n</ul>"
        case Plot(file_name, _, description):
            # A page of HTML has no room for the prologue of a file of its own.
            svg = drawings.get(file_name, "").partition("<svg")
            return f"<figure>\n{svg[1]}{svg[2]}\n<figcaption>{html.escape(description)}</figcaption>\n</figure>"
        case Table(head, rows):
            top = "".join(f"<th>{html.escape(text)}</th>" for text in head)
            lines = "\n".join(_html_row(row) for row in rows)
            return f'<div class="wide"><table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{lines}\n</tbody></table></div>'


def _html_row(row: tuple[str | Bold, ...]) -> str:
    cells = "".join(f"<td>{_html_cell(cell)}</td>" for cell in row)
    return f'<tr class="start">{cells}</tr>' if row[0] else f"<tr>{cells}</tr>"


def _html_cell(cell: str | Bold) -> str:
    return f"<strong>{html.escape(cell.text)}</strong>" if isinstance(cell, Bold) else html.escape(cell)


def _anchor(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
