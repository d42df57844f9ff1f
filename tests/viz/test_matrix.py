import numpy as np
import pytest

from hkconv.viz.matrix import MOST_NUMBERED, matrix_figure
from hkconv.viz.style import styled


def draw(values, **options):
    names = {"heat_map": "Blues", "title": "a title", "scale": "a scale", "across": "columns"}
    return styled(matrix_figure)(values, lambda row, column: f"{row}/{column}", **names, **options)


def test_cells_texts_and_labels():
    values = np.arange(9.0).reshape(3, 3)
    axes, bar = draw(values).axes
    (image,) = axes.images
    assert (image.get_array() == values).all()
    assert image.get_clim() == (0, 8)
    texts = {text.get_position(): text.get_text() for text in axes.texts}
    assert texts == {(column, row): f"{row}/{column}" for row in range(3) for column in range(3)}
    assert [axes.get_title(), axes.get_xlabel(), axes.get_ylabel()] == ["a title", "columns", "true class"]
    assert bar.get_ylabel() == "a scale"
    assert axes.get_xticks().tolist() == axes.get_yticks().tolist() == [0, 1, 2]


def test_limits_and_missing_values():
    axes = draw(np.array([[0.5, np.nan], [0.2, 0.1]]), limits=(0, 1)).axes[0]
    assert axes.images[0].get_clim() == (0, 1)
    assert len(axes.texts) == 4


@pytest.mark.parametrize("count, texts", [(MOST_NUMBERED, MOST_NUMBERED**2), (MOST_NUMBERED + 1, 0), (300, 0)])
def test_many_classes_have_no_numbers_and_the_size_stays(count, texts):
    figure = draw(np.zeros((count, count)))
    assert len(figure.axes[0].texts) == texts
    assert max(figure.get_size_inches()) < 9
