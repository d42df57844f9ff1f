import math
import re
from pathlib import Path
from textwrap import indent

import pytest
import yaml
from fuzzing import changed as changes_of
from fuzzing import fuzzed, input_errors_alone
from hypothesis import strategies as st

from hkconv.data.catalog import CATALOG
from hkconv.errors import InputError
from hkconv.experiments.epochs import PAPER_DATASETS
from hkconv.experiments.recipe_files import PAPER_SYSTEMS, RECIPES, TABLES, TRAINED_TABLES, read_table, table_names
from hkconv.experiments.spaces import read_tuning
from hkconv.experiments.tables import Choice, list_cells
from hkconv.models import MODELS
from hkconv.tasks.recipe import make_recipe

TU = ["ptc", "enzymes", "proteins", "imdb-binary", "imdb-multi"]
NODE = ["cornell", "texas", "wisconsin", "chameleon", "squirrel", "actor", "cora", "pubmed"]
DATASETS = {
    "graph": {*TU, "enzymes-labels", "proteins-labels"},
    "molecules": {"ogbg-molhiv", "ogbg-molpcba", "muv"},
    "node": {*NODE, "cornell-legacy", "chameleon-filtered", "squirrel-filtered"},
    "kernels-graph": set(TU),
    "kernels-node": set(NODE),
    "ablations": {*TU, "cornell", "texas", "wisconsin", "chameleon", "squirrel", "actor", "cora"},
    "links": {"disease-lp", "airport", "cora", "pubmed"},
}
SYSTEMS = {"MLP", "GCN", "GAT", "GraphSAGE", "GCNII", "GIN", "HGCN", "H2H-GCN", "HyboNet", "WLHN"}
NODE_SYSTEMS = SYSTEMS | {"LINKX", "Geom-GCN", "WRGAT", "GloGNN", "GloGNN++"}
GRAPH_SYSTEMS = SYSTEMS | {"GMT"}
STRONGER = {"HKN (flat)", "GCN+", "GAT+", "GraphSAGE+"}
KERNEL_COUNTS = [f"K={count}" for count in range(2, 10)]
ALL = [(table, recipe) for table in TRAINED_TABLES for recipe in read_table(table)]


def changed(folder: Path, table: str, changes: dict) -> Path:
    """The file of a table with some of its keys changed; None takes a key away. Its dataset says nothing by itself."""
    path = folder / f"{table}.yaml"
    values = {**yaml.safe_load(path.read_text()), "datasets": {"tree": {}}, **changes}
    path.write_text(yaml.safe_dump({key: value for key, value in values.items() if value is not None}))
    return path


@pytest.mark.parametrize("table", TRAINED_TABLES)
def test_every_table_has_its_datasets(table):
    assert {recipe.dataset for recipe in read_table(table)} == DATASETS[table]


@pytest.mark.parametrize("table, recipe", ALL, ids=[f"{table}/{recipe.dataset}" for table, recipe in ALL])
def test_shipped_recipes_are_sound(table, recipe):
    assert recipe.table == table
    assert recipe.dataset in CATALOG
    assert {system.model for system in recipe.systems.values()} <= set(MODELS)
    assert "clean" in recipe.protocols
    for repeats in (*recipe.protocols.values(), recipe.quick):
        for system in recipe.systems.values():
            for protocol in recipe.protocols:
                make_recipe({**recipe.settings, **system.chosen_for(protocol), **repeats.settings})
    if recipe.dataset in PAPER_DATASETS and (table in ("node", "graph") or table.startswith("kernels")):
        assert set(recipe.protocols) == {"clean", "published"}
        assert any(figure is not None for figure in recipe.paper.values())


def test_every_system_has_a_line():
    for recipe in read_table("node"):
        assert {"HKN", "HKN (views)", *NODE_SYSTEMS, *STRONGER, "GCNII+", "ACM-GCN", "Dir-GNN"} == set(recipe.systems)
        assert set(PAPER_SYSTEMS) & NODE_SYSTEMS - {"GIN"} <= set(recipe.paper)
    for recipe in read_table("graph"):
        assert {"HKN", "HKN-direct", "HKN (views)", *GRAPH_SYSTEMS, *STRONGER} == set(recipe.systems)
        assert recipe.systems["HKN-direct"].settings == {**recipe.systems["HKN"].settings, "relative": False}
    for recipe in read_table("molecules"):
        with_bonds = {name: f"{name} with bonds" for name in ("HKN (views)", "GCN", "GAT", "GraphSAGE", "GIN")}
        assert {"HKN", "HKN (views)", *GRAPH_SYSTEMS, *with_bonds.values()} == set(recipe.systems)
        for name, other in with_bonds.items():
            assert recipe.systems[other].settings == {**recipe.systems[name].settings, "edge_attributes": True}
    for recipe in (*read_table("kernels-graph"), *read_table("kernels-node")):
        assert list(recipe.systems) == list(recipe.paper) == KERNEL_COUNTS
        assert [system.settings["kernel_size"] for system in recipe.systems.values()] == list(range(2, 10))
    for recipe in read_table("ablations"):
        assert {"HKN", "HKN-direct", "HKN-random", "HKN-train", "HKN+mass"} < set(recipe.systems)
        assert recipe.systems["HKN-direct"].settings["relative"] is False
        is_node = CATALOG[recipe.dataset].tasks[0] == "node"
        assert ("HKN+structure" in recipe.systems) == is_node
        assert ("HKN one way" in recipe.systems) == (is_node and CATALOG[recipe.dataset].one_way)


@pytest.mark.parametrize("table", ["node", "graph"])
def test_a_stronger_form_differs_from_its_classic_in_what_is_tuned_alone(table):
    own = read_tuning(table).sampler.own
    for recipe in read_table(table):
        for label in {"GCN", "GAT", "GraphSAGE", "GCNII"} & {name.removesuffix("+") for name in recipe.systems}:
            if f"{label}+" in recipe.systems:
                stronger = recipe.systems[f"{label}+"]
                assert (stronger.model, stronger.settings) == (recipe.systems[label].model, {})
                assert own[f"{label}+"].items() > own.get(label, {}).items()


def test_links_are_the_task_of_their_table():
    for recipe in read_table("links"):
        assert (recipe.task, recipe.metric) == ("link", "ROC-AUC")
        assert {"HKN", "HKN (views)", *SYSTEMS} - {"GCNII", "GIN", "WLHN"} == set(recipe.systems)
        forms = [recipe.systems[label].settings["form"] for label in ("HKN", "HKN (views)")]
        assert forms == ["paper", "views"]
        assert set(recipe.protocols) == {"clean"} and recipe.protocols["clean"].num_splits == 10
    for cell in list_cells(read_table("links"), Choice(quick=True)):
        assert cell.recipe.data.task == "link"


def test_all_systems_of_a_dataset_have_the_same_budget():
    for _, recipe in ALL:
        for system in recipe.systems.values():
            assert not {"epochs", "patience", "batch_size"} & set(system.settings)


def test_a_derived_recipe_differs_in_what_it_says_alone():
    kernels = {recipe.dataset: recipe for recipe in read_table("kernels-node")}
    for base in read_table("node"):
        if base.dataset in kernels:
            derived = kernels[base.dataset]
            assert (derived.settings, derived.protocols, derived.quick) == (base.settings, base.protocols, base.quick)
            hkn = base.systems["HKN"].settings
            assert derived.systems["K=5"].settings == {**hkn, "kernel_size": 5}
    for recipe in read_table("ablations"):
        if recipe.dataset in TU:
            assert recipe.paper["HKN-direct"] is not None
            assert math.isnan(recipe.paper["HKN-train"][0])


@pytest.mark.parametrize(
    "label, table, columns",
    [
        ("nc", "node", NODE),
        ("nckp", "kernels-node", NODE),
        ("gctable", "graph", TU),
        ("kptable", "kernels-graph", TU),
        ("gcltable", "molecules", ["ogbg-molhiv", "ogbg-molpcba"]),
    ],
)
def test_figures_are_the_papers(real_data, label, table, columns):
    paper = real_data.parent / "paper" / "hkconv.tex"
    if not paper.exists():
        pytest.skip("the paper's source is not here")
    text = paper.read_text()
    end = text.index(rf"\label{{tab:{label}}}")
    rows = text[text.rindex(r"\begin{tabular}", 0, end) : end].split(r"\\")
    recipes = {recipe.dataset: recipe for recipe in read_table(table)}
    checked = 0
    for row in rows:
        name = ["", *row.split("&")[: -len(columns)]][-1]
        cells = [re.sub(r"\\textbf|\\midrule|[{}$\s]", "", cell) for cell in row.split("&")[-len(columns) :]]
        if not all(re.fullmatch(r"[\d.]+\\pm[\d.]+|NaN|-", cell) for cell in cells):
            continue
        name = re.sub(r"\\citep\{[^}]*\}|\\midrule|\\toprule|\(Ours\)|[{}]", "", name).strip()
        for column, cell in zip(columns, cells):
            figure = recipes[column].paper[f"K={name}" if name.isdigit() else name]
            if cell == "-":
                assert figure is None
            elif cell == "NaN":
                assert math.isnan(figure[0])
            else:
                assert figure == tuple(map(float, cell.split(r"\pm")))
            checked += 1
    assert checked == {"nc": 120, "nckp": 64, "gctable": 55, "kptable": 40, "gcltable": 12}[label]


def test_settings_go_from_general_to_particular(recipes):
    (recipe,) = read_table("node", recipes)
    assert recipe.settings["epochs"] == 3
    assert recipe.systems["GCN"].settings == {"lr": 0.005}
    assert recipe.systems["HKN"].settings == {"relative": False, "kernel_size": 2}
    assert (recipe.quick.num_splits, recipe.quick.seeds, recipe.quick.settings) == (1, 1, {"epochs": 1})
    (derived,) = read_table("kernels-node", recipes)
    assert derived.systems["K=3"].settings == {"kernel_size": 3, "relative": False}
    assert derived.paper == {"K=3": (1.5, 0.5)}


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"epoch": 3}, "unknown key 'epoch'; accepted: metric, paper"),
        ({"datasets": {"tree": {"epoch": 3}}}, "unknown key of dataset 'tree' 'epoch'; accepted: metric, paper"),
        ({"datasets": {"tree": None}}, "dataset 'tree' must hold keys and values, got None"),
        ({"datasets": {}}, "datasets must name at least one"),
        ({"setings": {}}, "unknown key 'setings'; did you mean 'settings'?"),
        ({"metric": None}, "key 'metric' is missing"),
        ({"datasets": {"texsa": {}}}, "unknown dataset 'texsa'; did you mean 'texas'?"),
        ({"metric": "accurcy"}, "unknown metric 'accurcy'; did you mean 'accuracy'?"),
        ({"metric": "AP"}, "metric of dataset 'tree' must be 'accuracy', got 'AP'"),
        ({"task": "link"}, "metric of dataset 'tree' must be 'ROC-AUC', got 'accuracy'"),
        ({"task": "graph"}, "unknown task of dataset 'tree' 'graph'; accepted: node, link"),
        (
            {"systems": {"GCN": {"model": "gcni"}}, "datasets": {"tree": {}}},
            "unknown model of system 'GCN' 'gcni'; did you mean 'gcnii'?",
        ),
        (
            {"systems": {"GMT": {"model": "gmt"}}, "datasets": {"tree": {}}},
            "model 'gmt' has no node task",
        ),
        (
            {"systems": {"GCN": {"model": "gcn", "mass": True}}, "datasets": {"tree": {}}},
            "mass is no setting of model 'gcn'",
        ),
        (
            {"systems": {"GCN": {"model": "gcn", "lrr": 1}}, "datasets": {"tree": {}}},
            "unknown key of system 'GCN' 'lrr'; did you mean 'lr'?",
        ),
        ({"systems": {}}, "systems must name at least one"),
        (
            {"systems": {"GCN, deep": {"model": "gcn"}}, "datasets": {"tree": {}}},
            "name of system 'GCN, deep' must have no comma",
        ),
        ({"systems": ["GCN"]}, "systems must hold keys and values"),
        ({"settings": {"hiden_dim": 3}}, "unknown key of settings 'hiden_dim'; did you mean 'hidden_dim'?"),
        ({"settings": {"device": "cpu"}}, "unknown key of settings 'device'"),
        (
            {"settings": {"epochs": "many"}},
            "epochs must be a whole number of at least 1 and at most 1000000000, got 'many'",
        ),
        ({"paper": {"HyboNett": [1, 2]}}, "unknown system of paper 'HyboNett'; did you mean 'HyboNet'?"),
        ({"paper": {"GCN": 70}}, r"paper's figure of 'GCN' must be [mean, deviation] or null, got 70"),
        ({"protocols": {"clear": {}}}, "unknown protocol 'clear'; did you mean 'clean'?"),
        ({"protocols": {"clean": {"num_splits": 0, "seeds": 1}}}, "num_splits must be a whole number of at least 1"),
        ({"protocols": {"published": {"num_splits": 1, "seeds": 1}}}, "protocol 'published' does not cover"),
        ({"quick": {"epochs": 1}}, "key of quick 'num_splits' is missing"),
    ],
)
def test_what_is_wrong_is_named_with_its_file(recipes, changes, words):
    path = changed(recipes, "node", changes)
    with pytest.raises(InputError) as caught:
        read_table("node", recipes)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"recipe {path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"base": "nodes"}, "unknown table 'nodes'; did you mean 'node'?"),
        ({"base": "graph"}, "graph.yaml cannot be read"),
        ({"base": "../node"}, "unknown table '../node'"),
        ({"of": "HNK"}, "unknown system of node.yaml 'HNK'; did you mean 'HKN'?"),
        ({"variants": "kernels"}, "variants must hold keys and values, got 'kernels'"),
        ({"variants": {"K=2": 2}}, "variant 'K=2' must hold keys and values, got 2"),
        ({"settings": {}}, "unknown key 'settings'"),
        ({"datasets": {"texas": {}}}, "unknown dataset of node.yaml 'texas'"),
        ({"datasets": {"tree": {"more": ["deep"]}}}, "unknown name in more 'deep'"),
        ({"datasets": {"tree": {"more": "deep"}}}, "more must be a list of names in more_variants, got 'deep'"),
        ({"paper": {"K=4": [1, 2]}}, "unknown system of paper 'K=4'; did you mean 'K=3'?"),
    ],
)
def test_what_is_wrong_with_a_derived_recipe(recipes, changes, words):
    changed(recipes, "kernels-node", changes)
    with pytest.raises(InputError) as caught:
        read_table("kernels-node", recipes)
    assert words in str(caught.value)


def test_a_dataset_has_no_system_and_no_protocol_that_it_takes_away(recipes):
    protocols = {name: {"num_splits": 1, "seeds": 1} for name in ("clean", "published")}
    differences = {"systems": {"GCN": None, "HKN": {"kernel_size": 2}}, "protocols": {"published": None}}
    changed(recipes, "node", {"protocols": protocols, "datasets": {"tree": differences}})
    (recipe,) = read_table("node", recipes)
    assert set(recipe.systems) == {"MLP", "HKN"} and list(recipe.protocols) == ["clean"]


def test_a_table_without_recipes(recipes):
    with pytest.raises(InputError, match="table 'graph' has no recipes"):
        read_table("graph", recipes)


def test_recipes_lie_within_the_package():
    assert (RECIPES / "node.yaml").is_file()


def tune_tree(folder: Path, text: str) -> Path:
    path = folder / "tuned" / "node.yaml"
    path.parent.mkdir(parents=True)
    path.write_text("tree:\n" + indent(text, "  "))
    return folder


def test_tuned_settings_go_before_given_ones(recipes):
    tune_tree(recipes, "clean: {GCN: {lr: 0.1, dropout: 0.7}, HKN: {kernel_size: 9, lr: 0.2}}")
    (recipe,) = read_table("node", recipes)
    assert recipe.systems["GCN"].chosen_for("clean") == {"lr": 0.1, "dropout": 0.7}
    assert recipe.systems["MLP"].chosen_for("clean") == {}
    (kernels,) = read_table("kernels-node", recipes)
    # What makes a variant goes before what was tuned for the system that it is one of.
    assert kernels.systems["K=3"].chosen_for("clean") == {"kernel_size": 3, "relative": False, "lr": 0.2}


def test_what_was_tuned_for_a_protocol_is_for_it_alone(recipes):
    tune_tree(recipes, "clean: {GCN: {lr: 0.1}}\npublished: {GCN: {lr: 0.3}, MLP: {lr: 0.4}}")
    (recipe,) = read_table("node", recipes)
    found = {
        name: [recipe.systems[name].chosen_for(protocol) for protocol in ("clean", "published")]
        for name in ("GCN", "MLP")
    }
    assert found == {"GCN": [{"lr": 0.1}, {"lr": 0.3}], "MLP": [{}, {"lr": 0.4}]}


@pytest.mark.parametrize(
    "text, words",
    [
        ("clean: {GNN: {lr: 0.1}}", "unknown system in tuned 'GNN'; did you mean 'GCN'"),
        ("cleen: {GCN: {lr: 0.1}}", "unknown protocol of tree in tuned 'cleen'"),
        ("clean: {GCN: {lr: 0}}", "lr must be a number above 0"),
        ("clean: {GCN: {kernel_size: 3}}", "kernel_size is no setting of model 'gcn'"),
    ],
)
def test_a_wrong_tuned_file_is_refused(recipes, text, words):
    tune_tree(recipes, text)
    with pytest.raises(InputError, match=words):
        read_table("node", recipes)


def test_a_dataset_has_the_variants_that_it_asks_for_too(recipes):
    more = {
        "more_variants": {"wide": {"wide": {"hidden_dim": 9}}, "deep": {}},
        "datasets": {"tree": {"more": ["wide"]}},
    }
    changed(recipes, "kernels-node", more)
    (derived,) = read_table("kernels-node", recipes)
    assert list(derived.systems) == ["K=2", "K=3", "wide"]


FILES = ("node", "kernels-node", "tuned/node", "tuning/node")


@fuzzed(drawn=st.data())
def test_whatever_the_files_say_only_input_errors_come_out(recipes, drawn):
    """One of the files that belong to a table, with a few of its values changed."""
    file = drawn.draw(st.sampled_from([name for name in FILES if (recipes / f"{name}.yaml").exists()]))
    path = recipes / f"{file}.yaml"
    before = path.read_text()
    values = drawn.draw(changes_of(yaml.safe_load(before)))
    try:
        path.write_text(yaml.safe_dump(values))
    # What YAML cannot write it cannot read.
    except (ValueError, yaml.YAMLError):
        return
    try:
        for read in (read_table, read_tuning):
            for table in ("node", "kernels-node"):
                with input_errors_alone():
                    read(table, recipes)
    finally:
        path.write_text(before)


def test_names_of_tables():
    assert table_names("node") == ("node",)
    assert table_names("all") == TABLES
    with pytest.raises(InputError, match=r"unknown table 'nodes'; did you mean 'node'\?"):
        table_names("nodes")
