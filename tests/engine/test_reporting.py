from hkconv.engine.reporting import Reporter
from hkconv.tasks.recipe import Recipe
from hkconv.tasks.summary import Cell


def test_the_default_reporter_is_silent(capsys):
    reporter = Reporter()
    reporter.run_started(Recipe(), [])
    reporter.cell_started(Cell("hkn", 0, 0))
    assert capsys.readouterr() == ("", "")
