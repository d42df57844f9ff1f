"""Trains the networks that a release offers: the best HKN of a dataset, with its model card, one archive each.

Run: python benchmarks/weights.py --data FOLDER [NAME ...]

Settings are those that validation chose for the tables, or else the defaults of `hkconv train`; of the trainings on the
clean splits the one with the best validation score is taken. What is there already is kept, and a run that was stopped
goes on.
"""

import argparse
import io
import sys
import zipfile
from importlib.metadata import metadata
from pathlib import Path

from hkconv.cli.exit_codes import BAD_INPUT, INTERRUPTED
from hkconv.cli.output import make_table, print_table
from hkconv.cli.progress import TrainProgress
from hkconv.data.options import CLEAN
from hkconv.engine.files import write_bytes
from hkconv.errors import InputError, unknown_name
from hkconv.experiments.recipe_files import read_table
from hkconv.experiments.tables import Choice, Execution, list_cells
from hkconv.experiments.training import torch_threads
from hkconv.tasks.model_card import export_folder, percent
from hkconv.tasks.recipe import Recipe, make_recipe
from hkconv.tasks.run import RECIPE_FILE, read_result, train_run, trained_cells
from hkconv.tasks.summary import ModelSummary

SYSTEM, SPLITS = "HKN (views)", 10
# The table whose settings a network has, None for those of `hkconv train`, and its dataset.
NETWORKS = {
    "hkn-tree": (None, "tree"),
    "hkn-disease": (None, "disease"),
    "hkn-texas": ("node", "texas"),
    "hkn-wisconsin": ("node", "wisconsin"),
    "hkn-cornell": ("node", "cornell"),
    "hkn-cora": ("node", "cora"),
    "hkn-ptc": ("graph", "ptc"),
    "hkn-disease-links": ("links", "disease-lp"),
    "hkn-airport-links": ("links", "airport"),
}


def find_recipe(name: str, data: str | None) -> Recipe:
    """Return the run that a network is taken from, on the CPU, where it repeats exactly."""
    table, dataset = NETWORKS[name]
    if table is None:
        return make_recipe(dataset=dataset, models=("hkn",), num_splits=SPLITS, deterministic=True, device="cpu")
    cells = list_cells(read_table(table), Choice((dataset,), (SYSTEM,), (CLEAN,)), Execution("cpu", data))
    return cells[0].recipe.replace(seeds=len({cell.seed for cell in cells}))


def make(name: str, recipe: Recipe, out: Path, runs: Path, reporter: TrainProgress | None = None) -> bool:
    """Train a network, or go on with it, and write its folder and its archive.

    Args:
        name: of both.
        recipe: of its run.
        out: where they go.
        runs: where the run is kept.
        reporter: told of the training.

    Returns:
        False after Ctrl-C, which leaves a run that goes on.
    """
    run = runs / name
    summary = train_run(recipe.replace(out=str(run)), reporter, resume=(run / RECIPE_FILE).exists())
    if not summary.interrupted:
        export_folder(run, out / name, license=metadata("hkconv")["License-Expression"])
        # Last: a network with an archive is finished.
        write_bytes(out / f"{name}.zip", archive(out / name))
    return not summary.interrupted


def archive(folder: Path) -> bytes:
    """Return a folder as a ZIP file, the same bytes for the same files."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as packed:
        for path in sorted(folder.iterdir()):
            packed.writestr(zipfile.ZipInfo(f"{folder.name}/{path.name}"), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return content.getvalue()


def row(name: str, recipe: Recipe, out: Path, runs: Path) -> tuple[str, ...]:
    """Return the scores of a network's run, the size of its archive and the seconds of its trainings."""
    run = runs / name
    results = [read_result(run, cell) for cell in trained_cells(run, recipe)]
    best, mean = max(results, key=lambda result: result.val_metric), ModelSummary.of(results)
    scores = best.val_metric, best.test_metric, mean.val.mean, mean.test.mean
    size = (out / f"{name}.zip").stat().st_size / 1000
    return name, *map(percent, scores), f"{size:.0f} kB", f"{mean.seconds:.0f}"


def main() -> int:
    """Make what is asked for, print a table of it, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NETWORKS)}; by default all")
    parser.add_argument("--data", help="folder of the datasets, laid out as docs/data.md says")
    parser.add_argument("--out", type=Path, default=Path("dist/weights"), help="default: dist/weights")
    parser.add_argument(
        "--runs", type=Path, default=Path("runs/weights"), help="of the trainings; default: runs/weights"
    )
    given = parser.parse_args()
    for name in given.names:
        if name not in NETWORKS:
            raise unknown_name("network", name, NETWORKS)
    found = make_table("network", "validation", "test", "mean validation", "mean test", "archive", "seconds")
    left_out = []
    for name in given.names or NETWORKS:
        recipe = find_recipe(name, given.data)
        if (given.out / f"{name}.zip").exists():
            print(f"{name}: kept", file=sys.stderr)
        else:
            try:
                with TrainProgress() as progress, torch_threads():
                    progress.print(f"{name}:")
                    is_made = make(name, recipe, given.out, given.runs, progress)
            # Data that are not here say nothing about the other networks.
            except InputError as error:
                left_out.append(f"left out: {name}, {error}")
                continue
            if not is_made:
                print("interrupted: what ended is kept; go on with the same command")
                return INTERRUPTED
        found.add_row(*row(name, recipe, given.out, given.runs))
    print_table(found)
    print("\n".join([*left_out, f"written to {given.out}"]))
    return 1 if left_out else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(BAD_INPUT)
