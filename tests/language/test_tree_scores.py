import math

import networkx
import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from tree_cases import random_trees, tree

from hkconv.errors import InputError
from hkconv.language.probes import chain_depths, chain_distances
from hkconv.language.tree_batches import batch_trees
from hkconv.language.tree_scores import matching_edges, score_depths, score_distances, spanning_trees, spearman


def literal_mean_by_length(values):
    """From pairs of a length and a value."""
    means = []
    for length in range(5, 51):
        of_length = [value for size, value in values if size == length]
        if of_length:
            means.append(sum(of_length) / len(of_length))
    return sum(means) / len(means)


def gold_edges(entry):
    marks = entry.is_punctuation
    return {
        frozenset((word, int(head)))
        for word, head in enumerate(entry.heads)
        if head >= 0 and not marks[word] and not marks[head]
    }


def networkx_edges(distances, entry):
    words = [word for word in range(len(entry)) if not entry.is_punctuation[word]]
    graph = networkx.Graph()
    graph.add_weighted_edges_from((i, j, float(distances[i, j])) for i in words for j in words if i < j)
    return {frozenset(edge) for edge in networkx.minimum_spanning_edges(graph, algorithm="kruskal", data=False)}


def literal_distance_scores(predictions, trees):
    correct = total = 0
    correlations = []
    for distances, entry in zip(predictions, trees):
        gold = gold_edges(entry)
        correct += len(gold & networkx_edges(distances, entry))
        total += len(gold)
        correlations += [
            (len(entry), spearmanr(*rows).statistic) for rows in zip(distances, entry.distances()) if len(entry) > 4
        ]
    return correct / total, literal_mean_by_length(correlations)


def literal_depth_scores(predictions, trees):
    correct, correlations = 0, []
    for depths, entry in zip(predictions, trees):
        words = [word for word in range(len(entry)) if not entry.is_punctuation[word]]
        correct += entry.heads[min(words, key=lambda word: depths[word])] == -1
        if len(entry) > 4:
            correlations.append((len(entry), spearmanr(depths, entry.depths).statistic))
    return correct / len(trees), literal_mean_by_length(correlations)


def in_batches(predictions, trees, padding=-7.0):
    """Predictions of single sentences with the batches of the trees, what stands at padding being of no account."""
    for batch in batch_trees(trees):
        shape = batch.distances.shape if predictions[0].ndim == 2 else batch.depths.shape
        padded = torch.full(shape, padding, dtype=torch.float64)
        for place, number in enumerate(batch.sentences.tolist()):
            n = len(trees[number])
            padded[(place, *(slice(n) for _ in shape[1:]))] = torch.from_numpy(predictions[number])
        yield padded, batch


SIZES = [1, 2, 3, 4, 5, 5, 6, 9, 9, 9, 14, 21, 33, 50, 51, 60]


@pytest.mark.parametrize("seed", range(3))
def test_random_distances_as_scored_literally(seed):
    trees, random = random_trees(seed, SIZES), np.random.default_rng(seed)
    # Gold distances and enough noise that some edges are found and some are not.
    predictions = []
    for entry in trees:
        noise = random.random((len(entry),) * 2)
        predictions.append(entry.distances() + 2 * (noise + noise.T) * ~np.eye(len(entry), dtype=bool))
    expected = literal_distance_scores(predictions, trees)
    assert 0.2 < expected[0] < 0.9 and 0.2 < expected[1] < 0.95
    assert score_distances(in_batches(predictions, trees)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_random_depths_as_scored_literally(seed):
    trees, random = random_trees(seed, SIZES), np.random.default_rng(seed)
    predictions = [entry.depths + 2 * random.random(len(entry)) for entry in trees]
    expected = literal_depth_scores(predictions, trees)
    assert 0.1 < expected[0] < 1 and 0.2 < expected[1] < 0.99
    assert score_depths(in_batches(predictions, trees)) == pytest.approx(expected, abs=1e-12)


def test_gold_trees_score_full_marks_and_reversed_ones_none():
    trees = random_trees(5, SIZES)
    assert score_distances(in_batches([entry.distances() for entry in trees], trees)) == pytest.approx((1, 1))
    assert score_depths(in_batches([entry.depths for entry in trees], trees)) == pytest.approx((1, 1))
    assert score_distances(in_batches([-entry.distances() for entry in trees], trees)).dspr == pytest.approx(-1)
    assert score_depths(in_batches([-entry.depths for entry in trees], trees)).nspr == pytest.approx(-1)


def chain_scores(*trees):
    batches = batch_trees(trees)
    distances = score_distances((chain_distances(batch.present), batch) for batch in batches)
    depths = score_depths((chain_depths(batch.present), batch) for batch in batches)
    return (*distances, *depths)


def test_the_chain_on_a_chain():
    assert chain_scores(tree("0 1 2 3 4")) == pytest.approx((1, 1, 1, 1))
    # Hanging from its last word, the edges are the same and the depths the opposite.
    assert chain_scores(tree("2 3 4 5 0")) == pytest.approx((1, 1, 0, -1))


def test_the_chain_on_a_star():
    # All words hang from the third: the chain has two of four edges, and its first word is not the root. Ranks less
    # their mean, by hand. Row 1: -2 -1 0 1 2 and -2 1 -1 1 1. Row 2: -.5 -2 -.5 1 2 and 1 -2 -1 1 1. Row 3: 1.5 -.5 -2
    # -.5 1.5 and .5 .5 -2 .5 .5. Rows 4 and 5 mirror 2 and 1. Depths: -2 -1 0 1 2 and .5 .5 -2 .5 .5.
    dspr = (2 * 6 / math.sqrt(10 * 8) + 2 * 7 / math.sqrt(9.5 * 8) + 5 / math.sqrt(9 * 5)) / 5
    assert chain_scores(tree("3 3 0 3 3")) == pytest.approx((0.5, dspr, 0, 0))


def test_punctuation_is_no_part_of_trees_but_of_ranks():
    # Words 1 and 4 are punctuation: the chain over 2, 3, 5 has the edges 2-3 and 3-5, both gold; the root is word 2,
    # the first that is scored.
    entry = tree("2 0 2 2 3", punctuation="1 4")
    uuas, _, root, nspr = chain_scores(entry)
    assert (uuas, root) == (1, 1)
    assert nspr == pytest.approx(spearmanr((0, 1, 2, 3, 4), (1, 0, 1, 1, 2)).statistic)
    # With them, edges 1-2, 2-3 of 1-2, 2-3, 2-4, 3-5 are found and the first word is not the root.
    assert chain_scores(tree("2 0 2 2 3"))[::2] == (0.5, 0)


def test_edges_of_punctuation_are_not_asked_for():
    # Word 3 is punctuation from which word 4 hangs: the edge of neither counts, 1-2 and 1-5 do.
    entry = tree("0 1 1 3 1", punctuation="3")
    assert chain_scores(entry)[0] == 0.5
    assert score_distances(in_batches([entry.distances()], [entry])).uuas == 1


@pytest.mark.parametrize("seed", range(5))
def test_spanning_trees_weigh_what_those_of_networkx_do(seed):
    # Small whole numbers: many edges of equal weight, many trees, one weight.
    random = np.random.default_rng(seed)
    trees = random_trees(seed, random.integers(1, 25, size=20))
    predictions = []
    for entry in trees:
        weights = random.integers(0, 4, size=(len(entry),) * 2).astype(float)
        predictions.append(weights + weights.T)
    for padded, batch in in_batches(predictions, trees):
        parents = spanning_trees(padded, batch.scored)
        for place, number in enumerate(batch.sentences.tolist()):
            edges = [(word, parent) for word, parent in enumerate(parents[place].tolist()) if parent >= 0]
            expected = networkx_edges(predictions[number], trees[number])
            graph = networkx.Graph(edges)
            graph.add_nodes_from(np.flatnonzero(~trees[number].is_punctuation))
            assert networkx.is_tree(graph)
            assert set(graph) == set(np.flatnonzero(~trees[number].is_punctuation))
            weight = sum(predictions[number][edge] for edge in edges)
            assert weight == sum(predictions[number][tuple(edge)] for edge in expected)


def test_edges_match_in_either_direction():
    heads = torch.tensor([[1, -1, 1, 2]])
    assert matching_edges(torch.tensor([[-1, 0, 1, 1]]), heads).tolist() == [[False, True, True, False]]


def test_spearman_without_an_order_is_zero():
    values = torch.tensor([[3.0, 3.0, 3.0], [1.0, 2.0, 3.0]])
    assert spearman(values, values.flip(0), torch.ones(2, 3, dtype=torch.bool)).tolist() == [0, 0]


def test_nothing_to_score():
    short = [tree("0 1 1"), tree("2 0")]
    with pytest.raises(InputError, match="no sentence of 5 to 50 words"):
        score_depths(in_batches([entry.depths.astype(float) for entry in short], short))
    with pytest.raises(InputError, match="no edge between words"):
        score_distances(in_batches([np.zeros((1, 1))], [tree("0")]))
