"""Running a command as a user does, without the cost of a new process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_command import ForkServer
from typer.testing import CliRunner

from hkconv.cli.main import app


class Command:
    """``hkconv`` with arguments, in the current process."""

    def __call__(self, *arguments: object):
        return CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="hkconv")

    def fails(self, *arguments: object) -> str:
        """Run what must be refused: exit code 2, one line, no traceback. Returns the line."""
        result = self(*arguments)
        assert result.exit_code == 2, result.output
        assert result.stdout == ""
        (line,) = result.stderr.splitlines()
        assert line.startswith("error: ")
        return line


@pytest.fixture
def hkconv() -> Command:
    return Command()


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path, monkeypatch) -> Path:
    """Every command runs in a folder of its own, so that a test sees what it leaves behind."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(scope="session")
def forks(private_cache) -> Iterator[ForkServer]:
    """Starts commands as processes that can be killed."""
    with ForkServer() as server:
        yield server
