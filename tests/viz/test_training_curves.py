import json

import numpy as np
import pytest
from viz_artists import lines, place

from hkconv.viz import training_curves_figure

FIELDS = {"training loss": "loss", "validation loss": "val_loss", "validation accuracy": "val_metric"}
TRAININGS = ("hkn split 0", "hkn split 1", "gcn split 0", "gcn split 1")


def stored(run, training):
    model, _, split = training.split()
    return json.loads((run / model / f"split{split}-seed0" / "metrics.json").read_text())


def test_every_curve_is_the_stored_history_and_its_best_epoch(run):
    figure = training_curves_figure(run)
    assert [axes.get_title() for axes in figure.axes] == list(FIELDS)
    for axes, field in zip(figure.axes, FIELDS.values()):
        assert axes.get_xlabel() == "epoch"
        assert all(tick == round(tick) for tick in axes.get_xticks())
        for training in TRAININGS:
            metrics = stored(run, training)
            expected = [(epoch["number"], epoch[field]) for epoch in metrics["history"]]
            assert len(expected) == 3
            assert place(axes, f"_{training} seed 0") == pytest.approx(np.array(expected))
            best = expected[metrics["best_epoch"] - 1]
            assert place(axes, f"_best of {training} seed 0")[0] == pytest.approx(best)


def test_models_differ_in_colour_line_and_marker_and_are_named_once(run):
    figure = training_curves_figure(run)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["hkn", "gcn"]
    assert legend.get_title().get_text().startswith("tree;")
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in legend.legend_handles}
    assert [len(set(kinds)) for kinds in zip(*looks)] == [2, 2, 2]


def test_a_choice_of_trainings(run):
    axes = training_curves_figure(run, "gcn", split=1).axes[0]
    assert len(lines(axes, "_gcn split 1 seed 0")) == 1
    assert len([line for line in axes.lines if line.get_label().startswith("_best")]) == 1
