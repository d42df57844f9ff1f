"""The page's program, in a real browser."""

import math
import re
from itertools import pairwise

import pytest
import torch
from scipy.stats import spearmanr

from hkconv.geometry.lorentz import dist, exp0, inner, lift, oplus
from hkconv.viz.explorer.pca import principal_frame
from hkconv.viz.explorer.scene import Layer, Scene


def distances(points):
    return dist(points[:, None], points)


def on_disk(x, y):
    """The point of the Lorentz model at a place of the Poincaré disk."""
    return [2 * x / (1 - x * x - y * y), 2 * y / (1 - x * x - y * y)]


@pytest.fixture
def classes(cloud) -> Scene:
    """Twelve nodes of three classes in a ring, two of them predicted wrong."""
    labels = torch.arange(12) % 3
    predictions = labels.clone()
    predictions[[4, 7]] = 0
    nodes = torch.arange(12)
    names = (*(f"page {number}" for number in range(11)), "the last")
    return Scene(
        "classes",
        (Layer("only", cloud(12, 2, 2.5), centers=cloud(3, 2, 1.0)),),
        labels,
        predictions,
        edges=torch.stack([nodes, nodes.roll(-1)]),
        names=names,
        class_names=("red", "green", "blue"),
    )


@pytest.fixture
def layers(cloud) -> Scene:
    """Two layers of six dimensions, the first with kernel points, the second with centres."""
    first = Layer("first", cloud(20, 6, 2.0), kernel=cloud(5, 6, 1.4))
    second = Layer("second", lift(cloud(20, 6, 1.5)[:, 1:], -0.25), -0.25, centers=lift(cloud(3, 6, 1.0)[:, 1:], -0.25))
    return Scene("layers", (first, second), torch.arange(20) % 3)


def in_plane(layer, points, first=0, second=1):
    """Points of a layer where the page shows them."""
    radius = (-layer.curvature) ** -0.5
    return principal_frame(layer.points / radius, 6).coordinates(points / radius).in_plane(first, second)


def test_nodes_are_shown_where_they_are(open_page, classes):
    page = open_page(classes)
    assert torch.allclose(page.lorentz(), classes.layers[0].points, rtol=1e-6, atol=1e-6)
    centre_x, centre_y = page.middle()
    box = page.page.locator("#overlay").bounding_box()
    scale = 0.47 * min(box["width"], box["height"]) * page.state("zoom")
    time, x, y = classes.layers[0].points[5].tolist()
    expected = [centre_x + scale * x / (1 + time), centre_y - scale * y / (1 + time)]
    assert page.read("screen", 5) == pytest.approx(expected, abs=0.01)
    assert page.page.title() == "classes · hkconv explorer"
    assert "12 nodes · 12 edges · 3 classes" in page.text("#facts")


@pytest.mark.parametrize(("radius", "drags"), [(3.0, 200), (12.0, 100)])
def test_hundreds_of_drags_keep_all_distances(open_page, cloud, generator, radius, drags):
    page = open_page(Scene("drags", (Layer("only", cloud(40, 2, radius)),)))
    start = page.lorentz()
    before = distances(start)
    x, y = page.middle()
    places = 560 * torch.rand(drags, 4, generator=generator, dtype=torch.float64) - 280
    for from_x, from_y, to_x, to_y in places.tolist():
        page.drag((x + from_x, y + from_y), (x + to_x, y + to_y))
    page.settle()
    points = page.lorentz()
    assert dist(points, start).min() > 0.1
    assert torch.allclose(
        inner(points, points), torch.tensor(-1.0, dtype=torch.float64), atol=1e-6 * points[:, 0].max() ** 2
    )
    assert torch.allclose(distances(lift(points[:, 1:])), before, rtol=0, atol=1e-6)


def test_the_dragged_point_follows_the_cursor(open_page, classes):
    page = open_page(classes)
    x, y = page.middle()
    for node, target in [(3, (x + 120, y - 60)), (3, (x - 200, y + 90)), (8, (x + 5, y + 210))]:
        start = page.read("screen", node)
        page.drag(start, (start[0] + 9, start[1]), (x, y), target)
        page.settle()
        assert page.read("screen", node) == pytest.approx(target, abs=0.01)
    assert page.state("selected") == -1


def test_a_point_near_the_boundary_can_be_dragged_too(open_page):
    far = torch.tensor([[math.cosh(7.5), math.sinh(7.5), 0.0], [1.0, 0.0, 0.0]], dtype=torch.float64)
    page = open_page(Scene("far", (Layer("only", far),)))
    for _ in range(12):
        page.mouse.move(*page.read("screen", 0))
        page.mouse.wheel(0, -240)
        page.settle()
    x, y = page.read("screen", 0)
    page.drag((x, y), (x - 20, y + 10), (x - 90, y + 60))
    page.settle()
    assert page.read("screen", 0) == pytest.approx([x - 90, y + 60], abs=0.01)
    assert dist(*page.lorentz()) == pytest.approx(7.5, abs=1e-6)


def test_a_drag_is_a_translation(open_page):
    points = torch.tensor([[0.0, 0.0], on_disk(0.3, 0.0), on_disk(-0.5, 0.0), on_disk(0.0, 0.4)], dtype=torch.float64)
    page = open_page(Scene("line", (Layer("only", lift(points)),)))
    x, y = page.middle()
    scale = page.read("screen", 1)[0] - x
    page.drag((x, y), (x + scale, y))
    page.settle()
    moved = page.lorentz()
    # The boost along the first axis that carries the origin to 0.3.
    rapidity = 2 * math.atanh(0.3)
    boost = torch.eye(3, dtype=torch.float64)
    boost[:2, :2] = torch.tensor(
        [[math.cosh(rapidity), math.sinh(rapidity)], [math.sinh(rapidity), math.cosh(rapidity)]]
    )
    assert torch.allclose(moved, lift(points) @ boost.T, atol=1e-5)
    # One that begins elsewhere has its axis through the centre as well: as a matrix it is symmetric, without a turn.
    page.drag(page.read("screen", 3), (x - 0.3 * scale, y + 2 * scale))
    page.settle()
    matrix = torch.linalg.lstsq(moved, page.lorentz()).solution.T
    assert torch.allclose(matrix, matrix.T, atol=1e-8)
    assert torch.linalg.det(matrix) == pytest.approx(1)
    assert (matrix - torch.eye(3)).abs().max() > 0.1


def test_a_plane_is_not_dragged_out_of_sight(open_page, classes):
    page = open_page(classes)
    x, y = page.middle()
    for _ in range(12):
        page.drag((x - 300, y), (x, y), (x + 300, y))
    assert dist(page.lorentz(), lift(torch.zeros(2, dtype=torch.float64))).min() < 2.5 + 4 + 0.1


def test_a_click_selects_and_goes_there_along_the_geodesic(open_page, classes):
    page = open_page(classes, reduced_motion="no-preference")
    watch = """
        window.seen = [];
        const look = () => { seen.push(hkconv.screen(7)); if (seen.length < 400) requestAnimationFrame(look); };
        look();
    """
    page.page.evaluate(watch)
    start = page.read("screen", 7)
    page.mouse.click(*start)
    page.settle()
    x, y = page.middle()
    assert page.state("selected") == 7
    assert page.read("screen", 7) == pytest.approx([x, y], abs=0.01)
    seen = page.page.evaluate("window.seen")
    way = [math.hypot(at[0] - x, at[1] - y) for at in seen]
    assert all(after <= before + 1e-6 for before, after in pairwise(way))
    assert sum(0.01 < left < way[0] - 0.01 for left in way) >= 1
    # A geodesic that ends at the centre of the disk is straight.
    bearing = math.atan2(start[1] - y, start[0] - x)
    assert all(
        math.atan2(at[1] - y, at[0] - x) == pytest.approx(bearing, abs=1e-6) for at, left in zip(seen, way) if left > 1
    )
    assert page.text("#chosen") == "page 7"
    assert torch.allclose(distances(page.lorentz()), distances(classes.layers[0].points), atol=1e-5)


def test_hovering_tells_of_a_node(open_page, classes):
    page = open_page(classes)
    page.press("Enter")
    (layer,) = classes.layers
    chosen = page.state("selected")
    node = 4 if chosen != 4 else 7
    page.mouse.move(*page.read("screen", node))
    tip = page.text("#tip").split("\n")
    told = dict(zip(tip[1::2], tip[2::2]))
    to_centers = dist(layer.points[node], layer.centers)
    assert tip[0] == f"page {node}"
    assert told["number"] == str(node)
    assert told["label"] == classes.class_names[classes.labels[node]]
    assert told["prediction"] == "red"
    assert told["neighbours"] == "2"
    expected = {
        "distance to origin": layer.points[node, 0].acosh(),
        "distance to centre of label": to_centers[classes.labels[node]],
        "distance to centre of prediction": to_centers[0],
        "distance to selected": dist(layer.points[node], layer.points[chosen]),
    }
    assert {name: float(told[name]) for name in expected} == pytest.approx(
        {name: value.item() for name, value in expected.items()}, abs=6e-4
    )
    page.mouse.move(page.middle()[0], 5)
    assert page.page.locator("#tip").is_hidden()


def test_searching(open_page, classes):
    page = open_page(classes)
    page.press("/")
    page.keyboard.type("10")
    assert page.page.locator("#matches li").count() == 1
    page.press("Enter")
    assert page.state("selected") == 10
    page.press("/")
    page.keyboard.type("AGE")
    assert page.page.locator("#matches li").count() == 8
    page.press("ArrowDown", "ArrowDown", "ArrowUp", "Enter")
    assert page.state("selected") == 1
    page.page.fill("#search", "the l")
    page.page.locator("#matches li").first.click()
    page.settle()
    assert page.state("selected") == 11
    page.page.fill("#search", "nobody")
    assert page.text("#matches") == "no such node"
    page.page.press("#search", "Enter")
    assert page.state("selected") == 11


def test_the_legend_hides_and_shows_classes(open_page, classes):
    page = open_page(classes)
    legend = page.page.locator("#legend button")
    assert legend.all_inner_texts() == ["red\n4", "green\n4", "blue\n4"]
    legend.nth(1).click()
    page.settle()
    assert page.state("visible") == 8
    assert legend.nth(1).get_attribute("aria-pressed") == "false"
    page.mouse.click(*page.read("screen", 1))
    assert page.state("selected") != 1
    legend.nth(1).click()
    assert page.state("visible") == 12
    legend.nth(2).click(modifiers=["Shift"])
    assert page.state("visible") == 4
    legend.nth(2).click(modifiers=["Shift"])
    assert page.state("visible") == 12
    page.page.get_by_role("radio", name="correctness").click()
    assert legend.all_inner_texts() == ["right\n10", "wrong\n2"]
    legend.nth(0).click()
    assert page.state("visible") == 2


def colour_at(page, x, y, canvas="pixels"):
    """Red, green, blue and opacity of a canvas, by default that of edges and nodes, at a place of the window."""
    read = """([x, y, canvas]) => {
        const context = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
        context.drawImage(document.getElementById(canvas), -Math.floor(x), -Math.floor(y));
        return [...context.getImageData(0, 0, 1, 1).data];
    }"""
    return page.page.evaluate(read, [x, y, canvas])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_nodes_have_the_colour_of_their_class(open_page, classes, theme):
    page = open_page(classes, color_scheme=theme)
    page.press("e")
    swatches = page.page.evaluate("[...document.querySelectorAll('#legend .swatch')].map((e) => e.style.background)")
    for node in range(12):
        red, green, blue, opacity = colour_at(page, *page.read("screen", node))
        assert f"rgb({red}, {green}, {blue})" == swatches[node % 3]
        assert opacity == 255
    assert page.state("theme") == theme
    assert page.page.evaluate("document.documentElement.dataset.theme") == theme
    dark = page.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(10, 13, 19)"
    assert dark == (theme == "dark")
    page.press("t")
    assert page.state("theme") != theme
    assert page.page.evaluate("document.documentElement.dataset.theme") != theme


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_selection_is_seen_on_every_colour_and_the_others_fade(open_page, classes, theme):
    page = open_page(classes, color_scheme=theme)
    page.press("e")
    before = [colour_at(page, *page.read("screen", node))[:3] for node in range(12)]
    ground = torch.tensor([255, 255, 255] if theme == "light" else [22, 29, 42])
    for node in range(3):
        page.page.fill("#search", f"page {node}")
        page.press("Enter")
        assert page.state("selected") == node
        neighbours = {(node + 1) % 12, (node - 1) % 12}
        for other in set(range(12)) - {node} - neighbours:
            found = colour_at(page, *page.read("screen", other))[:3]
            mixed = 0.3 * torch.tensor(before[other]) + 0.7 * ground
            assert found == pytest.approx(mixed.tolist(), abs=2)
        for other in neighbours:
            assert colour_at(page, *page.read("screen", other))[:3] == before[other]
        # Around the node, ink with a halo: the extremes of the theme, whatever the colour of its class.
        x, y = page.read("screen", node)
        ring = [colour_at(page, x + step / 2, y, canvas="overlay") for step in range(8, 30)]
        light = [sum(pixel[:3]) for pixel in ring if pixel[3] == 255]
        assert max(light) - min(light) > 550


def test_the_caption_says_how_faithful_the_disk_is(open_page, classes, layers):
    assert open_page(classes).text("#caption") == "Hyperbolic distances on this disk are the true ones."
    page = open_page(layers)
    for key, axes in (("]", (0, 1)), ("[", (0, 1)), ("[", (0, 2))):
        page.press(key)
        layer = next(layer for layer in layers.layers if layer.name == page.state("layer"))
        page.page.select_option("#axis-y", str(axes[1]))
        page.settle()
        one, other = torch.triu_indices(20, 20, 1)
        radius = (-layer.curvature) ** -0.5
        points = layer.points / radius
        shown = in_plane(layer, layer.points, *axes)
        expected = spearmanr(dist(points[one], points[other]), dist(shown[one], shown[other])).statistic
        (found,) = re.findall(r"is (-?[0-9.]+) \(1 is perfect\)", page.text("#caption"))
        assert float(found) == pytest.approx(expected, abs=0.03)


def test_edges_are_geodesic_arcs(open_page):
    a, b = (0.8, 0.0), (0.0, 0.8)
    points = torch.tensor([on_disk(*a), on_disk(*b)], dtype=torch.float64)
    page = open_page(Scene("arc", (Layer("only", lift(points)),), edges=torch.tensor([[0], [1]])))
    x, y = page.middle()
    scale = (page.read("screen", 0)[0] - x) / 0.8
    # The circle through both that meets the boundary at right angles: |c|² = 1 + r² and (0.8 - c)² + c² = r².
    c = (1 + 0.64) / 1.6
    middle = c - math.sqrt(2 * c * c - 1) / math.sqrt(2)
    around = [colour_at(page, x + scale * middle + step, y - scale * middle - step)[3] for step in (-1, 0, 1)]
    assert max(around) > 40
    assert colour_at(page, x + scale * 0.4, y - scale * 0.4)[3] == 0
    page.press("e")
    assert colour_at(page, x + scale * middle, y - scale * middle)[3] == 0


def test_the_wheel_zooms_at_the_cursor(open_page, classes):
    page = open_page(classes)
    start = page.read("screen", 6)
    cursor = [round(start[0]) + 2, round(start[1]) - 3]
    page.mouse.move(*cursor)
    before = page.state("zoom")
    for _ in range(5):
        page.mouse.wheel(0, -120)
    page.settle()
    zoom = page.state("zoom") / before
    assert zoom > 3
    # As seen from the cursor all has grown alike, and the point under it has stayed.
    place = page.read("screen", 6)
    assert place == pytest.approx([at + zoom * (begun - at) for at, begun in zip(cursor, start)], abs=0.01)
    page.drag(place, (place[0] + 8, place[1]), (place[0] - 60, place[1] + 40))
    page.settle()
    assert page.read("screen", 6) == pytest.approx([place[0] - 60, place[1] + 40], abs=0.01)


def test_nodes_near_the_mean_fill_the_window(open_page, cloud):
    page = open_page(Scene("near", (Layer("wide", cloud(30, 2, 4.0)), Layer("narrow", cloud(30, 2, 0.8)))))
    radius = math.tanh(0.8 / 2)
    assert page.state("zoom") == pytest.approx(0.9 / radius, rel=0.1)
    page.press("0")
    assert page.state("zoom") == 1
    page.press("f")
    assert page.state("zoom") == pytest.approx(0.9 / radius, rel=0.1)
    page.press("[")
    assert page.state("zoom") == 1
    page.press("]", "+", "[")
    assert page.state("zoom") == pytest.approx(1.25 * 0.9 / radius, rel=0.1)


def test_keys_pressed_on_the_way_change_where_it_leads(open_page, cloud):
    scene = Scene("near", (Layer("wide", cloud(30, 2, 4.0)), Layer("narrow", cloud(30, 2, 0.8))))
    page = open_page(scene, reduced_motion="no-preference")
    fitting = page.state("zoom")
    page.press("[")
    page.press("]", "+", "[")
    assert page.state("layer") == "wide"
    assert page.state("zoom") == pytest.approx(1.25 * fitting)
    page.press("0", "-")
    assert page.state("zoom") == pytest.approx(0.8)
    page.press("]", "f", "Enter", "Escape")
    assert page.state("zoom") == pytest.approx(fitting)


def test_layers_and_components_are_those_of_the_analysis(open_page, layers):
    page = open_page(layers)
    assert page.state("layer") == "second"
    _, second = layers.layers
    assert torch.allclose(page.lorentz(), in_plane(second, second.points), atol=1e-5)
    centers = in_plane(second, second.centers)
    assert torch.allclose(
        torch.tensor(page.read("centers"), dtype=torch.float64), centers[:, 1:] / (1 + centers[:, :1]), atol=1e-6
    )
    frame = principal_frame(second.points / 2, 6)
    kept = frame.coordinates(second.points / 2).kept()
    assert f"keeps {100 * kept[0, 1]:.0f} % of the variance" in page.text("#kept")
    assert "6 dimensions, curvature -0.250." in page.text("#kept")
    page.page.select_option("#axis-x", "2")
    page.page.select_option("#axis-y", "4")
    page.settle()
    assert page.state("axes") == [2, 4]
    assert torch.allclose(page.lorentz(), in_plane(second, second.points, 2, 4), atol=1e-5)
    assert f"keeps {100 * kept[2, 4]:.{0 if kept[2, 4] >= 0.0995 else 1}f} %" in page.text("#kept")
    page.page.get_by_role("radio", name="first").click()
    page.settle()
    first = layers.layers[0]
    assert page.state("layer") == "first"
    assert torch.allclose(page.lorentz(), in_plane(first, first.points, 2, 4), atol=1e-5)
    assert page.read("centers") == []


def test_kernel_points_lie_around_the_selected_node(open_page, layers):
    page = open_page(layers)
    assert page.read("kernel") == []
    page.press("[", "/")
    page.keyboard.type("13")
    page.press("Enter")
    first = layers.layers[0]
    # Placed around the node in all six dimensions, then projected as the nodes are.
    placed = in_plane(first, oplus(first.kernel, first.points[13]))
    nodes = in_plane(first, first.points)
    shown = torch.tensor(page.read("kernel"), dtype=torch.float64)
    assert torch.allclose(dist(shown[:, None], page.lorentz()), dist(placed[:, None], nodes), atol=1e-4)
    page.press("]")
    assert page.read("kernel") == []


def test_kernel_points_in_two_dimensions_keep_their_distances(open_page, cloud):
    layer = Layer("only", cloud(5, 2, 9.0), kernel=cloud(4, 2, 1.4))
    page = open_page(Scene("flat", (layer,)))
    for node in range(5):
        page.press("/")
        page.keyboard.type(str(node))
        page.press("Enter")
        shown = torch.tensor(page.read("kernel"), dtype=torch.float64)
        assert torch.allclose(distances(lift(shown[:, 1:])), distances(layer.kernel), atol=1e-3)
        assert torch.allclose(dist(shown, page.lorentz()[node]), layer.kernel[:, 0].acosh(), atol=1e-3)


def test_switching_layers_leaves_the_selected_node_in_its_place(open_page, layers):
    page = open_page(layers)
    page.press("/")
    page.keyboard.type("4")
    page.press("Enter", "ArrowLeft", "ArrowUp")
    place = page.read("screen", 4)
    page.press("[")
    assert page.read("screen", 4) == pytest.approx(place, abs=0.01)


def test_everything_goes_by_keys(open_page, classes):
    page = open_page(classes)
    page.press("Enter")
    first = page.state("selected")
    x, y = page.middle()
    nearest = min(range(12), key=lambda node: math.dist(page.read("screen", node), (x, y)))
    assert first == nearest
    neighbors = {(first + 1) % 12, (first - 1) % 12}
    page.press("n")
    second = page.state("selected")
    page.press("n")
    assert {second, page.state("selected")} == neighbors
    page.press("p")
    assert page.state("selected") == second
    page.press("Escape")
    assert page.state("selected") == -1
    assert page.page.locator("#selection").is_hidden()
    before = page.lorentz()
    page.press("ArrowRight")
    assert (page.lorentz()[:, 1] < before[:, 1]).all()
    page.press("ArrowLeft", "ArrowDown", "+", "0")
    assert torch.allclose(page.lorentz(), classes.layers[0].points, rtol=1e-6, atol=1e-6)
    assert page.state("zoom") == pytest.approx(1)
    page.press("c", "c")
    assert page.state("colouring") == "correctness"
    page.press("e", "x", "k", "r")
    assert page.state("shown") == dict.fromkeys(["edges", "centers", "kernel", "rings"], False)
    page.press("?")
    assert "select the node nearest to the middle" in page.text("#keys")
    page.press("Escape")
    assert page.page.locator("#keys").is_hidden()


def test_names_are_text_and_never_markup(open_page, cloud):
    attack = "window.attacked = true"
    hostile = (
        f"<img src=x onerror='{attack}'>",
        f"</script><script>{attack}</script>",
        f"<!--<script>{attack}//\u2028{attack}\u2029",
        f'" onmouseover="{attack}" &lt;b&gt; \\u003c @@DATA@@',
    )
    scene = Scene(
        hostile[1],
        (Layer(hostile[0], cloud(4, 2, 1.0), centers=cloud(4, 2, 1.0)), Layer(hostile[1], cloud(4, 2, 1.0))),
        torch.arange(4),
        torch.arange(4),
        edges=torch.tensor([[0, 1, 2], [1, 2, 3]]),
        names=hostile,
        class_names=hostile[::-1],
        note=hostile[2],
    )
    page = open_page(scene)
    for number, name in enumerate(hostile):
        page.page.fill("#search", str(number))
        page.page.press("#search", "Enter")
        page.settle()
        assert page.page.text_content("#chosen") == name
        page.mouse.move(5, 5)
        page.mouse.move(*page.read("screen", number))
        assert page.page.text_content("#tip strong") == name
    page.page.fill("#search", "script")
    assert page.page.text_content("#title") == hostile[1]
    assert page.page.text_content("#layers button") == hostile[0]
    assert page.page.evaluate("window.attacked") is None
    assert page.page.locator("img, #title *, #legend img").count() == 0
    assert page.page.locator("script").count() == 2


def test_what_programs_can_read_they_cannot_change(open_page, classes):
    page = open_page(classes)
    page.page.evaluate("() => { window.hkconv = null; window.hkconv.size = 3; hkconv.state().shown.edges = false; }")
    assert page.page.evaluate("window.hkconv.size") == 12
    assert page.state("shown")["edges"] is True


def test_one_point_and_one_dimension(open_page):
    page = open_page(Scene("point", (Layer("only", exp0(torch.tensor([[0.0, 0.5]], dtype=torch.float64))),)))
    assert page.lorentz().tolist()[0] == pytest.approx([math.cosh(0.5), math.sinh(0.5), 0], abs=1e-6)
    assert "one dimension" in page.text("#kept")
    assert page.page.locator("#legend button").all_inner_texts() == ["node\n1"]
    page.press("Enter", "n", "p")
    assert page.state("selected") == 0


def test_a_large_graph_is_drawn_in_full_when_it_stands_still(open_page, cloud, generator):
    edges = torch.randint(20_000, (2, 101_000), generator=generator)
    page = open_page(Scene("large", (Layer("only", cloud(20_000, 2, 5.0)),), edges=edges))
    shown = int(page.text("#facts").split(" · ")[1].split()[0].replace(",", ""))
    assert shown > 100_000
    assert page.state("edgesDrawn") == shown
    x, y = page.middle()
    page.drag((x, y), (x + 60, y), (x + 90, y + 30))
    page.page.wait_for_function(f"() => hkconv.state().edgesDrawn === {shown} && !hkconv.state().isMoving")
