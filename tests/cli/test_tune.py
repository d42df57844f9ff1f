from pathlib import Path

import pytest
import yaml

from hkconv.experiments.store import read

NODE = """\
metric: accuracy
settings: {epochs: 2, hidden_dim: 4, num_layers: 1}
systems: {MLP: {model: mlp}, GCN: {model: gcn}}
protocols: {clean: {num_splits: 2, seeds: 1}}
quick: {num_splits: 1, epochs: 1}
datasets: {tree: {}}
"""
SPACE = "trials: 3\nnum_splits: 1\nspace: {lr: [0.01, 0.02, 0.03, 0.05, 0.1], hidden_dim: [3, 4, 5, 6]}\nown: {}\n"


@pytest.fixture
def arguments(in_empty_folder):
    for name, text in (("node", NODE), ("tuning/node", SPACE)):
        path = Path("recipes", f"{name}.yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return ("tune", "node", "--recipes", "recipes", "--results", "records", "--device", "cpu")


def test_tunes_tells_and_writes(hkconv, arguments):
    result = hkconv(*arguments, "--write")
    assert result.exit_code == 0, result.output
    assert "tree clean MLP: validation " in result.stdout and "3 of 3 trials" in result.stdout
    assert "test" not in result.stdout
    records, _ = read(Path("records"), ["tuning-node"])
    assert len(records) == 6 and all(record["test"] is None for record in records)
    tuned = yaml.safe_load(Path("recipes/tuned/node.yaml").read_text())["tree"]["clean"]
    for label in ("MLP", "GCN"):
        best = max(
            (record for record in records if record["variant"] == label), key=lambda one: (one["val"], -one["val_loss"])
        )
        assert {name: best["recipe"][name] for name in tuned[label]} == tuned[label]


def test_links_are_tuned_reproduced_and_reported(hkconv, arguments):
    links = NODE.replace("accuracy", "ROC-AUC\ntask: link").replace(
        "GCN: {model: gcn}", "HKN (views): {model: hkn, form: views, readout: all}"
    )
    Path("recipes/links.yaml").write_text(links)
    Path("recipes/tuning/links.yaml").write_text(SPACE)
    places = ("--recipes", "recipes", "--results", "records", "--device", "cpu")
    result = hkconv("tune", "links", *places, "--write")
    assert result.exit_code == 0, result.output
    assert "tree clean HKN (views): validation " in result.stdout
    assert set(yaml.safe_load(Path("recipes/tuned/links.yaml").read_text())["tree"]["clean"]) == {"MLP", "HKN (views)"}
    assert hkconv("reproduce", "links", "--quick", *places).exit_code == 0
    records, _ = read(Path("records"), ["links"])
    assert [record["metric"] for record in records] == ["ROC-AUC"] * 2 and all(
        "test_ap" in record for record in records
    )
    assert hkconv("report", "--results", "records", "--out", "out").exit_code == 0
    assert "## Link prediction" in Path("out/report.md").read_text()


def test_without_write_nothing_but_records_is_written(hkconv, arguments):
    assert hkconv(*arguments, "--trials", "1", "--splits", "2", "--systems", "MLP").exit_code == 0
    assert not Path("recipes/tuned").exists()
    assert len(read(Path("records"), ["tuning-node"])[0]) == 2


def test_networks_of_one_architecture_are_trained_at_once_where_it_is_asked_for(hkconv, arguments):
    result = hkconv(*arguments, "--splits", "2", "--batch", "2")
    assert result.exit_code == 0, result.output
    records, _ = read(Path("records"), ["tuning-node"])
    assert len(records) == 12 and all(record["batch"] == 2 for record in records)


@pytest.mark.parametrize(
    "options, words",
    [
        (("--systems", "GNN"), "unknown system 'GNN' of these tables"),
        (("--trials", "-1"), "trials must be a whole number of at least 1 and at most 1000000000, got -1"),
        (("--batch", "0"), "batch must be a whole number of at least 1 and at most 1000000000, got 0"),
        (("--batch", "2", "--capture"), "capture records the steps of one network: batch must be 1 with it, got 2"),
        (("--protocol", "published"), "no recipe of table 'node' has protocol 'published'"),
    ],
)
def test_bad_input_is_one_line(hkconv, arguments, options, words):
    result = hkconv(*arguments, *options)
    assert result.exit_code == 2
    assert words in result.stderr and len(result.stderr.strip().splitlines()) == 1
    assert not Path("records").exists()


def test_a_table_that_cannot_be_tuned(hkconv):
    result = hkconv("tune", "runtime")
    assert result.exit_code == 2 and "table 'runtime' cannot be tuned; accepted: graph, links, node" in result.stderr
