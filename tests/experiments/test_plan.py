import math
from collections import Counter

from hkconv.experiments.plan import read_plan
from hkconv.experiments.report import TITLES


def test_the_papers_figures_of_every_table():
    paper = read_plan().paper
    assert set(paper) == set(TITLES)
    assert tuple(paper["node"]["texas"]["HKN"]) == (90.94, 0.66)
    assert tuple(paper["node"]["squirrel"]["GloGNN++"]) == (57.88, 1.76)
    assert tuple(paper["graph"]["imdb-multi"]["HyboNet"]) == (54.35, 0.98)
    assert tuple(paper["molecules"]["ogbg-molpcba"]["HKN"]) == (27.87, 0.32)
    assert tuple(paper["kernels-graph"]["ptc"]["K=6"]) == (73.69, 4.81)
    assert math.isnan(paper["ablations"]["enzymes"]["HKN-train"][0])
    assert paper["runtime"]["squirrel"]["HKN"] == (0.15, None)


def test_every_cell_of_the_recipes_is_planned_once():
    plan = read_plan().trainings
    names = ("table", "dataset", "protocol", "variant", "split", "seed", "quick")
    assert max(Counter(tuple(entry[name] for name in names) for entry in plan).values()) == 1
    texas = [entry for entry in plan if (entry["table"], entry["dataset"]) == ("node", "texas")]
    full = [entry for entry in texas if entry["variant"] == "GCN" and not entry["quick"]]
    assert Counter(entry["protocol"] for entry in full) == {"clean": 30, "published": 3}
    assert any(entry["quick"] for entry in texas)
