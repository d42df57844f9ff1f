import json

from tree_cases import tree

from hkconv.language.probe_data import TokenizedTrees
from hkconv.language.probe_report import as_markdown, best_layers, result_cells, tree_pictures, write_probe_report
from hkconv.language.probing import CHAIN, ProbeResult, Scores

TEST = TokenizedTrees([tree("2 0"), tree("0 1")], [1, 4], [[], []], [[], []], 0, 0)


def result(encoder, layer, probe, dev_uuas, test_uuas):
    return ProbeResult(
        encoder,
        layer,
        probe,
        Scores(dev_uuas, 0.5, 0.25, 0.125),
        Scores(test_uuas, 0.754, 0.3333, -0.1),
        {"distance": 7, "depth": 9},
        {1: [(1, 0)]},
    )


RESULTS = [
    ProbeResult(CHAIN, None, None, Scores(0.4, 0.5, 0.2, 0.3), Scores(0.41, 0.5, 0.2, 0.3), {}, {1: [(1, 0)]}),
    result("trained", 0, "euclidean", 0.3, 0.9),
    result("trained", 0, "hyperbolic", 0.7, 0.61),
    result("trained", 1, "euclidean", 0.6, 0.55),
    result("trained", 1, "hyperbolic", 0.7, 0.99),
]


def test_the_best_layer_is_chosen_on_dev_and_the_first_of_equals():
    assert best_layers(RESULTS) == [RESULTS[0], RESULTS[3], RESULTS[2]]


def test_a_row():
    assert result_cells(RESULTS[1]) == ["trained", "0", "euclidean", "90.0", "0.75", "33.3", "-0.10"]
    assert result_cells(RESULTS[0])[:4] == [CHAIN, "-", "-", "41.0"]


def test_the_table_in_markdown():
    lines = as_markdown("Title", RESULTS).splitlines()
    assert lines[0] == "# Title"
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + len(RESULTS)
    assert {line.count("|") for line in table} == {8}
    assert [line.startswith("| **trained**") for line in table[2:]] == [False, False, True, True, False]


def test_the_files(tmp_path):
    written = write_probe_report(tmp_path / "deep" / "out", "Title", {"seed": 3}, RESULTS, TEST)
    assert [path.name for path in written] == ["probe.json", "probe.md", "trees.svg"]
    stored = json.loads(written[0].read_text())
    assert stored["seed"] == 3 and len(stored["results"]) == len(RESULTS)
    assert stored["results"][1] == {
        "encoder": "trained",
        "layer": 0,
        "probe": "euclidean",
        "epochs": {"distance": 7, "depth": 9},
        "dev": {"uuas": 0.3, "dspr": 0.5, "root": 0.25, "nspr": 0.125},
        "test": {"uuas": 0.9, "dspr": 0.754, "root": 0.3333, "nspr": -0.1},
    }
    assert written[1].read_text() == as_markdown("Title", RESULTS)
    assert written[2].read_text().count('class="right"') == 3


def test_pictures_are_of_the_best_layers():
    pictures = tree_pictures(RESULTS, TEST)
    assert [picture.title for picture in pictures] == [
        "linear chain: test sentence 4",
        "trained, layer 1, euclidean probe: test sentence 4",
        "trained, layer 0, hyperbolic probe: test sentence 4",
    ]
    assert all(picture.tree is TEST.trees[1] for picture in pictures)
