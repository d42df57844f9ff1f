from hkconv.training.recipe import Recipe
from hkconv.training.reporting import Reporter
from hkconv.training.summary import Cell


def test_the_default_reporter_is_silent(capsys):
    reporter = Reporter()
    reporter.run_started(Recipe(), [])
    reporter.cell_started(Cell("hkn", 0, 0))
    assert capsys.readouterr() == ("", "")
