"""``hkconv datasets``: what can be trained on, and where it would come from."""

from typing import Annotated

import typer

from hkconv.cli.output import make_table, print_table
from hkconv.cli.recipe_options import DataFolder


def datasets(
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[PATH]...", help="Own data to describe instead.", show_default=False)
    ] = None,
    data: DataFolder = None,
) -> None:
    """List the datasets and their places, or describe own data.

    Example: hkconv datasets --data ~/graphs
    """
    from hkconv.data import describe
    from hkconv.data.staging import data_root

    root, found = data_root(data), []
    if paths:
        from hkconv.data.own.loading import describe_own

        found = [describe_own(path) for path in paths]
    table = make_table("name", "task", "graphs", "nodes", "edges", "feats", "classes", "from", gap=1)
    task, location = table.columns[1], table.columns[-1]
    task.justify = location.justify = "left"
    location.no_wrap, location.overflow = False, "fold"
    for info in [info for info, _ in found] or describe(data):
        sizes = (info.graphs, info.nodes, info.edges, info.features, info.classes)
        table.add_row(info.name, info.task, *map(_count, sizes), _short(info.location, str(root)))
    print_table(table)
    for info, notes in found:
        for note in notes:
            typer.echo(f"{info.name}: {note}")
    if found:
        return
    typer.echo(f"Folders are in {root}; + not there yet, will be downloaded; - not there and has no download.")


def _count(number: int) -> str:
    """The number, from a million on in millions: a line has 80 columns."""
    return str(number) if number < 1_000_000 else f"{number / 1_000_000:.1f}M"


def _short(location: str, root: str) -> str:
    """The place within the root, which is the same for all, with a mark instead of words."""
    marked = location.replace("download to ", "+").replace("absent: ", "-")
    return marked.replace(f"{root}/", "").removesuffix("/raw")
