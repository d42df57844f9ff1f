"""``hkconv explore``: an embedding as one HTML page to walk through in a browser."""

import os
from pathlib import Path
from typing import Annotated

import typer

from hkconv.cli.output import count
from hkconv.errors import InputError


def explore(
    source: Annotated[
        str,
        typer.Argument(metavar="RUN|FILE.npz", help="Folder of a run, or an .npz file of points.", show_default=False),
    ],
    out: Annotated[
        str | None,
        typer.Option(metavar="PAGE", help="The page; by default explorer.html.", show_default=False),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Folder of the datasets; by default the run's.", show_default=False)
    ] = None,
) -> None:
    """Write a page that shows an embedding in the Poincaré disk.

    The page needs no network and no other file. Of a run it shows every layer
    of HKN, of its training with the best validation score; without HKN of the
    best hyperbolic network.

    Keys of an .npz file (all but points may be absent): points (N, n+1), time
    first, or points/LAYER; curvature; labels (N,), predictions (N,), -1 for
    none; edges (2, E); names (N,); class_names (C,); centers (C, n+1) and
    kernel (K, n+1), or centers/LAYER and kernel/LAYER.

    Example: hkconv explore runs/tree-20250101-120000 --out tree.html
    """
    place = Path(source)
    if not os.path.exists(place):
        raise InputError(f"nothing to explore: {place} is neither the folder of a run nor an .npz file")
    from hkconv.viz.explorer.page import write_page

    if place.is_dir():
        from hkconv.tasks.predict import choose_training
        from hkconv.viz.explorer.run_scene import read_run_scene

        scene = read_run_scene(place, data)
        typer.echo(str(choose_training(place)))
    else:
        from hkconv.viz.explorer.scene import read_npz_scene

        scene = read_npz_scene(place)
    page = Path(out or "explorer.html")
    write_page(scene, page)
    typer.echo(f"{scene.title}: {count(scene.num_nodes, 'node')}, {count(len(scene.layers), 'layer')}")
    typer.echo(f"written: {page} ({page.stat().st_size / 1e6:.1f} MB), open it in a browser")
