"""Predicted against gold trees as a picture: SVG text, which needs no other file and no plotting library.

Gold edges are arcs above the words, predicted ones arcs below. Colours are from Okabe and Ito's palette, which people
with any common colour blindness can tell apart; wrong edges are dashed too, for a black-and-white printer.
"""

import html
from collections.abc import Sequence
from dataclasses import dataclass

from hkconv.data.treebanks import DependencyTree

GOLD, RIGHT, WRONG, UNSCORED = "#000000", "#0072B2", "#D55E00", "#aaaaaa"
CHARACTER_WIDTH, WORD_GAP, MARGIN = 7.0, 12.0, 10.0
TITLE_HEIGHT, WORD_HEIGHT, LEGEND_LINE = 26.0, 24.0, 16.0
LOWEST_ARC, ARC_STEP = 12.0, 7.0
LEGEND = (
    (GOLD, "none", "above: gold; the root in bold, punctuation, which is not scored, in grey"),
    (RIGHT, "none", "below: predicted and right"),
    (WRONG, "5 3", "below: predicted and wrong"),
)


@dataclass(frozen=True)
class TreePicture:
    """A sentence to draw.

    Args:
        title: what stands over it.
        tree: its gold tree.
        edges: predicted edges, pairs of words from 0.
    """

    title: str
    tree: DependencyTree
    edges: Sequence[tuple[int, int]]


def draw_trees(pictures: Sequence[TreePicture]) -> str:
    """The sentences one below the other, as the text of an SVG file."""
    parts, top = [], MARGIN + LEGEND_LINE * len(LEGEND)
    texts = [text for _, _, text in LEGEND] + [picture.title for picture in pictures]
    width = 40 + CHARACTER_WIDTH * max(map(len, texts))
    for picture in pictures:
        places = _places(picture.tree.forms)
        drawn, height = _draw(picture, places, top)
        parts += drawn
        top += height
        width = max(width, places[-1] + len(picture.tree.forms[-1]) * CHARACTER_WIDTH / 2 + MARGIN)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{top:.0f}" '
        f'viewBox="0 0 {width:.0f} {top:.0f}" font-family="sans-serif" font-size="12" role="img">'
    )
    title = "<title>Gold and predicted dependency trees</title>"
    return "\n".join([head, title, '<rect width="100%" height="100%" fill="#ffffff"/>', *_legend(), *parts, "</svg>"])


def _places(forms: Sequence[str]) -> list[float]:
    """The middle of each word."""
    places, left = [], MARGIN
    for form in forms:
        width = max(len(form), 1) * CHARACTER_WIDTH
        places.append(left + width / 2)
        left += width + WORD_GAP
    return places


def _draw(picture: TreePicture, places: list[float], top: float) -> tuple[list[str], float]:
    """The parts of a sentence's drawing and its height."""
    tree = picture.tree
    gold = [(word, int(head)) for word, head in enumerate(tree.heads) if head >= 0]
    known = {frozenset(edge) for edge in gold}
    above = max((_arc_height(*edge) for edge in gold), default=0.0)
    below = max((_arc_height(*edge) for edge in picture.edges), default=0.0)
    upper = top + TITLE_HEIGHT + max(above, LOWEST_ARC)
    lower = upper + WORD_HEIGHT
    parts = [f'<text x="{MARGIN}" y="{top + 16:.1f}" font-weight="bold">{html.escape(picture.title)}</text>']
    for edge in gold:
        color = UNSCORED if tree.is_punctuation[list(edge)].any() else GOLD
        parts.append(_arc(edge, places, upper, -1, f'class="gold" stroke="{color}"'))
    for edge in picture.edges:
        right = frozenset(edge) in known
        paint = f'class="right" stroke="{RIGHT}"' if right else f'class="wrong" stroke="{WRONG}" stroke-dasharray="5 3"'
        parts.append(_arc(edge, places, lower, 1, paint))
    for word, (form, place) in enumerate(zip(tree.forms, places)):
        weight = ' font-weight="bold"' if tree.heads[word] < 0 else ""
        color = UNSCORED if tree.is_punctuation[word] else GOLD
        x, y = f"{place:.1f}", f"{upper + 16:.1f}"
        parts.append(f'<text x="{x}" y="{y}" text-anchor="middle" fill="{color}"{weight}>{html.escape(form)}</text>')
    return parts, lower + max(below, LOWEST_ARC) + MARGIN - top


def _arc_height(first: int, second: int) -> float:
    return LOWEST_ARC + ARC_STEP * (abs(first - second) - 1)


def _arc(edge: tuple[int, int], places: list[float], y: float, side: int, paint: str) -> str:
    """Half an ellipse between two words, above (-1) or below (1) the line ``y``."""
    left, right = sorted(places[word] for word in edge)
    # Drawn from left to right, the sweep flag 1 goes above in SVG's coordinates.
    sweep = 1 if side < 0 else 0
    path = f"M {left:.1f} {y:.1f} A {(right - left) / 2:.1f} {_arc_height(*edge):.1f} 0 0 {sweep} {right:.1f} {y:.1f}"
    return f'<path d="{path}" fill="none" stroke-width="1.4" {paint}/>'


def _legend() -> list[str]:
    parts = []
    for number, (color, dashes, text) in enumerate(LEGEND, start=1):
        y = LEGEND_LINE * number
        line = (
            f'x1="{MARGIN}" y1="{y - 4}" x2="{MARGIN + 24}" y2="{y - 4}" stroke="{color}" stroke-dasharray="{dashes}"'
        )
        parts.append(f'<line {line} stroke-width="1.8"/><text x="{MARGIN + 30}" y="{y}">{html.escape(text)}</text>')
    return parts
