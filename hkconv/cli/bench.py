"""``hkconv bench``: HKConv on this machine, beside the layers it is compared with."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hkconv.cli.exit_codes import INTERRUPTED
from hkconv.cli.output import make_table, print_table
from hkconv.cli.recipe_options import ranged
from hkconv.errors import InputError
from hkconv.options import POSITIVE, SEED

if TYPE_CHECKING:
    from hkconv.experiments.bench import LayerPlan

QUICK_VARIANTS = "reference,fused,hybonet,gcn,gat"


def bench(
    device: Annotated[str, typer.Option(help="cpu, cuda or auto.")] = "auto",
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="N,E,K,n", help="Nodes, edges, kernel points, dimension; may be repeated."),
    ] = None,
    targets: Annotated[str, typer.Option(help="uniform, power-law or both with a comma.")] = "power-law",
    variants: Annotated[
        str, typer.Option(help="Layers to measure, with commas; compiled is torch.compile.")
    ] = QUICK_VARIANTS,
    budget: Annotated[float, ranged(POSITIVE, help="Seconds of timing for each shape and targets.")] = 20.0,
    memory: Annotated[bool, typer.Option(help="Measure memory too.")] = True,
    seed: Annotated[int, ranged(SEED, help="Seed of graphs, points and weights.")] = 0,
    out: Annotated[str | None, typer.Option(help="Write all figures to FILE.json.", show_default=False)] = None,
) -> None:
    """Time HKConv on this machine beside other layers.

    On random graphs, beside HyboNet's layer, GCN and GAT. Without options: one
    small shape, in about a minute. Ctrl-C keeps what was measured so far.

    Example: hkconv bench --shape 5201,396000,4,16 --out bench.json
    """
    target = None if out is None else _check_target(Path(out))

    from hkconv.engine.devices import find_device
    from hkconv.experiments.bench import QUICK_SHAPES, LayerPlan, check_targets, check_variants, parse_shape, run_layers

    shapes = tuple(map(parse_shape, shape)) if shape else QUICK_SHAPES
    chosen_targets = check_targets(_split(targets))
    found = find_device(device)
    if found.type not in {"cpu", "cuda"}:
        raise InputError(f"device must be cpu, cuda or auto, got {device!r}")
    plan = LayerPlan(shapes, chosen_targets, check_variants(_split(variants)), found, budget, memory=memory, seed=seed)
    document = _run(plan, target, run_layers)
    for cell in document["cells"]:
        _print_cell(cell)
    if target is not None:
        typer.echo(f"figures: {target}")
    if document["interrupted"]:
        typer.echo("interrupted: the tables show what was measured")
        raise typer.Exit(INTERRUPTED)


def _run(plan: "LayerPlan", target: Path | None, run_layers: Any) -> dict[str, Any]:
    from rich.console import Console

    from hkconv.engine.files import write_json

    def save(document: dict[str, Any]) -> None:
        if target is not None:
            write_json(target, document, "out")

    console = Console(stderr=True, highlight=False)
    if not console.is_terminal:
        return run_layers(plan, save, lambda text: typer.echo(text, err=True))
    with console.status("starting") as status:
        return run_layers(plan, save, status.update)


def _check_target(path: Path) -> Path:
    if path.suffix != ".json":
        raise InputError(f"out must end in .json, got {path}")
    if not path.parent.is_dir():
        raise InputError(f"out {path} cannot be written: folder {path.parent} does not exist")
    return path


def _split(names: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in names.split(","))


def _print_cell(cell: dict[str, Any]) -> None:
    shape = cell["shape"]
    typer.echo(
        f"{shape['nodes']:,} nodes, {shape['edges']:,} edges ({cell['targets']} targets), "
        f"K = {shape['kernels']}, dimension {shape['dim']}"
    )
    table = make_table("layer", "forward ms", "with backward ms", "min", "IQR", "peak MB", "x fused")
    fused = cell["variants"].get("fused", {}).get("train", {}).get("median")
    for name, result in cell["variants"].items():
        table.add_row(name, *_figures(result, fused))
    print_table(table)
    for name, result in cell["variants"].items():
        if "skipped" in result:
            typer.echo(f"{name} not measured: {result['skipped']}")


def _figures(result: dict[str, Any], fused: float | None) -> list[str]:
    train = result.get("train")
    times = [None, None, None] if train is None else [train["median"], train["min"], train["iqr"]]
    size = result.get("memory", {}).get("bytes")
    forward = result.get("forward", {}).get("median")
    return [
        *(_milliseconds(seconds) for seconds in (forward, *times)),
        "" if size is None else f"{size / 1e6:.0f}",
        "" if train is None or fused is None else f"{train['median'] / fused:.2f}",
    ]


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.2f}"
