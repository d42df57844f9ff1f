"""``hkconv plot``: each figure of the paper and of a run, as a file."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hkconv.cli.recipe_options import Device, ranged, ranged_argument, run_argument
from hkconv.errors import InputError
from hkconv.options import SEED, Interval

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# More than a figure can show, of points and of neighbours.
DRAWN = Interval(1, 200)

plot = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]}
)

Out = Annotated[str, typer.Option(metavar="FILE", help="Where it goes, as .svg, .pdf or .png.")]
Run = Annotated[str, run_argument("Folder of a run, as `hkconv train` prints it.")]
Split = Annotated[int | None, ranged(SEED, help="Only trainings on this split.", show_default=False)]
Seed = Annotated[int | None, ranged(SEED, help="Only trainings with this seed.", show_default=False)]
FirstModel = Annotated[str | None, typer.Option(help="Model of the run; by default its first.", show_default=False)]
Data = Annotated[str | None, typer.Option(help="Folder of the datasets; by default the run's.", show_default=False)]
Kernels = Annotated[int, ranged(DRAWN, help="Number of kernel points.")]
Neighbors = Annotated[int, ranged(DRAWN, "--neighbors", "--neighbours", help="Number of neighbours.")]


@plot.callback()
def figures() -> None:
    """Draw a figure: of the paper, of the results, or of a run.

    Example: hkconv plot kernel-points 5 10 --out points.pdf
    """


@plot.command()
def kernel_points(
    sizes: Annotated[
        list[int] | None,
        ranged_argument(DRAWN, metavar="K...", help="Numbers of points; by default 5 10.", show_default=False),
    ] = None,
    start: Annotated[
        int | None,
        ranged(
            Interval(0, DRAWN.most - 1),
            help="Point, from 0, that geodesics start from; by default the last.",
            show_default=False,
        ),
    ] = None,
    target: Annotated[str, typer.Option(metavar="X,Y", help="Where in the disk the origin is moved.")] = "0.35,0.25",
    out: Out = "kernel-points.svg",
) -> None:
    """Kernel points in the plane and their geodesics.

    Before and after a translation; above the Lorentz sheet, below the Poincaré
    disk.

    Example: hkconv plot kernel-points 7 --start 0
    """
    place = _parse_place(target)

    from hkconv.viz.kernel_points import PAPER_SIZES, kernel_points_figure

    _write(lambda: kernel_points_figure(sizes or PAPER_SIZES, start=start, target=place), out)


@plot.command()
def convolution(
    kernels: Kernels = 4,
    neighbors: Neighbors = 3,
    seed: Annotated[int, ranged(SEED, help="Seed of the layer's linear maps.")] = 0,
    out: Out = "convolution.svg",
) -> None:
    """The five steps of HKConv on a small neighbourhood.

    Example: hkconv plot convolution --kernels 5
    """
    from hkconv.viz.convolution import convolution_figure

    _write(lambda: convolution_figure(kernels, neighbors, seed=seed), out)


@plot.command()
def views(
    kernels: Kernels = 4,
    neighbors: Neighbors = 3,
    seed: Annotated[
        int | None, ranged(SEED, help="Seed of the block; by default a well spread one.", show_default=False)
    ] = None,
    out: Out = "views.svg",
) -> None:
    """The three views of HKBlock and their mix.

    Differences, neighbours and the node itself, on a small neighbourhood.

    Example: hkconv plot views --neighbors 4
    """
    from hkconv.viz.views import SEED, views_figure

    _write(lambda: views_figure(kernels, neighbors, seed=SEED if seed is None else seed), out)


@plot.command()
def repulsion_gradient(
    k: Annotated[int, ranged_argument(DRAWN, metavar="K", help="Number of points.")] = 8,
    out: Out = "repulsion-gradient.svg",
) -> None:
    """The gradient of the repulsion by distance.

    K points on a growing circle around the origin, and the first term of their
    energy.

    Example: hkconv plot repulsion-gradient 8
    """
    from hkconv.viz.repulsion_gradient import repulsion_gradient_figure

    _write(lambda: repulsion_gradient_figure(k), out)


@plot.command()
def kernel_scores(
    task: Annotated[str, typer.Argument(metavar="node|graph", help="Which task.", show_default=False)],
    results: Annotated[str, typer.Option(metavar="FOLDER", help="Records of `hkconv reproduce`.")] = "results/records",
    out: Out = "kernel-scores.svg",
) -> None:
    """Test scores by the number of kernel points.

    The paper's and ours under both protocols, with bands of one deviation.

    Example: hkconv plot kernel-scores node --out kernels-node.pdf
    """
    from hkconv.report.collect import read_grid
    from hkconv.report.figures import KERNEL_TABLES, kernel_scores_figure

    table = f"kernels-{task}"
    if table not in KERNEL_TABLES:
        raise InputError(f"task must be node or graph, got {task!r}")

    def draw() -> "Figure":
        grid, damaged = read_grid(Path(results), table)
        for problem in damaged:
            typer.echo(f"damaged line left out: {problem}", err=True)
        return kernel_scores_figure(grid)

    _write(draw, out)


@plot.command()
def training_curves(
    run: Run,
    model: Annotated[str | None, typer.Option(help="Only trainings of this model.", show_default=False)] = None,
    split: Split = None,
    seed: Seed = None,
    out: Out = "training-curves.svg",
) -> None:
    """Losses and validation metric of a run, epoch by epoch.

    Example: hkconv plot training-curves runs/tree-20250101-120000
    """
    from hkconv.viz.training_curves import training_curves_figure

    _write(lambda: training_curves_figure(run, model, split=split, seed=seed), out)


@plot.command()
def class_distances(
    run: Run,
    model: FirstModel = None,
    split: Split = None,
    seed: Seed = None,
    data: Data = None,
    device: Device = "auto",
    out: Out = "class-distances.svg",
) -> None:
    """Mean distances of classes to class centres.

    Of the test members of all trainings of a model.

    Example: hkconv plot class-distances runs/tree-20250101-120000
    """
    from hkconv.viz.class_figures import class_distances_figure

    _write(lambda: class_distances_figure(run, model, split=split, seed=seed, data=data, device=device), out)


@plot.command()
def confusion(
    run: Run,
    model: FirstModel = None,
    split: Split = None,
    seed: Seed = None,
    data: Data = None,
    device: Device = "auto",
    out: Out = "confusion.svg",
) -> None:
    """Confusion matrix of a trained model.

    On the test data of all its trainings.

    Example: hkconv plot confusion runs/tree-20250101-120000 --model gcn
    """
    from hkconv.viz.class_figures import confusion_figure

    _write(lambda: confusion_figure(run, model, split=split, seed=seed, data=data, device=device), out)


def _write(draw: Callable[[], "Figure"], out: str) -> None:
    from hkconv.report.style import check_target, save_figure

    target = check_target(Path(out))
    save_figure(draw(), target)
    typer.echo(f"written: {target}")


def _parse_place(text: str) -> tuple[float, float]:
    try:
        x, y = map(float, text.split(","))
    except ValueError:
        raise InputError(f"target must be two numbers with a comma between them, got {text!r}") from None
    return x, y
