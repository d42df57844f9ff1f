"""Trainings that several processes can share: run by torchrun, or called by a test in one process to compare.

As a program (``torchrun ... shared_training.py FOLDER``) every process writes what it found to ``FOLDER/RANK.json``.
"""

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch_geometric.data import Data
from toy_translation import prepared, spoils, toy_recipe

from hkconv import models
from hkconv.data import GraphDataset, NodeDataset, Split
from hkconv.engine.distributed import ALONE, Processes, joined
from hkconv.engine.settings import Settings
from hkconv.engine.steps import read_log
from hkconv.errors import InputError
from hkconv.language.train import train_translator
from hkconv.tasks.fitting import fit

# Sizes that two processes do not divide; the last batch of 9 has a single graph, and so has the test.
SIZES = (28, 7, 1)
SETTINGS = Settings(epochs=4, patience=4, batch_size=9, lr=0.01, seed=3)
TRANSLATION = {"dropout": 0.0, "steps": 6, "log_every": 1, "validate_every": 3, "accumulate": 2}
# Of long sentences one fits into a batch, so that the second process has nothing to do.
NARROW = {"batch_tokens": 48, "max_length": 48}


def make_shapes() -> GraphDataset:
    """Rings and paths of random sizes; a node's features are its degree and noise."""
    generator = torch.Generator().manual_seed(1)
    graphs = []
    for index in range(sum(SIZES)):
        size = int(torch.randint(3, 8, (1,), generator=generator))
        ring = torch.stack([torch.arange(size), (torch.arange(size) + 1) % size])
        edges = ring if index % 2 else ring[:, :-1]
        degree = edges.flatten().bincount(minlength=size).float()[:, None]
        x = torch.cat([degree, torch.randn(size, 2, generator=generator)], dim=1)
        graphs.append(Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], 1), y=torch.tensor([index % 2])))
    return GraphDataset("shapes", graphs, [Split(*torch.arange(sum(SIZES)).split(SIZES))], 2, "test")


def make_questions() -> GraphDataset:
    """The same graphs with two questions: is it a ring, is it small? Many answers are unknown, all of them of some."""
    shapes = make_shapes()
    graphs = []
    for index, shape in enumerate(shapes.graphs):
        answers = torch.tensor([[float(shape.y), float(shape.num_nodes < 5)]])
        if index % 3 < 2:
            answers[0, index % 3] = torch.nan
        if index % 4 == 1:
            answers[:] = torch.nan
        graphs.append(Data(x=shape.x, edge_index=shape.edge_index, y=answers))
    split = Split(*torch.arange(sum(SIZES)).split((20, 9, 7)))
    return GraphDataset("questions", graphs, [split], 2, "test", metric="ROC-AUC")


def make_joined_shapes() -> NodeDataset:
    """The same graphs as one, whose nodes have the classes of their graphs."""
    graphs = make_shapes().graphs
    offsets = torch.tensor([0, *(graph.num_nodes for graph in graphs)]).cumsum(0)
    edges = torch.cat([graph.edge_index + offset for graph, offset in zip(graphs, offsets)], 1)
    labels = torch.cat([graph.y.expand(graph.num_nodes) for graph in graphs])
    parts = torch.arange(len(labels)).split([37, 20, len(labels) - 57])
    graph = Data(x=torch.cat([graph.x for graph in graphs]), edge_index=edges, y=labels)
    return NodeDataset("joined shapes", graph, [Split(*parts)], 2, "test")


# HKN has parameters on a manifold; the reference needs no compilation. Of a batch norm each process has its own.
HKN = {"name": "hkn", "form": "paper", "kernel_size": 3, "backend": "reference"}
VIEWS = {**HKN, "form": "views", "norm": "layer"}
CASES = {
    "shapes": {"dataset": make_shapes, **HKN},
    "shapes in float64": {"dataset": make_shapes, "dtype": torch.float64, **HKN},
    "questions": {"dataset": make_questions, "name": "gcn"},
    "nodes, all neighbours": {"dataset": make_joined_shapes, "neighbors": (-1, -1), **HKN},
    "nodes, sampled neighbours": {"dataset": make_joined_shapes, "neighbors": (1, 1), **HKN},
    "views": {"dataset": make_shapes, **VIEWS},
    "views in float64": {"dataset": make_shapes, "dtype": torch.float64, **VIEWS},
    "views of nodes, sampled neighbours": {"dataset": make_joined_shapes, "neighbors": (1, 1), **VIEWS},
}


def train_case(
    dataset: Callable[[], GraphDataset | NodeDataset],
    name: str,
    processes: Processes = ALONE,
    dropout: float = 0.0,
    dtype: torch.dtype = torch.float32,
    neighbors: tuple[int, ...] | None = None,
    **options,
) -> dict:
    """A training with mini-batches of graphs or nodes, as plain data."""
    dataset = dataset()
    # Another start in each process: the first one's is what counts.
    torch.manual_seed(5 + processes.rank)
    outputs = 2 if neighbors else 2 * dataset.num_questions
    sizes = {"in_features": 3, "hidden_dim": 6, "num_layers": 2, "num_classes": outputs}
    model = models.create(name, **sizes, task=dataset.task, dropout=dropout, **options)
    processes.seed_dropout(5)
    result = fit(
        model.to(dtype), dataset, dataset.splits[0], replace(SETTINGS, neighbors=neighbors), processes=processes
    )
    weights = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    scores = {field: getattr(result, field) for field in ("best_epoch", "val_metric", "test_metric", "test_loss")}
    return {**scores, "history": [asdict(epoch) for epoch in result.history], "weights": weights.tolist()}


def train_toy(folder: Path, **changes) -> list[dict]:
    """The log of a translation, without what depends on the clock."""
    trained = train_translator(toy_recipe(folder, **{**TRANSLATION, **changes}))
    return curve(trained.folder)


def curve(folder: Path) -> list[dict]:
    entries = [asdict(entry) for entry in read_log(folder / "log.jsonl")]
    return [{name: entry[name] for name in entry if "second" not in name} for entry in entries]


def train_in_two_parts(folder: Path, **changes) -> list[dict]:
    """A translation that is stopped after some steps and goes on."""
    recipe = toy_recipe(folder, **{**TRANSLATION, **changes})
    train_translator(replace(recipe, steps=4))
    return curve(train_translator(recipe, resume=True).folder)


def train_with_a_fault(folder: Path, rank: int, **changes) -> dict:
    """A translation with a number that is not finite in step 5, where the second process alone can see it first."""
    recipe = toy_recipe(folder, dropout=0.3, steps=6, log_every=3, validate_every=100, **changes)
    # In the step, and when it is taken again to be watched.
    with prepared(spoils((5, 8) if rank == 1 else ())):
        trained = train_translator(recipe)
    return {"curve": curve(trained.folder), "guard": trained.guard}


def speak(processes: Processes) -> dict:
    """What the processes tell each other."""
    said = {}
    # Row i of each length, counted by its number: gathered once and in order.
    for length in range(8):
        rows = torch.arange(length * 2.0).view(length, 2)
        said[f"gathered {length}"] = processes.gather(processes.share(rows)).flatten().tolist()
    said["sizes"] = [len(processes.share(torch.arange(length))) for length in range(8)]
    calls = []
    said["first"] = processes.first(lambda: calls.append(1) or processes.rank)
    said["calls"] = len(calls)
    said["in turn"] = processes.in_turn(lambda: processes.rank)
    said["agreed"] = processes.agree([processes.rank + 0.1, 7.0])
    said["all"] = processes.all({"rank": processes.rank})

    def complain():
        raise InputError("nothing to see here")

    try:
        processes.first(complain)
    except InputError as error:
        said["complaint"] = str(error)
    generator = torch.Generator().manual_seed(processes.rank)
    try:
        processes.check_in_step(generator)
    except RuntimeError as error:
        said["out of step"] = str(error)
    processes.check_in_step(generator.manual_seed(0))
    torch.manual_seed(0)
    processes.seed_dropout(0)
    said["drawn"] = torch.rand(1).item()
    return said


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    found = {}
    with joined() as processes:
        found["said"] = speak(processes)
        for case, options in CASES.items():
            found[case] = train_case(**options, processes=processes)
        found["dropout"] = train_case(make_shapes, "gcn", processes, dropout=0.5)
        found["batch norm"] = train_case(make_shapes, processes=processes, **{**VIEWS, "norm": "batch"})
    # Each writes text of its own, for toy_recipe does; the first one's is read.
    texts = folder / f"texts-{rank}"
    texts.mkdir()
    found["translation"] = train_toy(texts, **NARROW, out=str(folder / "narrow"))
    found["whole"] = train_toy(texts, dropout=0.3, out=str(folder / "whole"))
    found["parts"] = train_in_two_parts(texts, dropout=0.3, out=str(folder / "parts"))
    found["fault"] = train_with_a_fault(texts, rank, out=str(folder / "fault"))
    (folder / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
