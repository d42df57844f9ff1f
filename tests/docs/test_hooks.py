"""What becomes of docstrings and equations on their way into the site."""

import re
from pathlib import Path

import griffe
import pytest


@pytest.fixture(scope="module")
def package() -> griffe.Module:
    return griffe.load("hkconv", search_paths=[Path(__file__).parents[2]], allow_inspection=False)


def test_inline_equations_stand_in_dollars(hook, package):
    text = hook("docstrings").to_markdown("The norm :math:`|x|_L` of\n:math:`x \\in\n  \\mathbb L`.", package)
    assert text == "The norm $|x|_L$ of\n$x \\in \\mathbb L$."


def test_displayed_equations_stand_between_lines_of_dollars(hook, package):
    text = hook("docstrings").to_markdown("It is\n\n.. math::\n    a &= b \\\\\n    c &= d\n\nand more.", package)
    assert re.sub(r"\n{2,}", "\n\n", text) == "It is\n\n$$\na &= b \\\\\nc &= d\n$$\n\nand more."


def test_a_displayed_equation_on_the_line_of_its_directive(hook, package):
    assert "$$\nx' = f(x)\n$$" in hook("docstrings").to_markdown(".. math:: x' = f(x)", package)


def test_an_equation_under_an_item_of_a_list_has_the_indent_that_markdown_wants(hook, package):
    text = hook("docstrings").to_markdown("1. First,\n\n   .. math::\n       a = b\n\n   then.", package)
    assert "\n    $$\n    a = b\n    $$\n" in text


@pytest.mark.parametrize(
    "role, path, shown",
    [
        (":class:`HKConv`", "hkconv.nn.hk_conv.HKConv", "HKConv"),
        (":class:`hkconv.models.HKN`", "hkconv.models.hkn.HKN", "hkconv.models.HKN"),
        (":meth:`~hkconv.models.HKN.embed`", "hkconv.models.hkn.HKN.embed", "embed"),
        (":func:`torch.add`", "torch.add", "torch.add"),
    ],
)
def test_roles_become_links_to_where_a_thing_is_defined(hook, package, role, path, shown):
    expected = f'<autoref optional identifier="{path}"><code>{shown}</code></autoref>'
    assert hook("docstrings").to_markdown(role, package["nn"]) == expected


def mathml(hook, latex, kind="span"):
    """What a page holds in place of an equation."""
    marked = rf"\({latex}\)" if kind == "span" else rf"\[{latex}\]"
    return hook("equations").on_page_content(f'<p><{kind} class="arithmatex">{marked}</{kind}></p>')


def test_equations_become_mathml(hook):
    assert re.findall(r"<(m\w+)", mathml(hook, r"\frac{a}{b}")) == ["math", "mrow", "mfrac", "mrow", "mi", "mrow", "mi"]
    assert 'display="inline"' in mathml(hook, "a") and 'display="block"' in mathml(hook, "a", "div")


def test_escaped_signs_are_read(hook):
    assert "&lt;" in mathml(hook, "k &lt; 0") or "&#x0003C;" in mathml(hook, "k &lt; 0")


def test_rows_are_aligned_without_an_environment_but_those_of_a_matrix_are_its_own(hook):
    assert mathml(hook, r"a &amp;= b \\ c &amp;= d", "div").count("<mtr") == 2
    matrix = mathml(hook, r"\begin{bmatrix} a \\ b \end{bmatrix}", "div")
    assert matrix.count("<mtable") == 1


@pytest.mark.parametrize("latex", [r"\mathbb L^n", r"\arg\min_Z f", r"\big\|x\Big\Vert", r"\mathfrak L"])
def test_what_the_converter_lacks_is_put_otherwise(hook, latex):
    found = mathml(hook, latex)
    assert "\\" not in found and "double-struck" not in found and "fraktur" not in found
