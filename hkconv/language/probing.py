"""Probing encoders layer by layer, with the controls that their scores are to be read against."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from hkconv.data.splits import seeded_generator
from hkconv.data.treebanks import PARTS
from hkconv.errors import InputError
from hkconv.language.probe_data import Encoder, StateCache, TokenizedTrees
from hkconv.language.probe_training import ProbeData, Task, predict, train_probe
from hkconv.language.probes import PROBES, EuclideanProbe, chain_depths, chain_distances
from hkconv.language.tree_batches import TreeBatch, batch_trees
from hkconv.language.tree_scores import DepthScores, DistanceScores, score_depths, score_distances, spanning_trees

CHAIN = "linear chain"


class Scores(NamedTuple):
    """The four scores, see :mod:`hkconv.language.tree_scores`; shares are from 0 to 1."""

    uuas: float
    dspr: float
    root: float
    nspr: float


@dataclass(frozen=True)
class ProbeResult:
    """Scores of one probe in one layer.

    Args:
        encoder: name of the encoder.
        layer: the layer, the embedding being 0; None for the chain.
        probe: ``"euclidean"`` or ``"hyperbolic"``; None for the chain.
        dev, test: scores on two parts of the treebank.
        epochs: how long the distance and the depth probe were trained.
        edges: predicted edges, pairs of words from 0, of the test sentences to be drawn, by their place.
    """

    encoder: str
    layer: int | None
    probe: str | None
    dev: Scores
    test: Scores
    epochs: dict[Task, int]
    edges: dict[int, list[tuple[int, int]]]


def probe_encoders(
    encoders: Mapping[str, Encoder],
    parts: Mapping[str, TokenizedTrees],
    *,
    layers: Sequence[int] | None = None,
    drawn: Sequence[int] = (),
    device: torch.device | str = "cpu",
    seed: int = 0,
    report: Callable[[ProbeResult], None] = lambda result: None,
) -> list[ProbeResult]:
    """Probe encoders of one vocabulary, and score the chain beside them.

    Args:
        encoders: what to probe, by name; on the device and ready to be used, dropout switched off.
        parts: train, dev and test of a treebank, in subwords of the encoders.
        layers: which layers, the embedding being 0; all if not given.
        drawn: places, from 0, of test sentences whose predicted edges are wanted.
        device: where to compute.
        seed: probes start from it, and their batches come in an order that follows from it.
        report: called with each result once it is there.

    Returns:
        For each encoder and layer one result for each kind of probe, and one for the chain.
    """
    for name, encoder in encoders.items():
        _check_layers(encoder, name, layers, parts["test"], device)
    batches = {part: batch_trees(parts[part].trees, device) for part in PARTS}
    results = []
    for result in _all_results(encoders, parts, batches, layers, drawn, device, seed):
        report(result)
        results.append(result)
    return results


def _all_results(
    encoders: Mapping[str, Encoder],
    parts: Mapping[str, TokenizedTrees],
    batches: Mapping[str, list[TreeBatch]],
    layers: Sequence[int] | None,
    drawn: Sequence[int],
    device: torch.device | str,
    seed: int,
) -> Iterator[ProbeResult]:
    yield _chain(batches, drawn)
    for name, encoder in encoders.items():
        with tempfile.TemporaryDirectory() as folder:
            cache = StateCache(Path(folder))
            for part in PARTS:
                count = cache.fill(encoder, part, parts[part], device)
            for layer in range(count) if layers is None else layers:
                data = _load_layer(cache, layer, batches, device)
                yield from _probe_layer(name, layer, data, drawn, seed)


def _check_layers(
    encoder: Encoder,
    name: str,
    layers: Sequence[int] | None,
    sentences: TokenizedTrees,
    device: torch.device | str,
) -> None:
    shortest = min(sentences.ids, key=len)
    with torch.inference_mode():
        count = len(encoder.encoder_layers(torch.tensor([shortest], device=device)))
    for layer in layers or ():
        if not 0 <= layer < count:
            raise InputError(f"layers must be 'all' or numbers from 0 to {count - 1}, which {name} has, got {layer}")


def _load_layer(
    cache: StateCache, layer: int, batches: Mapping[str, list[TreeBatch]], device: torch.device | str
) -> dict[str, ProbeData]:
    """The states of a layer in a unit of their own: their root mean square deviation from the mean, in training.

    A probe's matrix can take up any factor, but from states a thousand times smaller it would learn more slowly.
    """
    states = {part: cache.load(part, layer).to(device) for part in PARTS}
    unit = states["train"].std(0, correction=0).square().mean().sqrt()
    unit = torch.where(unit > 0, unit, 1)
    return {part: ProbeData(states[part] / unit, batches[part]) for part in PARTS}


def _probe_layer(
    name: str, layer: int, data: Mapping[str, ProbeData], drawn: Sequence[int], seed: int
) -> Iterator[ProbeResult]:
    # One depth probe for both kinds: the exponential map keeps distances to the origin.
    depth, depth_epochs = _trained(EuclideanProbe, "depth", data, seeded_generator(seed, layer, 0))
    depth_scores = {part: _score(depth, "depth", data[part]) for part in ("dev", "test")}
    for number, (kind, make) in enumerate(PROBES.items(), start=1):
        probe, epochs = _trained(make, "distance", data, seeded_generator(seed, layer, number))
        dev, test = (Scores(*_score(probe, "distance", data[part]), *depth_scores[part]) for part in ("dev", "test"))
        predictions = _predictions(probe, "distance", data["test"])
        epochs_of: dict[Task, int] = {"distance": epochs, "depth": depth_epochs}
        yield ProbeResult(name, layer, kind, dev, test, epochs_of, _edges(predictions, drawn))


def _trained(
    make: type[EuclideanProbe], task: Task, data: Mapping[str, ProbeData], generator: torch.Generator
) -> tuple[EuclideanProbe, int]:
    """A trained probe of full rank, and after how many epochs."""
    states = data["train"].states
    probe = make(states.size(1), states.size(1), generator).to(states.device)
    return probe, len(train_probe(probe, task, data["train"], data["dev"], generator))


@torch.no_grad()
def _predictions(probe: EuclideanProbe, task: Task, data: ProbeData) -> Iterator[tuple[Tensor, TreeBatch]]:
    for batch in data.batches:
        yield predict(probe, task, data.states, batch), batch


def _score(probe: EuclideanProbe, task: Task, data: ProbeData) -> DistanceScores | DepthScores:
    score = score_distances if task == "distance" else score_depths
    return score(_predictions(probe, task, data))


def _chain(batches: Mapping[str, list[TreeBatch]], drawn: Sequence[int]) -> ProbeResult:
    def distances(part: str) -> Iterator[tuple[Tensor, TreeBatch]]:
        return ((chain_distances(batch.present), batch) for batch in batches[part])

    def scores(part: str) -> Scores:
        depths = ((chain_depths(batch.present), batch) for batch in batches[part])
        return Scores(*score_distances(distances(part)), *score_depths(depths))

    return ProbeResult(CHAIN, None, None, scores("dev"), scores("test"), {}, _edges(distances("test"), drawn))


def _edges(predictions: Iterator[tuple[Tensor, TreeBatch]], drawn: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
    """The minimum spanning trees of some sentences."""
    edges = {}
    for predicted, batch in predictions if drawn else ():
        for place, sentence in enumerate(batch.sentences.tolist()):
            if sentence in drawn:
                (parents,) = spanning_trees(predicted[place : place + 1], batch.scored[place : place + 1]).tolist()
                edges[sentence] = [(word, parent) for word, parent in enumerate(parents) if parent >= 0]
    return edges
