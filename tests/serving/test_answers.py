import json

from hkconv.serving.answers import answer_of, info_of
from hkconv.serving.service import load_service


def test_predictions_name_the_class_and_every_probability(papers):
    predictions = load_service(papers, device="cpu").nodes(["paper 4", "paper 2"])
    sent = json.loads(json.dumps(answer_of(predictions)))
    assert [entry["id"] for entry in sent["predictions"]] == ["paper 4", "paper 2"]
    for entry, row in zip(sent["predictions"], predictions.probabilities.tolist()):
        assert entry["probabilities"] == dict(zip(("high", "low", "mid"), row))
        assert entry["class"] == max(entry["probabilities"], key=entry["probabilities"].get)


def test_a_run_says_what_it_must_be_asked_with(papers, shapes):
    info = info_of(load_service(papers, device="cpu"))
    assert (info.model, info.dataset, info.task, info.is_weighted, info.num_nodes) == (
        "gcn",
        "papers",
        "node",
        True,
        60,
    )
    assert [(one.name, one.categories) for one in info.features] == [
        ("age", None),
        ("colour", ["blue", "green", "red"]),
    ]
    assert (info.num_features, info.classes) == (4, ["high", "low", "mid"])
    other = info_of(load_service(shapes, device="cpu"))
    assert (other.task, other.features, other.num_features, other.num_nodes) == ("graph", None, 2, None)
