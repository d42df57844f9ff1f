"""``hkconv hyperbolicity``: how far a graph is from a tree, by Gromov's four-point condition."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hkconv.cli.exit_codes import INTERRUPTED
from hkconv.cli.output import make_table, print_table
from hkconv.cli.recipe_options import DataFolder, ranged
from hkconv.data.catalog import check_name
from hkconv.options import SAMPLE, SEED

if TYPE_CHECKING:
    from torch import Tensor
    from torch_geometric.data import Data

    from hkconv.data.hyperbolicity import DeltaProgress, Hyperbolicity


def hyperbolicity(
    graph: Annotated[
        str,
        typer.Argument(
            metavar="DATASET|PATH", help="A dataset, a .csv file of edges, or other own data.", show_default=False
        ),
    ],
    data: DataFolder = None,
    sample: Annotated[
        int | None,
        ranged(
            SAMPLE,
            metavar="N",
            help="Sample N nodes of a block that has more; else 2000 above 50000.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, ranged(SEED, help="Seed of the sample.")] = 0,
) -> None:
    """Measure how far a graph is from a tree.

    By Gromov's delta: 0 for a tree, k for a cycle of 4 k nodes. Edges have no
    direction and length 1. The delta of a graph in several components is the
    largest of theirs; for a dataset of many graphs it is the mean. It is exact,
    or between two bounds where nodes were sampled. A file has two names of
    nodes a line, with a comma between them. Ctrl-C prints the bounds found so
    far.

    Example: hkconv hyperbolicity texas
    """
    check_name(graph)

    from hkconv.data import GraphDataset, load
    from hkconv.data.edge_lists import read_edge_list
    from hkconv.data.own.loading import ARCHIVE, SAVED, check_own, is_own, read_own

    if Path(graph).suffix not in ("", ".parquet", ARCHIVE, *SAVED) and not os.path.isdir(graph):
        edges = read_edge_list(graph)
        if edges.heading:
            typer.echo(f"{graph}: the first line is a heading", err=True)
        _measure_graph(Path(graph).name, edges.edge_index, edges.names, sample, seed)
        return
    if is_own(graph):
        check_own(graph, data)
        own = read_own(Path(os.path.expanduser(graph)))
        if own.task == "graph":
            _measure_graphs(Path(graph).stem, own.graphs, sample, seed)
        else:
            _measure_graph(Path(graph).stem, own.graphs[0].edge_index, own.ids, sample, seed)
        return
    dataset = load(graph, root=data)
    if isinstance(dataset, GraphDataset):
        _measure_graphs(dataset.name, dataset.graphs, sample, seed)
    else:
        names = [str(node) for node in range(dataset.graph.num_nodes)]
        _measure_graph(dataset.name, dataset.graph.edge_index, names, sample, seed)


def _measure_graph(title: str, edge_index: "Tensor", names: list[str], sample: int | None, seed: int) -> None:
    from hkconv.cli.progress import status
    from hkconv.data.hyperbolicity import gromov_delta

    start = time.monotonic()
    bounds = "unknown"
    with status("loading") as show:

        def report(progress: "DeltaProgress") -> None:
            nonlocal bounds
            bounds = _between(progress.lower, progress.upper)
            show(f"delta {bounds}: {progress.stage}, {progress.share:.0%}")

        try:
            found = gromov_delta(edge_index, len(names), sample=sample, seed=seed, report=report)
        except KeyboardInterrupt:
            typer.echo(f"interrupted: delta of {title} is {bounds}")
            raise typer.Exit(INTERRUPTED) from None
    table = make_table("graph", "nodes", "edges", "component", "delta", "", "quadruple", "seconds")
    table.columns[6].no_wrap, table.columns[6].overflow = False, "fold"
    sizes = map(str, (found.nodes, found.edges, found.component))
    delta, four = _between(found.delta, found.upper), [names[node] for node in found.quadruple]
    table.add_row(title, *sizes, delta, _how([found]), " ".join(four) or "any", _since(start))
    print_table(table)
    if found.components > 1:
        typer.echo(f"{found.components} components: the one with the largest delta has {found.component} nodes.")


def _measure_graphs(title: str, graphs: list["Data"], sample: int | None, seed: int) -> None:
    from hkconv.cli.progress import status
    from hkconv.data.hyperbolicity import gromov_delta

    start = time.monotonic()
    results: list[Hyperbolicity] = []
    with status("loading") as show:
        for graph in graphs:
            show(f"graph {len(results) + 1} of {len(graphs)}")
            results.append(gromov_delta(graph.edge_index, graph.num_nodes, sample=sample, seed=seed))
    table = make_table("dataset", "graphs", "nodes", "edges", "mean delta", "largest", "", "seconds")
    sizes = map(str, (len(graphs), sum(found.nodes for found in results), sum(found.edges for found in results)))
    lower, upper = ([getattr(found, bound) for found in results] for bound in ("delta", "upper"))
    mean = _between(sum(lower) / len(graphs), sum(upper) / len(graphs))
    table.add_row(title, *sizes, mean, _between(max(lower), max(upper)), _how(results), _since(start))
    print_table(table)
    apart = sum(found.components > 1 for found in results)
    if apart:
        typer.echo(f"{apart} graphs have several components: the largest delta of these counts.")


def _how(results: list["Hyperbolicity"]) -> str:
    return "exact" if all(found.exact for found in results) else "bounds"


def _between(lower: float, upper: float) -> str:
    return f"{lower:.4g}" if lower == upper else f"{lower:.4g} to {upper:.4g}"


def _since(start: float) -> str:
    return f"{time.monotonic() - start:.1f}"
