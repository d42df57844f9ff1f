"""Advice on a graph before any long training: what it is like, and which of three networks validation prefers.

Nothing here looks at a test part: not a label for homophily, and no score. Only what is said of a graph whose links are
to be predicted counts all of them; no network is told. The comparison has a number of seconds, is
made of whole rounds of one training a model, as far as these go, and ends in order when it is interrupted.
"""

import shlex
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from statistics import fmean

import torch
from torch import Tensor

from hkconv.data import GraphDataset, LinkDataset, hide_test
from hkconv.data.audit import GraphFacts, graph_facts
from hkconv.data.checks import UNKNOWN
from hkconv.data.dataset import link_keys, pairs_of_keys
from hkconv.data.hyperbolicity import Hyperbolicity, gromov_delta
from hkconv.data.options import ACCURACY, IN, R2
from hkconv.data.own.loading import is_own
from hkconv.data.splits import seeded_generator
from hkconv.data.twins import same_rows
from hkconv.engine.callbacks import Callback
from hkconv.engine.devices import find_device
from hkconv.engine.guard import DivergenceError
from hkconv.engine.loop import Epoch
from hkconv.models.options import DEFAULT_MODELS
from hkconv.tasks.building import load_dataset
from hkconv.tasks.recipe import Recipe, make_recipe
from hkconv.tasks.run import train_cell
from hkconv.tasks.summary import Cell
from hkconv.tasks.tasks import Dataset, make_task

# The models that are compared, the fastest first: what it leaves of its time the next ones have.
COMPARED = tuple(sorted(DEFAULT_MODELS, key=("mlp", "gcn", "hkn").index))
# A block of more nodes is sampled, and of many graphs so many are looked at.
SAMPLED_NODES = 400
SAMPLED_GRAPHS = 50
# A mean delta below this share of a random graph's is said to be like a tree's.
TREE_LIKE = 0.75
# Two models whose validation scores differ by less are not told apart by so few trainings.
TIE = 0.01


@dataclass(frozen=True)
class Delta:
    """Mean Gromov delta of graphs, and of random ones in which every node has as many links, but for a few.

    Args:
        own, random: deltas, or what samples of nodes attain of them.
        exact: whether they are deltas.
    """

    own: float
    random: float
    exact: bool

    @property
    def is_tree_like(self) -> bool:
        """True if the graphs are clearly closer to trees than random ones."""
        return self.own < TREE_LIKE * self.random


@dataclass(frozen=True)
class Contender:
    """Validation scores of a model, one for each round that it was trained in.

    Args:
        model: its name.
        scores: the validation metric of the best epoch of each training.
        epochs: mean number of epochs.
        seconds: of all its trainings.
        cut_short: whether a training ended because the time was over.
    """

    model: str
    scores: tuple[float, ...]
    epochs: float
    seconds: float
    cut_short: bool

    @property
    def score(self) -> float:
        """The mean of the scores."""
        return fmean(self.scores)


@dataclass(frozen=True)
class Advice:
    """Findings on data, and one command.

    Args:
        dataset: its splits have no test part.
        facts: of its graphs, with the edges as the data list them; homophily without the labels to test on.
        repeated_edges: edges beyond the first between the same nodes in the same direction.
        alike: nodes with the features of another node; None for graphs and for columns of ones.
        delta: None if it was interrupted.
        metric: the name of the metric.
        unlearned: the validation metric without learning.
        trials: of the models that were trained.
        interrupted: whether Ctrl-C ended it.
        path, options: of the data and what the command needs beside it.
    """

    dataset: Dataset
    facts: GraphFacts
    repeated_edges: int
    alike: int | None
    delta: Delta | None
    metric: str
    unlearned: float
    trials: tuple[Contender, ...]
    interrupted: bool
    path: str
    options: tuple[str, ...]

    @property
    def sizes(self) -> dict[str, int]:
        """Number of nodes, links and whatever else the data are made of."""
        data, facts = self.dataset, self.facts
        graphs = {"graphs": len(data.graphs)} if isinstance(data, GraphDataset) else {}
        found = {**graphs, "nodes": facts.nodes, "links": facts.links, "features": facts.features}
        if isinstance(data, LinkDataset):
            return found
        labels, asked = data.labels, {"classes": data.num_classes}
        if data.metric != ACCURACY:
            asked = {} if data.metric == R2 else {"questions": data.num_questions}
        unknown = int((labels == UNKNOWN).sum() if labels.dim() == 1 else labels.isnan().all(1).sum())
        return {**found, **asked, **({"without a label": unknown} if unknown else {})}

    @property
    def verdict(self) -> str:
        """Sentence on the model to use, by validation alone."""
        ranked = sorted(self.trials, key=lambda trial: -trial.score)
        if not ranked:
            return "no model was trained in the time there was: give it more --seconds"
        best = ranked[0]
        hkn = next((trial for trial in ranked if trial.model == "hkn"), None)
        if best.score <= self.unlearned:
            return "no model learned anything yet: look at the columns and labels, or give it more --seconds"
        if hkn is None or best.score - hkn.score >= TIE:
            return f"{best.model} suits this better than hkn by validation; train both to be sure"
        others = [trial for trial in ranked if trial is not hkn]
        if others and hkn.score - others[0].score < TIE:
            return (
                f"hkn and {others[0].model} are within {100 * TIE:.0f} point of each other: the graph may suit either"
            )
        return "hkn suits this: it is ahead on validation"

    @property
    def command(self) -> str:
        """The command to run next."""
        best = max(self.trials, key=lambda trial: trial.score).model if self.trials else "hkn"
        models = ",".join(dict.fromkeys(("hkn", best, "mlp")))
        return shlex.join(["hkconv", "train", self.path, *self.options, "--models", models, "--num-splits", "5"])


def advise(
    path: str,
    *,
    task: str | None = None,
    data: str | None = None,
    seconds: float = 120.0,
    seed: int = 0,
    device: str = "auto",
    report: Callable[[str], None] = lambda text: None,
) -> Advice:
    """Look at data and compare HKN, GCN and MLP on validation.

    Args:
        path: own data or the name of a dataset.
        task: by default the usual one.
        data: folder of named datasets.
        seconds: that the comparison may take.
        seed: of splits, models and samples.
        device: where to compute.
        report: told what is going on.

    Returns:
        The advice; a Ctrl-C ends it earlier, with what there is.
    """
    report("reading")
    recipe = make_recipe(dataset=path, task=task, data=data, seed=seed, device=device, models=COMPARED)
    dataset = hide_test(load_dataset(recipe))
    stored = dataset
    if dataset.task != "link" and (is_own(path) or dataset.task == "node"):
        # With the edges as they are listed.
        stored = hide_test(load_dataset(recipe.replace(direction=IN)))
    facts = graph_facts(_with_known_labels(stored))
    first = make_task(dataset, dataset.splits[0], torch.empty(0))
    interrupted, delta, trials = False, None, []
    try:
        delta = compare_delta(_graphs(stored), seed, report)
        for trial in compare_models(recipe, dataset, seconds, report):
            trials = trial
    except KeyboardInterrupt:
        interrupted = True
    return Advice(
        dataset=dataset,
        facts=facts,
        repeated_edges=sum(_repeated(edges) for edges, _ in _graphs(stored)),
        alike=None if isinstance(dataset, GraphDataset) else _alike(dataset.graph.x),
        delta=delta,
        metric=first.metric,
        unlearned=first.unlearned_score(),
        trials=tuple(trials),
        interrupted=interrupted,
        path=path,
        options=(*(() if task is None else ("--task", task)), *(() if data is None else ("--data", data))),
    )


def compare_delta(graphs: list[tuple[Tensor, int]], seed: int, report: Callable[[str], None]) -> Delta | None:
    """The mean delta of graphs, and that of random graphs with about the same degrees.

    Args:
        graphs: edges (2, E) and the number of nodes of each.
        seed: of samples and random graphs.
        report: told what is going on.

    Returns:
        The two; None without links.
    """
    drawn = torch.randperm(len(graphs), generator=seeded_generator(seed))[:SAMPLED_GRAPHS].tolist()
    found: list[list[Hyperbolicity]] = []
    for number in drawn:
        report(f"delta of graph {len(found) + 1} of {len(drawn)}")
        edges, num_nodes = graphs[number]
        generator = seeded_generator(seed, number)
        sample = SAMPLED_NODES if num_nodes > SAMPLED_NODES else None
        pair = (edges, rewired(edges, num_nodes, generator))
        found.append([gromov_delta(each, num_nodes, sample=sample, seed=seed) for each in pair])
    if not any(own.edges for own, _ in found):
        return None
    own, random = (fmean(each.delta for each in side) for side in zip(*found))
    return Delta(own, random, len(drawn) == len(graphs) and all(each.exact for pair in found for each in pair))


def rewired(edge_index: Tensor, num_nodes: int, generator: torch.Generator) -> Tensor:
    """A random graph: the ends of all links are joined anew, and pairs that are loops or repeats are left out.

    Args:
        edge_index: (2, E) edges; their direction does not matter.
        num_nodes: number of nodes.
        generator: source of randomness.

    Returns:
        (2, E') links, each once.
    """
    ends = pairs_of_keys(link_keys(edge_index, num_nodes), num_nodes).flatten()
    shuffled = ends[torch.randperm(len(ends), generator=generator)].view(2, -1)
    return pairs_of_keys(link_keys(shuffled, num_nodes), num_nodes)


class _Deadline(Callback):
    """Ends a training when its time is over, as an interrupt does."""

    def __init__(self, end: float, show: Callable[[str], None]):
        self.end, self.show, self.is_over = end, show, False

    def epoch_ended(self, epoch: Epoch) -> None:
        self.show(f"epoch {epoch.number}, validation {100 * epoch.val_metric:.1f} %")
        if time.monotonic() > self.end:
            self.is_over = True
            raise KeyboardInterrupt


def compare_models(
    recipe: Recipe, dataset: Dataset, seconds: float, report: Callable[[str], None]
) -> Iterable[list[Contender]]:
    """Train the models of a recipe in turn, one split after the other, while there is time for another round.

    Args:
        recipe: how to train.
        dataset: its test parts hidden.
        seconds: in which the first round ends, whatever is left to train; others are begun if they can end in it.
        report: told what is going on.

    Returns:
        The trials of all models so far: after each training of the first round, then after each whole round.
    """
    device, begin = find_device(recipe.runtime.device), time.monotonic()
    end, names = begin + seconds, recipe.model.models
    done: dict[str, list[tuple[float, int, float, bool]]] = {name: [] for name in names}
    for split in range(min(recipe.data.num_splits, len(dataset.splits))):
        started = time.monotonic()
        round_of: dict[str, tuple[float, int, float, bool]] = {}
        for place, name in enumerate(names):
            now = time.monotonic()
            deadline = _Deadline(
                now + (end - now) / (len(names) - place),
                lambda text, name=name, split=split: report(f"{name}, split {split}: {text}"),  # type: ignore[misc]
            )
            try:
                result = train_cell(Cell(name, split, recipe.optim.seed), recipe, dataset, device, deadline).result
                if result.interrupted and not deadline.is_over:
                    raise KeyboardInterrupt
            except DivergenceError as error:
                if error.best is None:
                    raise
                result = error.best.result
            if split > 0 and deadline.is_over:
                return  # beside whole trainings half a one says nothing
            round_of[name] = result.val_metric, result.epochs, result.seconds, deadline.is_over
            if split == 0:
                yield _trials({name: [found] for name, found in round_of.items()})
        for name, found in round_of.items():
            done[name].append(found)
        yield _trials(done)
        if time.monotonic() + (time.monotonic() - started) > end:
            return


def _trials(done: dict[str, list[tuple[float, int, float, bool]]]) -> list[Contender]:
    return [
        Contender(
            name,
            tuple(score for score, *_ in found),
            fmean(epochs for _, epochs, *_ in found),
            sum(seconds for _, _, seconds, _ in found),
            any(cut for *_, cut in found),
        )
        for name, found in done.items()
        if found
    ]


def _graphs(dataset: Dataset) -> list[tuple[Tensor, int]]:
    graphs = dataset.graphs if isinstance(dataset, GraphDataset) else [dataset.graph]
    return [(graph.edge_index, graph.num_nodes) for graph in graphs]


def _with_known_labels(dataset: Dataset) -> Dataset:
    """The dataset with the labels of nodes to train on and to choose with, and of no others."""
    if isinstance(dataset, GraphDataset | LinkDataset) or dataset.metric != ACCURACY:
        return dataset
    known, graph = torch.cat([*dataset.splits[0].parts.values()]), dataset.graph.clone()
    graph.y = torch.full_like(graph.y, UNKNOWN).scatter(0, known, graph.y[known])
    return replace(dataset, graph=graph, splits=dataset.splits[:1])


def _repeated(edges: Tensor) -> int:
    return edges.size(1) - edges.unique(dim=1).size(1)


def _alike(x: Tensor) -> int:
    counts = same_rows(x).bincount()
    return int(counts[counts > 1].sum())
