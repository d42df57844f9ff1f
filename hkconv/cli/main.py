"""The command ``hkconv``: its subcommands, and how each ends when something was wrong or it was interrupted."""

import errno
import io
import os
import sys
from typing import Annotated, Any, cast

import typer
from typer.core import TyperGroup

import hkconv
from hkconv.cli.advise import advise
from hkconv.cli.audit import audit
from hkconv.cli.bench import bench
from hkconv.cli.datasets import datasets
from hkconv.cli.distances import distances
from hkconv.cli.evaluate import evaluate
from hkconv.cli.exit_codes import BAD_INPUT, INTERRUPTED, handle_sigterm, interrupted_code
from hkconv.cli.explore import explore
from hkconv.cli.export import export
from hkconv.cli.hyperbolicity import hyperbolicity
from hkconv.cli.plot import plot
from hkconv.cli.points import points
from hkconv.cli.predict import predict
from hkconv.cli.probe import probe
from hkconv.cli.recipe_options import GroupedCommand
from hkconv.cli.report import report
from hkconv.cli.reproduce import reproduce
from hkconv.cli.search import search
from hkconv.cli.serve import serve
from hkconv.cli.train import train
from hkconv.cli.translate import translate
from hkconv.cli.tune import tune
from hkconv.errors import InputError, describe_shortage, is_out_of_memory

# What a system refuses because of where a file is or should go: for a person to mend, not for a programmer.
REFUSALS = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EISDIR),
}

LONGEST = 2000


class _Commands(TyperGroup):
    """Turns what a user did wrong into one line and an exit code, for all commands alike."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]  # typer makes no other contexts
        try:
            result = super().invoke(ctx)
            # Standard output may be a file on a full disk.
            sys.stdout.flush()
            return result
        except InputError as error:
            raise _refused(str(error)) from None
        except typer.BadParameter as error:
            raise _refused(error.format_message()) from None
        except KeyboardInterrupt:
            raise typer.Exit(interrupted_code()) from None
        except typer.Exit as end:
            raise typer.Exit(interrupted_code()) if end.exit_code == INTERRUPTED else end from None
        except Exception as error:
            message = _told(error)
            if message is None:
                raise
            raise _refused(message) from None


def _told(error: Exception) -> str | None:
    """Return what the system refused, in words for a person; None for errors that are a programmer's."""
    if is_out_of_memory(error):
        return describe_shortage(error)
    if not isinstance(error, OSError) or error.errno not in REFUSALS:
        return None
    place = f" ({error.filename})" if error.filename else ""
    return f"the system refuses a file{place}: {error.strerror}"


def _refused(message: str) -> typer.Exit:
    line = " ".join(message.split())
    # A file may hold a word of a million letters.
    typer.echo("error: " + (line if len(line) <= LONGEST else f"{line[:LONGEST]} ..."), err=True)
    return typer.Exit(BAD_INPUT)


app = typer.Typer(
    cls=_Commands,
    no_args_is_help=True,
    # Plain help: the boxes leave the descriptions a third of 80 columns.
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"hkconv {hkconv.__version__}")
        raise typer.Exit


@app.callback()
def hyperbolic_kernel_convolution(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Hyperbolic kernel convolution on graphs: train, check and look at the parts.

    Example: hkconv train
    """


app.command(cls=GroupedCommand)(train)
app.command()(evaluate)
app.command()(predict)
app.command()(serve)
app.command()(export)
app.command(cls=GroupedCommand)(search)
app.command()(datasets)
app.command()(advise)
app.command()(audit)
app.command()(hyperbolicity)
app.command()(distances)
app.command()(tune)
app.command()(reproduce)
app.command()(points)
app.command()(bench)
app.command()(report)
app.add_typer(translate, name="translate")
app.command()(probe)
app.add_typer(plot, name="plot")
app.command()(explore)


def run() -> None:
    """Entry point of the console script."""
    # Threads that spin while they wait make small models up to 60 times slower on a machine that is not idle.
    # OpenMP reads this once, when PyTorch is loaded, which no module above does.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # A terminal or pipe that knows no `±` shows `?` instead of failing.
    for stream in (sys.stdout, sys.stderr):
        cast(io.TextIOWrapper, stream).reconfigure(errors="replace")
    handle_sigterm()
    app(prog_name="hkconv")
