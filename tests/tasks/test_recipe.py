import json
import re
import subprocess
import sys

import first_release
import pytest
from fuzzing import changed, damaged, fuzzed, input_errors_alone
from hypothesis import strategies as st

from hkconv.engine.settings import RuntimeOptions
from hkconv.errors import InputError
from hkconv.models.options import OPTIONS_OF_PAPER, REMOVED_OPTIONS, HKNOptions
from hkconv.tasks.recipe import FIRST_RELEASE, Recipe, make_recipe, read_recipe_file, upgraded


def test_defaults_are_valid_and_fit_in_json():
    recipe = Recipe()
    assert (recipe.data.dataset, recipe.model.models, recipe.optim.seeds) == ("tree", ("hkn", "mlp", "gcn"), 1)
    hkn = recipe.model.hkn
    assert (hkn.form, hkn.norm, hkn.hidden_act, hkn.readout, hkn.reach) == ("views", *[None] * 4)
    assert make_recipe(json.loads(json.dumps(recipe.flat()))) == recipe


def test_a_name_occurs_once_in_all_groups():
    groups = Recipe.groups().values()
    assert len(Recipe.options()) == sum(len(group.options()) for group in groups)
    assert list(Recipe.options()) == list(Recipe().flat()) == [name for group in groups for name in group.options()]


def test_by_group_or_by_name_it_is_the_same():
    flat = make_recipe({"dataset": "texas", "data": "there", "form": "paper", "dropout": 0.1, "lr": "1e-3", "out": "o"})
    assert flat == make_recipe(
        {
            "data": {"dataset": "texas"},
            "model": {"dropout": 0.1, "hkn": {"form": "paper"}},
            "optim": {"lr": 1e-3},
            "runtime": {"data": "there", "out": "o"},
        }
    )
    assert flat == make_recipe({"model": {"form": "paper", "dropout": 0.5}, "lr": 0.001}, dropout=0.1).replace(
        dataset="texas", data="there", out="o"
    )
    assert (flat.data.dataset, flat.runtime.data, flat.model.hkn.form) == ("texas", "there", "paper")


@pytest.mark.parametrize(
    "values, message",
    [
        ({"optim": {"dropout": 0.1}}, "unknown key 'dropout' in optim of the recipe; accepted: lr, "),
        (
            {"model": {"hkn": {"forn": "paper"}}},
            "unknown key 'forn' in hkn of model of the recipe; did you mean 'form",
        ),
        ({"lr": 0.1, "optim": {"lr": 0.1}}, "lr is given twice in the recipe"),
        ({"optim": 3}, "optim of the recipe must hold keys and values, got 3"),
        ({"hkn": {"form": "paper"}}, "unknown key 'hkn' in the recipe"),
    ],
)
def test_groups_that_cannot_be(values, message):
    with pytest.raises(InputError, match=message):
        make_recipe(values)


def test_results_depend_on_every_group_but_runtime():
    recipe = make_recipe(lr=0.1, kernel_size=3)
    elsewhere = recipe.replace(device="cuda:1", capture=True, compile=True, keep_every=1, data="there", out="o")
    assert elsewhere != recipe and elsewhere.identity() == recipe.identity()
    assert {*recipe.identity(), *RuntimeOptions.options()} == set(recipe.flat())
    assert recipe.replace(lr=0.2).identity() != recipe.identity()


def test_needs_no_torch():
    code = "import sys, hkconv.tasks.recipe, hkconv.cli.main; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "False"


def test_text_is_read_as_a_person_means_it():
    recipe = make_recipe({"lr": "1e-3", "models": "gcn, mlp", "act": "none", "curvature": -2, "task": None})
    assert (recipe.optim.lr, recipe.model.models, recipe.data.task) == (1e-3, ("gcn", "mlp"), None)
    assert (recipe.model.hkn.act, recipe.model.hkn.curvature) == (None, -2.0)


@pytest.mark.parametrize(
    "key, value, accepted",
    [
        ("hidden_dim", 0, "a whole number of at least 1"),
        ("hidden_dim", 2.5, "a whole number"),
        ("hidden_dim", True, "a whole number"),
        ("num_layers", 0, "at least 1"),
        ("kernel_size", 0, "at least 1"),
        ("curvature", 0, "a number of at least -1000000 and at most -1e-06"),
        ("curvature", 1.0, "a number of at least -1000000 and at most -1e-06"),
        ("curvature", "flat", "a number of at least -1000000 and at most -1e-06"),
        ("curvature", float("-inf"), "a number of at least -1000000 and at most -1e-06"),
        ("dropout", 1.0, "at least 0 and below 1"),
        ("dropout", -0.1, "at least 0 and below 1"),
        ("lr", 0, "a number above 0"),
        ("lr", float("nan"), "a number above 0"),
        ("weight_decay", -1e-3, "at least 0"),
        ("epochs", 0, "at least 1"),
        ("patience", 0, "at least 1"),
        ("batch_size", 0, "at least 1"),
        ("neighbors", "", "whole numbers such as 15,10"),
        ("neighbors", "15;10", "whole numbers such as 15,10"),
        ("neighbors", [0, 1], "each of at least 1 and at most 1000000 or, for all neighbours, -1"),
        ("neighbors", [True, 3], "whole numbers"),
        ("neighbors", [1.5], "whole numbers"),
        ("neighbors", 15, "whole numbers"),
        ("neighbors", [], "whole numbers"),
        ("num_splits", 0, "at least 1"),
        ("seeds", 0, "at least 1"),
        ("capture", 1, "true or false"),
        ("seed", -1, "at least 0"),
        ("mass", "yes", "true or false"),
        ("points", "grid", "optimal or random or trainable"),
        ("act", "tanh", "relu or none"),
        ("act", "tanh", "relu or none"),
        ("norm", "group", "batch or layer or none"),
        ("hidden_act", "tanh", "relu or none"),
        ("form", "pape", "views or paper"),
        ("form", None, "views or paper"),
        ("readout", "first", "last or all"),
        ("structure", 1, "true or false"),
        ("direction", "up", "in or out or both"),
        ("learn_curvature", "yes", "true or false"),
        ("protocol", "fair", "clean or published"),
        ("task", "regression", "node or graph or link or none"),
        ("models", [], "one or more of hkn, mlp, gcn, .*, each once"),
        ("models", ["hkn", "hkn"], "each once"),
        ("models", [1], "one or more of hkn"),
        ("dataset", 5, "the name of a dataset"),
        ("out", "", "a folder or none"),
        ("log", "wandb,wandb", "some of tensorboard, wandb, mlflow, each once"),
    ],
)
def test_a_value_that_cannot_be(key, value, accepted):
    with pytest.raises(InputError, match=f"{key} must be .*{accepted}.*, got ") as caught:
        make_recipe({key: value})
    assert repr(value) in str(caught.value)
    assert "none or none" not in str(caught.value)


@pytest.mark.parametrize(
    "key, value, message",
    [
        ("models", "GCN", "unknown model 'GCN'; did you mean 'gcn'? accepted: hkn, mlp, gcn, "),
        ("models", ["hkn", "GloGNN+"], "unknown model 'GloGNN+'; did you mean 'glognn"),
        ("models", "transformer", "unknown model 'transformer'; accepted: hkn, mlp, "),
        ("log", "tensorbord", "unknown logger 'tensorbord'; did you mean 'tensorboard'? accepted: tensorboard, wandb"),
        ("protocol", "Clean", "protocol must be clean or published, got 'Clean'; did you mean 'clean'?"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(key, value, message):
    with pytest.raises(InputError, match=re.escape(message)):
        make_recipe({key: value})


def test_neighbours_as_text_as_a_list_and_back():
    for given in ("15, -1", [15, -1], (15, -1)):
        recipe = make_recipe({"neighbors": given, "num_layers": 2})
        assert recipe.optim.neighbors == (15, -1)
        assert make_recipe(json.loads(json.dumps(recipe.flat()))) == recipe
    assert make_recipe({"neighbors": "none"}).optim.neighbors is None
    with pytest.raises(InputError, match="neighbors must have a number for each of the 3 layers, got 2"):
        make_recipe({"neighbors": "15,10", "num_layers": 3})


def test_none_is_a_word_where_the_form_has_something():
    """And what it always was where nothing is said by it: a file may hold either."""
    hkn = HKNOptions(norm="none", hidden_act="none", act="none", readout="none", reach="none")
    assert (hkn.norm, hkn.hidden_act) == ("none", "none")
    assert (hkn.act, hkn.readout, hkn.reach) == (None, None, None)
    assert (HKNOptions(norm=None).norm, HKNOptions(hidden_act=None).hidden_act) == (None, None)


def test_a_recipe_of_the_first_release_is_known_by_an_option_of_then():
    for name in OPTIONS_OF_PAPER:
        given = {name: first_release.RECIPE[name]}
        assert upgraded({**given, "root": False}) == {**FIRST_RELEASE, **given}
        assert upgraded({name: True, "form": "views"}) == {name: True, "form": "views"}
        with pytest.raises(InputError, match="HKN no longer has the option root, and this has root: True"):
            upgraded(given)
    for name, without in REMOVED_OPTIONS.items():
        assert upgraded({"root": False, name: without}) == FIRST_RELEASE
        assert upgraded({name: without, "form": "paper"}) == {"form": "paper"}
    for values in ({}, {"lr": 0.5, "mass": True, "norm": "batch"}, Recipe().flat()):
        assert upgraded(values) == values
    kept = _without(first_release.RECIPE, "undirected", *REMOVED_OPTIONS)
    now = {**kept, **first_release.ADDED, "direction": "both"}
    assert make_recipe(upgraded(first_release.RECIPE)).flat() == now


def _without(values, *names):
    return {name: value for name, value in values.items() if name not in names}


def test_the_flag_undirected_is_read_as_a_direction():
    assert upgraded({"undirected": False}) == upgraded({"data": {"undirected": False}}) == {"direction": "in"}
    assert upgraded({"undirected": True}) == {"direction": "both"}
    assert upgraded({"undirected": False, "task": "link"}) == {"direction": "both", "task": "link"}
    assert upgraded({"undirected": True, "direction": "out"}) == {"direction": "out"}
    with pytest.raises(InputError, match="direction must be in or out or both, got 'no'"):
        make_recipe(upgraded({"undirected": "no"}))
    with pytest.raises(InputError, match="unknown key 'undirected'"):
        make_recipe(undirected=True)


def test_every_default_of_the_first_release_that_is_another_today_is_known():
    """The recipe of then says all of them but for what that run chose."""
    chosen = {"models", "epochs", "num_splits", "device", "undirected", *REMOVED_OPTIONS}
    then = {name: value for name, value in first_release.RECIPE.items() if name not in chosen}
    now = make_recipe(upgraded({"root": False})).flat()
    assert now != make_recipe(form="paper").flat()
    assert {name: now[name] for name in then} == then
    assert now["epochs"] == 200 and now["num_splits"] == 3


def test_an_unknown_key_gets_the_nearest():
    with pytest.raises(InputError, match="unknown key 'hiden_dim' in the recipe; did you mean 'hidden_dim'"):
        make_recipe({"hiden_dim": 3})
    with pytest.raises(InputError, match=f"accepted: dataset, .*{list(Recipe.options())[-1]}"):
        make_recipe({"xyzzy": 3})


def test_yaml(tmp_path):
    file = tmp_path / "recipe.yaml"
    file.write_text("dataset: texas\nlr: 1e-3\nmodels: [hkn]\nact: null\n")
    recipe = make_recipe(read_recipe_file(file))
    assert (recipe.data.dataset, recipe.optim.lr, recipe.model.models) == ("texas", 1e-3, ("hkn",))
    file.write_text("")
    assert read_recipe_file(file) == {}


def test_yaml_of_the_first_release(tmp_path):
    """By an option of then it is what it was, with the defaults of then; any other has those of now."""
    file = tmp_path / "recipe.yaml"
    file.write_text("dataset: texas\nroot: false\nlr: 0.1\n")
    then = make_recipe(upgraded(read_recipe_file(file)))
    model, hkn = then.model, then.model.hkn
    assert (hkn.form, then.optim.lr, then.data.dataset) == ("paper", 0.1, "texas")
    assert (model.hidden_dim, model.num_layers, model.dropout, hkn.readout) == (16, 2, 0.2, "last")
    assert then == make_recipe(FIRST_RELEASE, dataset="texas", lr=0.1) != make_recipe(dataset="texas", lr=0.1)
    file.write_text("data: {dataset: texas}\nmodel: {hkn: {root: false}}\noptim: {lr: 0.1}\n")
    # That release knew no groups.
    assert make_recipe(upgraded(read_recipe_file(file))) == make_recipe(dataset="texas", lr=0.1)
    file.write_text("dataset: texas\nlr: 0.1\nmass: true\n")
    now = make_recipe(upgraded(read_recipe_file(file)))
    assert now == make_recipe(dataset="texas", lr=0.1, mass=True)
    file.write_text("form: paper\nroot: false\nattention: none\n")
    assert make_recipe(upgraded(read_recipe_file(file))) == make_recipe(form="paper")


@pytest.mark.parametrize(
    "content, message",
    [
        ("lr: [1", "is not valid YAML in line"),
        ("- lr\n- 3", "must hold keys and values such as 'lr: 0.01', got a list"),
        ("lr: !!python/object/apply:os.getcwd []", "is not valid YAML"),
        ("a: \x00", "is not valid YAML"),
    ],
)
def test_yaml_that_cannot_be(tmp_path, content, message):
    (tmp_path / "recipe.yaml").write_text(content)
    with pytest.raises(InputError, match=message):
        read_recipe_file(tmp_path / "recipe.yaml")


def test_missing_yaml(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_recipe_file(tmp_path / "recipe.yaml")


WORDS = [
    "lr",
    ": ",
    "0.1",
    "\n",
    "- ",
    "models",
    "[mlp]",
    "{",
    "}",
    "&a ",
    "*a",
    "!!python/object/apply:os.system ",
    "'",
    '"',
]
ODD = [
    "2001-99-99",
    "0b",
    "1:99",
    "!!float x",
    "!!timestamp x",
    "!!binary =",
    "? ",
    "<<: ",
    "9" * 5000,
    "[" * 3000,
    "%YAML",
]
SOUND = "dataset: tree\nlr: 1e-3\nmodels: [mlp, gcn]\nact: none\n"


@pytest.mark.parametrize("content", ["a: " + "[" * 100_000, "a: " + "{a: " * 100_000, "- " * 100_000 + "a"])
def test_nests_end_where_no_recipe_goes(tmp_path, content):
    path = tmp_path / "recipe.yaml"
    path.write_text(content)
    with pytest.raises(InputError, match=r"recipe \S+ nests its values more than 20 deep in line 1$"):
        read_recipe_file(path)


@fuzzed(
    content=damaged(SOUND.encode()) | st.lists(st.sampled_from([*WORDS, *ODD]), max_size=8).map("".join).map(str.encode)
)
def test_whatever_a_file_holds_only_input_errors_come_out(tmp_path, content):
    path = tmp_path / "recipe.yaml"
    path.write_bytes(content)
    with input_errors_alone():
        make_recipe(read_recipe_file(path))


@fuzzed(values=changed({**Recipe().flat(), **REMOVED_OPTIONS, "undirected": True}))
def test_whatever_the_values_are_only_input_errors_come_out(values):
    with input_errors_alone():
        json.dumps(make_recipe(upgraded(values if isinstance(values, dict) else {})).flat())


def test_yaml_runs_nothing(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(f"lr: !!python/object/apply:os.system ['touch {tmp_path}/exploded']\n")
    with pytest.raises(InputError, match="is not valid YAML"):
        read_recipe_file(path)
    assert not (tmp_path / "exploded").exists()


def test_a_file_that_means_gigabytes_is_one_short_line(tmp_path):
    """Nine lists of nine names each of the one before: gigabytes when written out, as in a message."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    (tmp_path / "recipe.yaml").write_text("\n".join([*lines, "lr: *a8"]))
    with pytest.raises(InputError, match=r"recipe \S+ refers to another value in line 2 \(\*a0\): write it out"):
        read_recipe_file(tmp_path / "recipe.yaml")


def test_groups_are_never_of_the_first_release():
    assert upgraded({"model": {"hkn": {"relative": False}}}) == {"relative": False}
    assert upgraded({"relative": False, "root": False})["form"] == "paper"


@pytest.mark.parametrize("nothing", ["", "none", None, []])
def test_no_logger_can_be_said(nothing):
    assert make_recipe({"log": nothing}).runtime.log == ()
