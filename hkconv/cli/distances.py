"""``hkconv distances``: how well the networks of a run on links keep the distances of its graph."""

from typing import Annotated

import typer

from hkconv.cli.output import make_table, percent, print_table
from hkconv.cli.recipe_options import Device, run_argument


def distances(
    run: Annotated[str, run_argument("Folder of a run with --task link.")],
    data: Annotated[
        str | None, typer.Option(help="Folder of the datasets; by default the run's.", show_default=False)
    ] = None,
    device: Device = "auto",
) -> None:
    """Compare distances in a graph with those of its embedding.

    That is, with those between what the networks of a run make of its nodes.
    Average distortion: mean of |s d / d_graph - 1| with the best scale s, 0 at
    best. Worst distortion: the largest of d / d_graph by the smallest, 1 at
    best. mAP: mean average precision of a node's neighbours among all nodes,
    from near to far, 100 % at best. Each is a mean over trainings.

    Example: hkconv distances runs/disease-20250101-120000
    """
    from statistics import fmean

    from hkconv.tasks.distances import measure_distances

    found = measure_distances(run, data, device)
    table = make_table("model", "trainings", "average distortion", "worst distortion", "mAP %")
    for model in dict.fromkeys(cell.model for cell, _ in found):
        scores = [entry for cell, entry in found if cell.model == model]
        average, worst, precision = (
            fmean(getattr(entry, name) for entry in scores)
            for name in ("average_distortion", "worst_distortion", "mean_average_precision")
        )
        table.add_row(model, str(len(scores)), f"{average:.3f}", f"{worst:.3g}", percent(precision))
    print_table(table)
    _, first = found[0]
    part = "all" if first.sources == first.num_nodes else f"a sample of {first.sources:,} of the"
    typer.echo(f"distances from {part} {first.num_nodes:,} nodes to all others, hidden links included")
