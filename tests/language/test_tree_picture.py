from xml.etree import ElementTree

from tree_cases import tree

from hkconv.data.treebanks import DependencyTree
from hkconv.language.tree_picture import GOLD, RIGHT, UNSCORED, WRONG, TreePicture, draw_trees

SVG = "{http://www.w3.org/2000/svg}"


def drawn(*pictures):
    root = ElementTree.fromstring(draw_trees(pictures))
    paths = {kind: [] for kind in ("gold", "right", "wrong")}
    for entry in root.iter(SVG + "path"):
        paths[entry.get("class")].append(entry)
    return root, paths


def middles(root, forms):
    words = (entry for entry in root.iter(SVG + "text") if entry.text in forms)
    return {entry.text: (float(entry.get("x")), float(entry.get("y"))) for entry in words}


def ends(path, places):
    """The words that an arc joins, and whether it goes above."""
    numbers = path.get("d").split()
    found = {x: form for form, (x, _) in places.items()}
    return {found[float(numbers[1])], found[float(numbers[9])]}, numbers[8] == "1"


def test_edges_join_their_words_on_their_side_in_their_colour():
    entry = tree("2 0 2 5 2 2", punctuation="6")
    root, paths = drawn(TreePicture("a title", entry, [(1, 0), (2, 1), (3, 2), (4, 3)]))
    places = middles(root, entry.forms)
    assert [ends(path, places) for path in paths["gold"]] == [
        ({f"w{word}", f"w{head}"}, True) for word, head in ((0, 1), (2, 1), (3, 4), (4, 1), (5, 1))
    ]
    assert [path.get("stroke") for path in paths["gold"]] == [GOLD] * 4 + [UNSCORED]
    assert [ends(path, places)[0] for path in paths["right"]] == [{"w0", "w1"}, {"w1", "w2"}, {"w3", "w4"}]
    assert [ends(path, places)[0] for path in paths["wrong"]] == [{"w2", "w3"}]
    assert not any(ends(path, places)[1] for path in paths["right"] + paths["wrong"])
    assert {path.get("stroke") for path in paths["right"]} == {RIGHT}
    assert [(path.get("stroke"), path.get("stroke-dasharray")) for path in paths["wrong"]] == [(WRONG, "5 3")]
    assert [text.text for text in root.iter(SVG + "text") if text.get("font-weight") == "bold"] == ["a title", "w1"]


def test_everything_lies_within_the_picture_and_sentences_below_each_other():
    long = tree(" ".join(["0"] + ["1"] * 19))
    edges = [(word, 0) for word in range(1, 20)]
    root, paths = drawn(TreePicture("first", long, edges), TreePicture("second", tree("0 1"), [(1, 0)]))
    width, height = float(root.get("width")), float(root.get("height"))
    for path in paths["gold"] + paths["right"]:
        numbers = path.get("d").split()
        reach, y = float(numbers[5]), float(numbers[2])
        assert y - reach > 0 if path.get("class") == "gold" else y + reach < height
        assert 0 < float(numbers[1]) < float(numbers[9]) < width
    titles = [float(text.get("y")) for text in root.iter(SVG + "text") if text.text in ("first", "second")]
    lowest = max(float(path.get("d").split()[2]) + float(path.get("d").split()[5]) for path in paths["right"][:-1])
    assert titles[0] < lowest < titles[1]


def test_words_that_are_markup_and_a_word_alone():
    entry = tree("0")
    root, paths = drawn(TreePicture("<&>", DependencyTree(("<b>&\"'",), entry.heads, entry.is_punctuation), []))
    assert {"<&>", "<b>&\"'"} <= {text.text for text in root.iter(SVG + "text")}
    assert not any(paths.values())
