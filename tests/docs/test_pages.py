"""The README and the documentation show only code that runs, commands that exist and links that lead somewhere."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from hkconv.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

of_each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(page, language):
    """The blocks of a page in one language, each with the number of lines above it."""
    text = page.read_text(encoding="utf-8")
    for found in re.finditer(rf"^( *)```{language}\b.*\n((?:.*\n)*?)\1```", text, re.M):
        code = re.sub(rf"^{found[1]}", "", found[2], flags=re.M)
        yield text[: found.start(2)].count("\n"), code


@of_each_page
def test_python_blocks_run_one_after_another(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for above, code in blocks(page, "python"):
        # Empty lines above, so that an error names the line of the page.
        exec(compile("\n" * above + code, str(page), "exec"), names)


def shown_commands(page):
    for _, code in blocks(page, "sh"):
        for line in re.sub(r"\\\n", " ", code).splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["hkconv"]:
                yield words[1:]
            elif "torchrun" in words:
                assert "-m" in words, (page, words)
                yield words[words.index("-m") + 2 :]


@of_each_page
def test_commands_and_their_options_exist(page):
    for words in shown_commands(page):
        command = get_command(app)
        # A group has options of its own, such as --version.
        while hasattr(command, "commands") and not " ".join(words).startswith("-"):
            assert words and words[0] in command.commands, (page, words)
            command, words = command.commands[words[0]], words[1:]
        command.make_parser(command.context_class(command)).parse_args(words)  # raises on an unknown option


@of_each_page
def test_links_between_pages_lead_somewhere(page):
    links = re.findall(r"\]\((?!http)([^)#]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []
