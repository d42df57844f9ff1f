import base64
import hashlib
import json
import re

import numpy as np
import pytest
import torch

from hkconv.errors import InputError
from hkconv.geometry.lorentz import dist, lift
from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.run import train_run
from hkconv.viz.explorer.page import describe_scene, render_page, write_page
from hkconv.viz.explorer.run_scene import read_run_scene
from hkconv.viz.explorer.scene import Layer, Scene


def block(page, opening):
    """What stands between a tag and its end, as the browser's parser finds it."""
    return re.search(re.escape(opening) + r"(.*?)</", page, re.DOTALL).group(1)


def numbers(text, kind):
    return np.frombuffer(base64.b64decode(text), kind)


@pytest.fixture
def scene(cloud) -> Scene:
    edges = torch.tensor([[0, 1, 1, 2, 3, 0], [1, 0, 2, 2, 0, 1]])
    points = lift(cloud(5, 3, 1.0)[:, 1:], -0.25)
    return Scene("a scene", (Layer("only", points, -0.25, centers=points[:2]),), torch.arange(5) % 2, edges=edges)


def test_only_the_own_script_and_style_may_run(scene):
    page = render_page(scene)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    for tag, rule in (("<script>", "script-src"), ("<style>", "style-src")):
        digest = hashlib.sha256(block(page, tag).encode()).digest()
        assert rules[rule] == f"'sha256-{base64.b64encode(digest).decode()}'"
    assert rules["default-src"] == "'none'"
    assert "unsafe" not in policy
    assert not re.search(r"(src|href)=[\"']?https?:|url\(|@import|\bfetch\(|XMLHttpRequest|innerHTML", page)


def test_no_character_of_the_data_can_end_its_block(cloud):
    name = "</script><!--<script>&amp;\u2028\u2029@@SCRIPT@@\ud83d\ude00".encode("utf-16", "surrogatepass").decode(
        "utf-16"
    )
    page = render_page(Scene(name, (Layer(name, cloud(2, 2, 1.0)),), names=(name, "b")))
    data = block(page, '<script type="application/json" id="data">')
    assert not set("<>&\u2028\u2029") & set(data)
    found = json.loads(data)
    assert found["title"] == found["names"][0] == found["layers"][0]["name"] == name


def test_edges_are_sent_once_without_directions_and_loops(scene):
    described = describe_scene(scene)
    assert numbers(described["edges"], "<i4").reshape(-1, 2).tolist() == [[0, 1], [0, 3], [1, 2]]


def test_distances_to_centres_are_those_of_all_dimensions(scene):
    (layer,) = scene.layers
    found = numbers(describe_scene(scene)["layers"][0]["centers"]["distances"], "<f4").reshape(5, 2)
    assert np.allclose(found, dist(layer.points[:, None], layer.centers, -0.25), atol=1e-6)


def test_a_place_that_cannot_be_written(scene, tmp_path):
    with pytest.raises(InputError, match=r"^out .*nowhere.* cannot be written"):
        write_page(scene, tmp_path / "nowhere" / "page.html")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match=r"^out .*folder cannot be written"):
        write_page(scene, tmp_path / "folder")


@pytest.mark.parametrize(("dataset", "most"), [("texas", 2e6), ("pubmed", 12e6)])
def test_pages_of_real_graphs_stay_small(real_data, tmp_path, dataset, most):
    options = {"models": ("hkn",), "epochs": 1, "num_splits": 1, "device": "cpu", "data": str(real_data)}
    train_run(make_recipe(dataset=dataset, **options, out=str(tmp_path / "run")))
    write_page(read_run_scene(tmp_path / "run"), tmp_path / "page.html")
    assert 50_000 < (tmp_path / "page.html").stat().st_size < most
