from pathlib import Path

import numpy as np
import pytest
from own_files import write_papers

from hkconv.viz import class_distances_figure, confusion_figure
from hkconv.viz.explorer.run_scene import read_run_scene


@pytest.fixture
def points() -> np.ndarray:
    space = np.random.default_rng(0).normal(size=(7, 3))
    return np.concatenate([np.sqrt(1 + (space**2).sum(1, keepdims=True)), space], 1)


def test_a_file_of_points(hkconv, points):
    np.savez("mine.npz", points=points, labels=np.arange(7) % 2)
    result = hkconv("explore", "mine.npz", "--out", "page.html")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "mine: 7 nodes, 1 layer",
        f"written: page.html ({Path('page.html').stat().st_size / 1e6:.1f} MB), open it in a browser",
    ]
    assert '"title":"mine"' in Path("page.html").read_text()
    assert hkconv("explore", "mine.npz").exit_code == 0
    assert Path("explorer.html").read_bytes() == Path("page.html").read_bytes()


def test_a_run(hkconv):
    arguments = ("--epochs", 1, "--num-splits", 1, "--models", "hkn,mlp", "--hidden-dim", 3)
    assert hkconv("train", *arguments, "--out", "run").exit_code == 0
    result = hkconv("explore", "run", "--out", "page.html")
    assert result.exit_code == 0, result.output
    assert "tree · hkn: 971 nodes, 3 layers" in result.stdout
    assert Path("page.html").exists()


def test_own_data_have_their_ids_and_classes_on_the_page_and_in_figures(hkconv):
    write_papers(Path("papers"))
    arguments = ("--epochs", 1, "--num-splits", 1, "--models", "hkn,gcn", "--hidden-dim", 3)
    result = hkconv("train", "papers", *arguments, "--out", "run")
    assert result.exit_code == 0, result.output
    *_, predict, explore, search = result.stdout.splitlines()
    assert predict == f"predict: hkconv predict run {Path('papers').absolute()}"
    assert explore == "explore: hkconv explore run"
    assert search.startswith(f"search: hkconv search {Path('papers').absolute()} --model ")
    scene = read_run_scene("run")
    assert scene.names == tuple(f"paper {number}" for number in range(60))
    assert scene.class_names == ("high", "low", "mid")
    assert hkconv("explore", "run").exit_code == 0
    assert '"paper 59"' in Path("explorer.html").read_text() and "class 0" not in Path("explorer.html").read_text()
    for draw in (confusion_figure, class_distances_figure):
        axes = draw("run", "hkn", device="cpu").axes[0]
        assert [tick.get_text() for tick in axes.get_yticklabels()] == ["high", "low", "mid"]


def test_links_of_own_data_have_their_ids_on_the_page(hkconv):
    write_papers(Path("papers"))
    arguments = ("--task", "link", "--epochs", 1, "--num-splits", 1, "--models", "hkn", "--hidden-dim", 3)
    assert hkconv("train", "papers", *arguments, "--out", "run").exit_code == 0
    assert hkconv("explore", "run").exit_code == 0
    assert '"paper 59"' in Path("explorer.html").read_text()


def test_bad_input(hkconv, points):
    assert "nothing to explore: nowhere is neither" in hkconv.fails("explore", "nowhere")
    Path("empty").mkdir()
    assert "recipe cannot be read" in hkconv.fails("explore", "empty")
    arguments = ("--epochs", 1, "--num-splits", 1, "--models", "mlp", "--hidden-dim", 3)
    assert hkconv("train", *arguments, "--out", "run").exit_code == 0
    assert "run run has no hyperbolic embeddings: it trained mlp" in hkconv.fails("explore", "run")
    np.savez("flat.npz", points=points[0])
    assert "must have shape (N, n+1), time first, got (4,)" in hkconv.fails("explore", "flat.npz")
    points[3, 2] = np.nan
    np.savez("nan.npz", points=points)
    assert "points of layer 'points' contains NaN or Inf, first in row 3" in hkconv.fails("explore", "nan.npz")
    assert not Path("explorer.html").exists()
