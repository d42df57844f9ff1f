"""Looking into figures: artists by their label, and where they are."""

import numpy as np


def lines(axes, label):
    """The lines of axes with a label, each as an array of places."""
    return [np.column_stack(_data(line)) for line in axes.lines if line.get_label() == label]


def place(axes, label):
    """The places of the only line with a label."""
    (found,) = lines(axes, label)
    return found


def _data(line):
    return line.get_data_3d() if hasattr(line, "get_data_3d") else line.get_data()
