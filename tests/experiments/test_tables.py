from pathlib import Path

import pytest

from hkconv.errors import InputError
from hkconv.experiments.recipe_files import read_table
from hkconv.experiments.store import finished, read
from hkconv.experiments.tables import Choice, Execution, list_cells
from hkconv.models.options import removed_in

RECORDS = Path(__file__).parents[2] / "results" / "records"


def node_and_kernels(recipes):
    return [*read_table("node", recipes), *read_table("kernels-node", recipes)]


def test_every_system_on_every_split(recipes):
    cells = list_cells(read_table("node", recipes))
    assert [str(cell) for cell in cells[:3]] == [
        "node tree clean MLP split 0 seed 0",
        "node tree clean MLP split 1 seed 0",
        "node tree clean GCN split 0 seed 0",
    ]
    assert len(cells) == len({cell.identity for cell in cells}) == 6
    gcn = cells[2].recipe
    assert (gcn.model.models, gcn.model.hidden_dim) == (("gcn",), 4)
    assert (gcn.optim.lr, gcn.optim.epochs, gcn.optim.deterministic) == (0.005, 3, True)


def test_quick_cuts_down_and_is_another_cell(recipes):
    usual, quick = (list_cells(read_table("node", recipes), Choice(quick=value)) for value in (False, True))
    assert [(cell.split, cell.recipe.optim.epochs, cell.quick) for cell in quick] == [(0, 1, True)] * 3
    assert not {cell.identity for cell in usual} & {cell.identity for cell in quick}


def test_a_choice(recipes):
    both = node_and_kernels(recipes)
    chosen = list_cells(both, Choice(systems=("GCN", "K=3")))
    assert {(cell.table, cell.variant) for cell in chosen} == {("node", "GCN"), ("kernels-node", "K=3")}
    for choice, words in [
        (Choice(systems=("GNN",)), "unknown system 'GNN' of these tables; did you mean 'GCN'"),
        (Choice(datasets=("texas",)), "unknown dataset 'texas' of these tables; accepted: tree"),
        (Choice(protocols=("published",)), "unknown protocol 'published' of these tables; accepted: clean"),
    ]:
        with pytest.raises(InputError, match=words.replace("?", r"\?")):
            list_cells(both, choice)


def test_names_that_do_not_go_together():
    recipes = [recipe for recipe in read_table("node") if recipe.dataset in ("texas", "texas", "chameleon-filtered")]
    with pytest.raises(InputError, match="no recipe has the datasets, systems and protocols together"):
        list_cells(recipes, Choice(datasets=("chameleon-filtered",), protocols=("published",)))


def test_where_it_is_trained_does_not_make_a_cell(recipes):
    here, there = (
        list_cells(read_table("node", recipes), place=place)
        for place in (Execution(), Execution("cuda", "/data", True))
    )
    assert [cell.identity for cell in here] == [cell.identity for cell in there]
    assert there[0].recipe.runtime.capture
    assert "/data" not in str(there[0].head())


def test_graph_tasks_are_not_captured():
    ptc = [recipe for recipe in read_table("graph") if recipe.dataset == "ptc"]
    assert not any(cell.recipe.runtime.capture for cell in list_cells(ptc, place=Execution("cuda", None, True)))


def test_the_protocol_goes_before_the_settings_of_a_dataset():
    texas = [recipe for recipe in read_table("node") if recipe.dataset == "texas"]
    cells = {cell.recipe.data.protocol: cell.recipe for cell in list_cells(texas) if cell.variant == "GCN"}
    assert (cells["clean"].data.direction, cells["published"].data.direction) == ("both", "in")


def test_a_record_keeps_what_its_model_uses(recipes):
    mlp, *_, hkn = list_cells(read_table("node", recipes))
    assert "kernel_size" not in mlp.head()["recipe"]
    assert hkn.head()["recipe"]["kernel_size"] == 2
    assert mlp.head()["recipe"]["hidden_dim"] == 4


def test_one_training_in_two_tables(recipes):
    cells = list_cells(node_and_kernels(recipes))
    hkn, two, three = (next(cell for cell in cells if cell.variant == name) for name in ("HKN", "K=2", "K=3"))
    assert hkn.training_identity == two.training_identity != three.training_identity
    assert hkn.identity != two.identity


# Trainings that 0.1.0 had planned and stored, of them those of HKN with options that are gone; a table may grow.
STORED = {
    "node": (3689, 217),
    "graph": (1190, 85),
    "molecules": (78, 6),
    "kernels-node": (1312, 0),
    "kernels-graph": (240, 0),
    "ablations": (1212, 273),
}


@pytest.mark.parametrize("table", STORED)
def test_what_was_trained_with_the_first_release_is_what_is_planned(table):
    records, damages = read(RECORDS, (table,))
    stored = finished([record for record in records if not record["quick"]])
    planned = {cell.identity: cell for cell in list_cells(read_table(table))}
    assert not damages
    whole, gone = STORED[table]
    assert len(planned.keys() & stored.keys()) >= whole - gone
    assert sum(record["model"] == "hkn" and removed_in(record["recipe"]) != {} for record in stored.values()) >= gone
    forms = {(cell.variant, cell.recipe.model.hkn.form) for name, cell in planned.items() if name in stored}
    assert all((form == "views") == (variant == "HKN (views)") for variant, form in forms)
