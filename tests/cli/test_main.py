import pytest

import hkconv as package

COMMANDS = (
    *("train", "evaluate", "predict", "serve", "search", "datasets", "audit", "hyperbolicity", "distances"),
    *("tune", "points", "bench", "reproduce", "report", "translate", "probe", "plot", "explore", "advise", "export"),
)


def test_help_lists_the_commands(hkconv):
    result = hkconv("--help")
    assert result.exit_code == 0
    assert all(command in result.stdout for command in COMMANDS)


@pytest.mark.parametrize("group", [(), ("translate",), ("plot",)])
def test_the_summary_of_every_command_fits_its_line(hkconv, group):
    commands = hkconv(*group, "--help").stdout.partition("Commands:\n")[2].splitlines()
    assert commands and not [line for line in commands if line.endswith("...")]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_has_one_example_and_fits(hkconv, command):
    result = hkconv(command, "--help")
    assert result.exit_code == 0
    assert result.stdout.count("Example: hkconv ") == 1
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "\x1b" not in result.stdout


def test_version(hkconv):
    assert hkconv("--version").stdout == f"hkconv {package.__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["trian"], ["train", "--epochs", "many"], ["train", "--depth", "3"], ["evaluate"]]
)
def test_usage_errors(hkconv, arguments):
    result = hkconv(*arguments)
    assert result.exit_code == 2
    assert "error: " in result.stderr.lower()
    assert "Traceback" not in result.stderr
