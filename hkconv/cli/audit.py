"""``hkconv audit``: whether a dataset's splits can be trusted, and what its graph is like."""

from typing import TYPE_CHECKING, Annotated

import typer

from hkconv.cli.output import make_table, print_table
from hkconv.cli.recipe_options import DataFolder, one_of
from hkconv.data.catalog import check_name
from hkconv.data.options import CHOICES

if TYPE_CHECKING:
    from hkconv.data.audit import Audit, SplitAudit

LEAKS = 1


def audit(
    dataset: Annotated[
        str, typer.Argument(help="Dataset, `hkconv datasets` lists them; or own data.", show_default=False)
    ],
    protocol: Annotated[str, one_of(CHOICES, help="Disjoint splits, or those of the paper's code.")] = "clean",
    split_file: Annotated[
        str | None, typer.Option(help="JSON or .npz file with splits to audit instead.", show_default=False)
    ] = None,
    data: DataFolder = None,
) -> None:
    """Look for leaks between training and test data.

    And at the graph. Exit code 1 if a split leaks. A split leaks if its parts
    share members, or if over 10 % of the test members have a copy in training.

    Example: hkconv audit texas --protocol published
    """
    check_name(dataset)

    from hkconv.data import audit_dataset

    found = audit_dataset(dataset, root=data, protocol=protocol, split_file=split_file)
    typer.echo(f"{found.name}: {found.task} task, protocol {found.protocol}; each {found.task} counts once in a part")
    typer.echo()
    _print_overlaps(found)
    _print_twins(found)
    _print_classes(found)
    _print_graph(found)
    for leak in found.leaks:
        typer.echo(f"leak: {leak}")
    if found.leaks:
        raise typer.Exit(LEAKS)
    typer.echo("no leak found")


def _print_overlaps(found: "Audit") -> None:
    table = make_table("split", *found.splits[0].sizes, "repeats", *(entry.name for entry in found.splits[0].overlaps))
    for index, split in enumerate(found.splits):
        shared = (_part(entry.shared, entry.members) for entry in split.overlaps)
        table.add_row(str(index), *map(str, split.sizes.values()), str(split.repeats), *shared)
    print_table(table)
    typer.echo()


def _print_twins(found: "Audit") -> None:
    typer.echo(f"test {found.task}s with another {found.task} in train that has the same label and the same")
    table = make_table("split", *(twins.name for twins in found.twins))
    for index, split in enumerate(found.splits):
        table.add_row(str(index), *(_part(split.twins[twins.name], split.sizes["test"]) for twins in found.twins))
    table.add_row("label agrees", *map(_agreement, (twins.agreement for twins in found.twins)))
    print_table(table)
    typer.echo()


def _print_classes(found: "Audit") -> None:
    table = make_table("class", "all", *found.splits[0].sizes)
    for index, (name, count) in enumerate(zip(found.classes, found.class_counts)):
        parts = (_range(found.splits, part, index) for part in found.splits[0].sizes)
        table.add_row(name, str(count), *parts)
    print_table(table)
    typer.echo()


def _print_graph(found: "Audit") -> None:
    graph = found.graph
    table = make_table("graph" if found.task == "node" else "all graphs", "")
    table.columns[1].justify = "left"
    ways = f"directed, {graph.one_way_links} of them one way" if graph.one_way_links else "undirected"
    table.add_row("nodes", str(graph.nodes))
    table.add_row("links", f"{graph.links}, {ways}; {graph.self_loops} self loops")
    for direction, count in graph.without_neighbors.items():
        table.add_row(f"no neighbour ({direction})", _part(count, graph.nodes))
    table.add_row("constant features", f"{graph.constant_features} of {graph.features}")
    if graph.homophily is not None:
        table.add_row("edge homophily", f"{graph.homophily:.3f}, the share of links within a class")
    if graph.adjusted_homophily is not None:
        table.add_row("adjusted", f"{graph.adjusted_homophily:.3f}, 0 where classes have no say in links")
    print_table(table)
    typer.echo()


def _part(count: int, total: int) -> str:
    return f"{count} ({100 * count / total:.0f} %)"


def _agreement(share: float | None) -> str:
    return "no twins" if share is None else f"{100 * share:.0f} %"


def _range(splits: "list[SplitAudit]", part: str, index: int) -> str:
    """The members of a class in a part, fewest to most over the splits."""
    counts = [split.class_counts[part][index] for split in splits]
    return str(min(counts)) if min(counts) == max(counts) else f"{min(counts)}-{max(counts)}"
