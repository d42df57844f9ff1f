"""``hkconv advise``: whether a graph suits hyperbolic networks, and the command to run next."""

from typing import TYPE_CHECKING, Annotated

import typer

from hkconv.cli.exit_codes import INTERRUPTED
from hkconv.cli.output import count, make_table, percent, print_table
from hkconv.cli.recipe_options import Device, ranged
from hkconv.options import POSITIVE, SEED

if TYPE_CHECKING:
    from hkconv.tasks.advice import Advice


def advise(
    data: Annotated[
        str, typer.Argument(metavar="DATASET|PATH", help="Own data, or the name of a dataset.", show_default=False)
    ],
    task: Annotated[
        str | None, typer.Option(metavar="node|graph|link", help="By default the usual one.", show_default=False)
    ] = None,
    seconds: Annotated[float, ranged(POSITIVE, help="Seconds that the comparison may take.")] = 120.0,
    root: Annotated[
        str | None,
        typer.Option("--data", help="Folder of the datasets, else HKCONV_DATA or the cache.", show_default=False),
    ] = None,
    seed: Annotated[int, ranged(SEED, help="Seed of splits, models and samples.")] = 0,
    device: Device = "auto",
) -> None:
    """Tell whether a graph suits HKN, and what to run next.

    Looks at the graph and compares HKN, GCN and MLP on validation data.

    No test label is looked at. Ctrl-C ends it earlier, with what is known.

    Example: hkconv advise papers
    """
    from hkconv.cli.progress import status
    from hkconv.tasks.advice import advise as look

    with status("loading") as show:
        found = look(data, task=task, data=root, seconds=seconds, seed=seed, device=device, report=show)
    _print_graph(found)
    if found.trials:
        _print_trials(found)
    if found.interrupted:
        typer.echo("interrupted: this is what had been found")
    typer.echo(found.verdict)
    typer.echo(f"next: {found.command}")
    if found.interrupted:
        raise typer.Exit(INTERRUPTED)


def _print_graph(found: "Advice") -> None:
    dataset, facts = found.dataset, found.facts
    table = make_table(dataset.name, f"{dataset.task} task")
    table.columns[1].justify, table.columns[1].no_wrap, table.columns[1].overflow = "left", False, "fold"
    table.add_row("size", ", ".join(f"{number} {noun}" for noun, number in found.sizes.items()))
    table.add_row("direction", f"{facts.one_way_links} links are one way" if facts.one_way_links else "undirected")
    alike = "" if found.alike is None else f", {found.alike} nodes have the features of another"
    table.add_row("duplicates", f"{count(found.repeated_edges, 'repeated edge')}, {facts.self_loops} self loops{alike}")
    table.add_row("alone", f"{facts.without_neighbors['both']} nodes have no neighbour")
    if facts.homophily is not None:
        adjusted = "" if facts.adjusted_homophily is None else f" ({facts.adjusted_homophily:.2f} adjusted for sizes)"
        table.add_row("homophily", f"{percent(facts.homophily)} % of links are within a class{adjusted}")
    if found.delta is not None:
        delta = found.delta
        about = "" if delta.exact else ", from samples"
        like = "closer to a tree" if delta.is_tree_like else "no closer to a tree"
        words = f"{delta.own:.3g}, {delta.random:.3g} in a random graph of these degrees{about}: {like}"
        table.add_row("delta", words)
    for note in dataset.schema.notes if dataset.schema is not None else ():
        table.add_row("columns", note)
    print_table(table)
    typer.echo()


def _print_trials(found: "Advice") -> None:
    table = make_table("model", f"validation {found.metric} %", "splits", "epochs", "seconds")
    for trial in found.trials:
        epochs = f"{trial.epochs:.0f}{'+' if trial.cut_short else ''}"
        table.add_row(trial.model, percent(trial.score), str(len(trial.scores)), epochs, f"{trial.seconds:.1f}")
    table.add_row("nothing learned", percent(found.unlearned))
    print_table(table)
    if any(trial.cut_short for trial in found.trials):
        typer.echo("+ cut short: its time was over")
