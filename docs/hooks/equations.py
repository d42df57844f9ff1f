"""LaTeX to MathML while the site is built: browsers draw it themselves, so that pages fetch no script and no fonts.

Python-Markdown's arithmatex finds the equations of pages and docstrings and leaves them marked in the HTML.
"""

import html
import re

from latex2mathml.converter import convert

_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.S)
_DISPLAY = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.S)
# What stands inside an environment has rows and columns of its own.
_ENVIRONMENT = re.compile(r"\\begin\{([\w*]+)\}.*?\\end\{\1\}", re.S)
# What the converter does not know, in words that it does.
_UNKNOWN = (
    (re.compile(r"\\(math(?:bb|cal|frak|bf)) ?([A-Za-z])"), r"\\\1{\2}"),
    (re.compile(r"\\arg(?![a-z])"), r"\\operatorname{arg}"),
    (re.compile(r"\\([bB]igg?)\\(?:\||Vert)"), r"\\\1‖"),
)
# The gaps that an unknown operator has by default are too wide for a name.
_NAME = re.compile(r"<mo>([A-Za-z]{2,})</mo>")


def on_page_content(content: str, **_) -> str:
    """The page with MathML in place of every marked equation."""
    content = _DISPLAY.sub(lambda found: f'<div class="equation">{display(html.unescape(found[1]))}</div>', content)
    return _INLINE.sub(lambda found: mathml(html.unescape(found[1])), content)


def display(latex: str) -> str:
    """An equation of its own line; several rows, as Sphinx takes them without ceremony, are aligned at ``&``."""
    outside = _ENVIRONMENT.sub("", latex)
    if "&" in outside or r"\\" in outside:
        latex = rf"\begin{{align*}}{latex}\end{{align*}}"
    return mathml(latex, "block")


def mathml(latex: str, display: str = "inline") -> str:
    for unknown, known in _UNKNOWN:
        latex = unknown.sub(known, latex)
    return _NAME.sub(r'<mo lspace="0.17em" rspace="0">\1</mo>', convert(latex, display=display))
