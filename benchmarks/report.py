"""Puts the result files into the tables of docs/performance.md, so that no figure is typed by hand.

Run: python benchmarks/report.py
"""

import argparse
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from hkconv.engine.files import read_json, write_bytes
from hkconv.errors import InputError
from hkconv.experiments.epochs import PAPER_ROWS
from hkconv.experiments.runtime import SYSTEMS

HERE = Path(__file__).parent

Document = dict[str, Any]

LAYER_NAMES = {
    "reference": "reference",
    "compiled": "compiled",
    "fused": "fused",
    "hybonet": "HyboNet",
    "gcn": "GCN",
    "gat": "GAT",
}
MODEL_NAMES = {model: system for system, model in SYSTEMS.items()}
NOTHING = "–"


def render_page(page: Path, results: Path) -> None:
    """Replace the tables of a page by those of all result files in a folder.

    Args:
        page: a Markdown file with markers ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->`` for each of
            ``layers``, ``growth``, ``epochs``, ``large-graph`` and ``mini-batches``.
        results: folder of ``*.json`` files.
    """
    documents = [read_json(path, "benchmark result") for path in sorted(results.glob("*.json"))]
    text = page.read_text(encoding="utf-8")
    for name, render in SECTIONS.items():
        text = replace_section(text, name, render(documents), str(page))
    write_bytes(page, text.encode())


def replace_section(text: str, name: str, content: str, owner: str = "the page") -> str:
    """The text with ``content`` between the markers of ``name``."""
    pattern = re.compile(rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)", re.S)
    if not pattern.search(text):
        raise InputError(f"{owner} must have the markers <!-- {name}:begin --> and <!-- {name}:end -->")
    return pattern.sub(lambda found: f"{found[1]}\n{content}\n\n{found[2]}", text)


def render_layers(documents: list[Document]) -> str:
    """Times and memory of layers, one set of tables for each machine."""
    parts = []
    for document in _merged(documents, "layers"):
        if not document["cells"]:
            continue
        cells = document["cells"]
        variants = [name for name in LAYER_NAMES if any(name in cell["variants"] for cell in cells)]
        times = ("reference/fused", "compiled/fused")
        parts += [
            f"### {_place(document)}",
            "Forward and backward, milliseconds:",
            _layer_table(cells, variants, "train", [f"train {name}" for name in times]),
            "Forward alone, milliseconds:",
            _layer_table(cells, variants, "forward", [f"forward {name}" for name in times]),
            "Peak extra memory of forward and backward, MB:",
            _layer_table(cells, variants, "memory", ["memory fused/reference", "memory fused/hybonet"]),
            *_skipped_layers(cells),
            _footer(document),
        ]
    return _joined(parts)


def render_growth(documents: list[Document]) -> str:
    """Memory of the fused layer as K and n grow, beside what one float for each of N x K x n and E x K x n takes."""
    parts = []
    for document in _merged(documents, "layers"):
        if not document["growth"]:
            continue
        rows = []
        for entry in document["growth"]:
            shape = entry["shape"]
            size = 4 * shape["kernels"] * shape["dim"]
            measured = _memory(entry) or entry.get("skipped", NOTHING)
            sizes = [f"{size * shape[count] / 1e6:.0f}" for count in ("nodes", "edges")]
            rows.append([*(f"{shape[key]:,}" for key in ("nodes", "edges", "kernels", "dim")), measured, *sizes])
        head = ["N", "E", "K", "n", "fused, MB", "4 N K n, MB", "4 E K n, MB"]
        parts += [f"### {_place(document)}", _table(head, rows), _footer(document)]
    return _joined(parts)


def render_epochs(documents: list[Document]) -> str:
    """Milliseconds a training epoch, ours and the paper's."""
    parts = []
    paper = {row.dataset: row for row in PAPER_ROWS}
    for document in _merged(documents, "epochs"):
        names = [name for name in MODEL_NAMES if any(name in cell["models"] for cell in document["cells"])]
        head = ["dataset", *(MODEL_NAMES[name] for name in names), "HKN/HyboNet"]
        head += [f"paper: {name}" for name in ("HKNet", "HyboNet", "H2H-GCN", "HGCN", "HKNet/HyboNet")]
        rows = []
        for cell in document["cells"]:
            ours = [_timing(cell["models"].get(name, {}), "epoch") for name in names]
            row = paper.get(cell["dataset"])
            theirs = [NOTHING] * 5
            if row is not None:
                figures = (row.hknet, row.hybonet, row.h2h_gcn, row.hgcn)
                theirs = [*(_number(1e3 * seconds) for seconds in figures), f"{row.hknet / row.hybonet:.1f}"]
            rows.append([cell["dataset"], *ours, _ratio(cell, "hkn/hybonet"), *theirs])
        captured = ", captured steps" if document["protocol"]["recipe"]["capture"] else ""
        parts += [f"### {_place(document)}{captured}", _table(head, rows)]
        parts += [*_skipped_epochs(document["cells"]), _footer(document)]
    return _joined(parts)


def render_short_epochs(documents: list[Document], datasets: Sequence[str], models: Sequence[str]) -> str:
    """Median milliseconds a training epoch of some models on some datasets, all machines side by side."""
    columns = [
        (f"{MODEL_NAMES[name]}, {_short_place(document)}", name, {cell["dataset"]: cell for cell in document["cells"]})
        for document in _merged(documents, "epochs")
        for name in models
        if any(name in cell["models"] for cell in document["cells"])
    ]
    head = ["", *(title for title, _, _ in columns)]
    rows = [[dataset, *(_median(cells.get(dataset), name) for _, name, cells in columns)] for dataset in datasets]
    return _table(head, rows) if columns else NOT_YET


def render_large_graph(documents: list[Document]) -> str:
    """Time and memory of an epoch on a large graph."""
    head = ["machine", "nodes", "edges", "K", "n", "first epoch, s", "later epochs, s", "peak RSS, GB"]
    rows = []
    for document in _of_kind(documents, "large-graph"):
        shape, seconds = document["shape"], document["epoch_seconds"]
        later = f"{min(seconds[1:]):.1f}" if len(seconds) > 1 else NOTHING
        sizes = [f"{shape[key]:,}" for key in ("nodes", "edges", "kernels", "dim")]
        rows.append([_place(document), *sizes, f"{seconds[0]:.1f}", later, _gigabytes(document)])
    return _table(head, rows) if rows else NOT_YET


def render_mini_batches(documents: list[Document]) -> str:
    """Time and memory of mini-batches and of prediction as a graph grows, one table for each machine."""
    asked = [f"{way}, {unit}" for way in ("prediction", "at once") for unit in ("s", "GB")]
    head = ["nodes", "edges", "ms a batch", "training, GB", *asked, "largest difference"]
    parts = []
    for document in _of_kind(documents, "mini-batches"):
        measured = [cell for cell in document["cells"] if "failed" not in cell]
        rows = [_mini_batch_row(cell, document["protocol"]["batches"]) for cell in measured]
        failed = [
            (f"{cell['shape']['nodes']:,} nodes", {"skipped": cell["failed"]})
            for cell in document["cells"]
            if "failed" in cell
        ]
        lines = [*_growth_line(measured), *_skipped(failed), _footer(document)]
        parts += [f"### {_place(document)}", _table(head, rows), *lines]
    return _joined(parts)


def _mini_batch_row(cell: Document, batches: int) -> list[str]:
    shape = cell["shape"]
    row = [f"{shape['nodes']:,}", f"{shape['edges']:,}", _both_times(cell["training"], 1e3 / batches)]
    row += [_gigabytes(cell["training"])]
    for part in ("prediction", "at_once"):
        row += [_both_times(cell[part]), _gigabytes(cell[part])]
    return [*row, f"{cell['largest_difference']:.1e}"]


def _growth_line(cells: list[Document]) -> list[str]:
    """How everything grows from the first size to the last; times are those of the processor."""
    if len(cells) < 2:
        return []
    first, last = cells[0], cells[-1]
    figures = {
        "nodes and edges": last["shape"]["nodes"] / first["shape"]["nodes"],
        "time of a batch": last["training"]["cpu_seconds"] / first["training"]["cpu_seconds"],
        "memory of training": last["training"]["peak_rss_bytes"] / first["training"]["peak_rss_bytes"],
        "time of prediction": last["prediction"]["cpu_seconds"] / first["prediction"]["cpu_seconds"],
        "memory of prediction": last["prediction"]["peak_rss_bytes"] / first["prediction"]["peak_rss_bytes"],
    }
    listed = ", ".join(f"{name} x {value:.2g}" for name, value in figures.items())
    return [f"From the first row to the last: {listed}."]


def _both_times(measured: Document, factor: float = 1.0) -> str:
    """On the clock and, in brackets, of the processor."""
    return f"{_number(factor * measured['seconds'])} ({_number(factor * measured['cpu_seconds'])})"


def _gigabytes(measured: Document) -> str:
    return f"{measured['peak_rss_bytes'] / 1e9:.1f}"


NOT_YET = "No result file yet."
SECTIONS = {
    "layers": render_layers,
    "growth": render_growth,
    "epochs": render_epochs,
    "large-graph": render_large_graph,
    "mini-batches": render_mini_batches,
}


def _of_kind(documents: list[Document], kind: str) -> list[Document]:
    return [document for document in documents if document.get("benchmark") == kind]


def _merged(documents: list[Document], kind: str) -> list[Document]:
    """Documents of a kind; those of one machine, software and protocol as one, for a run may be taken in parts."""
    groups: dict[str, list[Document]] = {}
    for document in _of_kind(documents, kind):
        key = [document["machine"], document["versions"], document["seed"], document["protocol"]]
        groups.setdefault(json.dumps(key), []).append(document)
    return [
        {
            **group[0],
            "cells": [cell for document in group for cell in document["cells"]],
            "growth": [entry for document in group for entry in document.get("growth", [])],
            "interrupted": any(document["interrupted"] for document in group),
        }
        for group in groups.values()
    ]


def _layer_table(cells: list[Document], variants: list[str], part: str, ratios: list[str]) -> str:
    head = ["N, E, K, n", "targets", *(LAYER_NAMES[name] for name in variants)]
    head += [name.partition(" ")[2].replace("hybonet", "HyboNet") for name in ratios]
    rows = []
    for cell in cells:
        results = [cell["variants"].get(name, {}) for name in variants]
        figures = [_memory(result) or NOTHING if part == "memory" else _timing(result, part) for result in results]
        shape = ", ".join(f"{cell['shape'][key]:,}" for key in ("nodes", "edges", "kernels", "dim"))
        rows.append([shape, cell["targets"], *figures, *(_ratio(cell, name) for name in ratios)])
    return _table(head, rows)


def _timing(result: Document, part: str) -> str:
    """Median and middle half, in milliseconds."""
    if part not in result:
        return NOTHING
    low, high = result[part]["quartiles"]
    return f"{_number(1e3 * result[part]['median'])} ({_number(1e3 * low)} to {_number(1e3 * high)})"


def _median(cell: Document | None, model: str) -> str:
    result = {} if cell is None else cell["models"].get(model, {})
    return _number(1e3 * result["epoch"]["median"]) if "epoch" in result else NOTHING


def _memory(result: Document) -> str | None:
    size = result.get("memory", {}).get("bytes")
    return None if size is None else _number(size / 1e6)


def _ratio(cell: Document, name: str) -> str:
    value = cell["ratios"].get(name)
    return NOTHING if value is None else _number(value)


def _number(value: float) -> str:
    """Three digits that mean something, without exponents."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _skipped_layers(cells: list[Document]) -> list[str]:
    named = (
        (f"{LAYER_NAMES[name]} at {', '.join(str(size) for size in cell['shape'].values())}, {cell['targets']}", result)
        for cell in cells
        for name, result in cell["variants"].items()
    )
    return _skipped(named)


def _skipped_epochs(cells: list[Document]) -> list[str]:
    named = [(cell["dataset"], cell) for cell in cells]
    for cell in cells:
        named += [(f"{MODEL_NAMES[name]} on {cell['dataset']}", result) for name, result in cell["models"].items()]
    return _skipped(named)


def _skipped(named: Iterable[tuple[str, Document]]) -> list[str]:
    lines = [f"* {name}: {result['skipped']}" for name, result in named if "skipped" in result]
    return ["Not measured:", "\n".join(lines)] if lines else []


def _place(document: Document) -> str:
    machine = document["machine"]
    return machine.get("gpu") or f"{machine['cpu']}, {machine['cores']} cores"


def _short_place(document: Document) -> str:
    captured = ", captured" if document["protocol"]["recipe"]["capture"] else ""
    return document["machine"].get("gpu", "CPU") + captured


def _footer(document: Document) -> str:
    versions = document["versions"]
    names = ("hkconv", "python", "torch", "numba", "triton")
    listed = ", ".join(f"{name} {versions[name]}" for name in names if name in versions)
    cut = ", interrupted" if document["interrupted"] else ""
    return f"{document['started'][:10]}, {listed}, seed {document['seed']}{cut}."


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _joined(parts: list[str]) -> str:
    return "\n\n".join(parts) if parts else NOT_YET


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--page", type=Path, default=HERE.parent / "docs" / "performance.md")
    options = parser.parse_args()
    render_page(options.page, options.results)
    print(f"written to {options.page}")


if __name__ == "__main__":
    main()
