import json
import os
from pathlib import Path

import pytest
from own_files import write_people

from hkconv.data import load

SOUND = {"train": [1, 2, 3], "val": [4], "test": [5, 6]}


def rows(stdout, heading):
    """The rows of the table whose heading starts with a word, as lists of words."""
    lines = stdout.splitlines()
    start = next(index for index, line in enumerate(lines) if line.startswith(heading))
    table = lines[start + 2 :]
    return [line.split() for line in table[: table.index("")]]


def test_texas_as_published(hkconv, real_data):
    result = hkconv("audit", "texas", "--protocol", "published", "--data", real_data)
    assert result.exit_code == 1, result.output
    assert " ".join(rows(result.stdout, "split  train")[0]) == "0 160 42 42 88 24 (57 %) 26 (62 %) 11 (26 %)"
    assert "of the unique test nodes are train nodes (split 0: 26 of 42, 62 %)" in result.stdout
    assert rows(result.stdout, "class")[1] == ["1", "1", "0-1", "0-1", "0"]
    for words in (
        "directed, 249 of them one way; 16 self loops",
        "no neighbour (out)   78 (43 %)",
        "203 of 1703",
        "0.061",
    ):
        assert words in result.stdout


def test_a_clean_dataset_within_80_columns(hkconv, real_data):
    result = hkconv("audit", "texas", "--data", real_data)
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("texas: node task, protocol clean") and lines[-1] == "no leak found"
    assert max(map(len, lines)) <= 80
    assert [row[:4] for row in rows(result.stdout, "split  train")] == [[str(i), "87", "59", "37"] for i in range(10)]


def test_raw_chameleon_leaks_and_the_filtered_one_does_not(hkconv, real_data):
    raw = hkconv("audit", "chameleon", "--data", real_data)
    assert raw.exit_code == 1
    assert rows(raw.stdout, "split         neighbours")[0][:4] == ["0", "213", "(47", "%)"]
    assert [row[-3] for row in rows(raw.stdout, "graph") if row[:2] == ["no", "neighbour"]] == ["1413", "2", "0"]
    assert hkconv("audit", "chameleon-filtered", "--data", real_data).exit_code == 0


def test_graphs_without_a_test_set(hkconv, real_data):
    result = hkconv("audit", "PTC", "--protocol", "published", "--data", real_data)
    assert result.exit_code == 1
    assert "leak: 100 % of the unique test graphs are val graphs" in result.stdout
    assert "homophily" not in result.stdout and "undirected" in result.stdout


def test_own_splits(hkconv):
    Path("sound.json").write_text(json.dumps(SOUND))
    result = hkconv("audit", "tree", "--split-file", "sound.json")
    assert result.exit_code == 0, result.output
    assert "tree: node task, protocol own" in result.stdout
    Path("faulty.json").write_text(json.dumps({**SOUND, "test": [3, 6]}))
    result = hkconv("audit", "tree", "--split-file", "faulty.json")
    assert result.exit_code == 1
    assert "leak: 50 % of the unique test nodes are train nodes" in result.stdout


def test_classes_are_counted_from_the_fewest_to_the_most_over_the_splits(hkconv):
    labels = load("tree").labels
    ones, others = (labels == 1).nonzero().flatten().tolist(), (labels != 1).nonzero().flatten().tolist()
    rest = {"val": others[5:7], "test": [*ones[8:10], others[7]]}
    splits = [{"train": ones[:count] + others[:5], **rest} for count in (4, 1, 6)]
    Path("mine.json").write_text(json.dumps(splits))
    result = hkconv("audit", "tree", "--split-file", "mine.json")
    assert rows(result.stdout, "class")[1] == ["1", str(len(ones)), "1-6", "0", "2"], result.output


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("tre",), "unknown dataset 'tre': did you mean tree"),
        (("tree", "--protocol", "fair"), "protocol must be clean or published, got 'fair'"),
        (("tree", "--protocol", "published"), "'published' does not cover the node task of dataset 'tree'"),
        (("tree", "--split-file", "absent.json"), "split file absent.json cannot be read"),
        (("tree", "--split-file", "splits.txt"), "split file must end in .json or .npz"),
        (("texas", "--data", "nowhere"), "nowhere"),
    ],
)
def test_bad_input(hkconv, in_empty_folder, arguments, words):
    assert words in hkconv.fails("audit", *arguments)
    assert os.listdir(in_empty_folder) == []


def test_indices_beyond_the_dataset(hkconv):
    Path("mine.json").write_text(json.dumps({**SOUND, "test": [971]}))
    assert "mentions index 971, but indices end at 970" in hkconv.fails("audit", "tree", "--split-file", "mine.json")


def test_own_data(hkconv):
    write_people(Path("people"))
    result = hkconv("audit", "people")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("people: node task, protocol clean")
    assert [row[0] for row in rows(result.stdout, "class")] == ["chef", "junior", "senior"]
    assert "3 self loops" in result.stdout and result.stdout.splitlines()[-1] == "no leak found"
    assert "protocol must be 'clean' for own data" in hkconv.fails("audit", "people", "--protocol", "published")


def test_a_copied_person_leaks(hkconv):
    """Every node has a copy with the same neighbours, features and label, and unlabelled ones do not count."""
    Path("twins").mkdir()
    nodes = [f"{name}{number},{number},{'ab'[number % 2]}" for number in range(40) for name in "xy"]
    more = [f"{name}{number},1," for number in range(40, 60) for name in "xy"]
    Path("twins/nodes.csv").write_text("\n".join(["id,f,label", *nodes, *more]) + "\n")
    edges = [f"{name}{number},x{40 + (number + step) % 20}" for number in range(40) for name in "xy" for step in (3, 7)]
    Path("twins/edges.csv").write_text("\n".join(["source,target", *edges]) + "\n")
    result = hkconv("audit", "twins")
    assert result.exit_code == 1, result.output
    assert "leak: " in result.stdout and "neighbours and features" in result.stdout


def test_homophily_counts_links_between_two_known_classes(hkconv):
    Path("few").mkdir()
    nodes = [
        "a0,1,x",
        "a1,2,x",
        "a2,3,x",
        "a3,5,x",
        "a4,6,x",
        "b0,1,y",
        "b1,2,y",
        "b2,3,y",
        "b3,3,y",
        "b4,3,y",
        "c,4,",
        "d,5,",
    ]
    Path("few/nodes.csv").write_text("\n".join(["id,f,label", *nodes]) + "\n")
    Path("few/edges.csv").write_text("source,target\na0,a1\na0,b0\nb0,b1\nb1,b2\nc,d\na0,c\n")
    result = hkconv("audit", "few")
    # Three links of four, with three and five of eight ends: (3/4 - 34/64) / (1 - 34/64).
    assert "edge homophily       0.750" in result.stdout and "adjusted             0.467" in result.stdout
