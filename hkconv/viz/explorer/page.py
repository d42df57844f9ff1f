"""A scene as one HTML file: data, style and program inside, nothing fetched, and no text of the data ever markup.

The data are JSON in a block that browsers do not run, with every character escaped that could end it. The page's
Content-Security-Policy allows the one script and the one style of this file, by their hashes, and nothing else: even
markup that found its way in could run nothing and call nobody. The program writes names as text nodes alone.
"""

import base64
import hashlib
import json
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from hkconv.engine.files import write_bytes
from hkconv.geometry.curvature import curvature_radius
from hkconv.geometry.lorentz import dist
from hkconv.viz.explorer.pca import Coordinates, Frame, principal_frame, rank_correlation
from hkconv.viz.explorer.scene import PARTS, Layer, Scene

# Fifteen planes to choose from, at 28 bytes a node and layer.
MOST_AXES = 6
# A correlation of so many pairs is off by about 0.01.
PAIRS = 10_000
SCRIPTS = ("disk.js", "raster.js", "scene.js", "elements.js", "colours.js", "view.js", "drawing.js", "controls.js")
ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def write_page(scene: Scene, path: Path | str) -> None:
    """Write the page of a scene, atomically.

    Args:
        scene: what to show.
        path: where the file goes; its folder exists.
    """
    write_bytes(Path(path), render_page(scene).encode(), "out")


def render_page(scene: Scene) -> str:
    """The page of a scene."""
    style = _asset("explorer.css")
    script = "(() => {\n'use strict';\n" + "\n".join(_asset(name) for name in SCRIPTS) + "})();\n"
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = {"POLICY": policy, "STYLE": style, "DATA": _as_json(describe_scene(scene)), "SCRIPT": script}
    page = _asset("page.html")
    # Split at the marks rather than replaced one after the other: a part may contain what looks like a mark.
    pieces = page.split("@@")
    return "".join(parts[piece] if index % 2 else piece for index, piece in enumerate(pieces))


def describe_scene(scene: Scene) -> dict[str, Any]:
    """A scene as the page's program reads it: arrays as base64, lengths in units of each layer's ``radius``."""
    return {
        "title": scene.title,
        "note": scene.note,
        "size": scene.num_nodes,
        "names": scene.names,
        "classes": scene.class_names,
        "labels": _integers(scene.labels),
        "predictions": _integers(scene.predictions),
        "parts": _integers(scene.parts),
        "partNames": PARTS,
        "edges": _integers(_shown_edges(scene.edges)),
        "layers": [_describe_layer(layer) for layer in scene.layers],
    }


def _describe_layer(layer: Layer) -> dict[str, Any]:
    radius = float(curvature_radius(layer.curvature))
    points = _in_units(layer.points, radius)
    frame = principal_frame(points, MOST_AXES)
    coordinates = frame.coordinates(points)
    described = {
        "name": layer.name,
        "dim": layer.points.size(1) - 1,
        "radius": radius,
        "axes": frame.axes.size(0),
        "points": _coordinates(coordinates),
        "kept": [[round(share, 6) for share in row] for row in coordinates.kept().tolist()],
        "agreement": _agreement(points, coordinates),
        "centers": None,
        "kernel": None,
    }
    if layer.centers is not None:
        # One centre after the other: all at once would take the memory of C copies of the points.
        distances = torch.stack([dist(layer.points, center, layer.curvature) for center in layer.centers], 1)
        centers = frame.coordinates(_in_units(layer.centers, radius))
        described["centers"] = {**_coordinates(centers), "distances": _floats(distances)}
    if layer.kernel is not None:
        described["kernel"] = _describe_kernel(_in_units(layer.kernel, radius), points, frame)
    return described


def _agreement(points: Tensor, coordinates: Coordinates) -> list[list[float | None]]:
    """The rank correlation of distances in each plane with the true ones, over a sample of pairs; None for no ranks."""
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randint(len(points), (2, PAIRS), generator=generator)
    first, second = first[first != second], second[first != second]
    true = dist(points[first], points[second])
    axes = range(coordinates.along.size(1))
    rows: list[list[float | None]] = [[None for _ in axes] for _ in axes]
    for one in axes:
        for other in axes[: one + 1]:
            shown = coordinates.in_plane(one, other)
            rows[one][other] = rows[other][one] = rank_correlation(true, dist(shown[first], shown[second]))
    return rows


def _describe_kernel(kernel: Tensor, points: Tensor, frame: Frame) -> dict[str, Any]:
    r"""Numbers that place kernel points :math:`\kappa` around any node without its ``n`` coordinates.

    :math:`T_{o \to x}(\kappa)`, seen from the mean :math:`\mu` and cut down to the axes :math:`e_j`, is a combination
    of :math:`e_j \cdot \kappa`, :math:`e_j \cdot x` and :math:`e_j \cdot \mu` whose factors follow from the times and
    from :math:`x \cdot \kappa` and :math:`\mu \cdot \kappa` (products of space parts). So beside its coordinates a
    node needs its time and one number a kernel point.
    """
    mean = frame.mean[1:]
    return {
        "times": kernel[:, 0].tolist(),
        "along": (kernel[:, 1:] @ frame.axes.T).tolist(),
        "onMean": (kernel[:, 1:] @ mean).tolist(),
        "mean": (frame.axes @ mean).tolist(),
        "meanTime": frame.mean[0].item(),
        "pointTimes": _floats(points[:, 0]),
        "onPoints": _floats(points[:, 1:] @ kernel[:, 1:].T),
    }


def _in_units(points: Tensor, radius: float) -> Tensor:
    """Points in units of the radius, with a second dimension if they have one alone."""
    points = points / radius
    return points if points.size(1) > 2 else torch.nn.functional.pad(points, (0, 1))


def _coordinates(coordinates: Coordinates) -> dict[str, str]:
    return {"along": _floats(coordinates.along), "rest": _floats(coordinates.rest)}


def _shown_edges(edges: Tensor | None) -> Tensor | None:
    """Every pair of different nodes once, ``(E, 2)``."""
    if edges is None:
        return None
    pairs = torch.stack([edges.amin(0), edges.amax(0)], 1)
    return pairs[pairs[:, 0] < pairs[:, 1]].unique(dim=0)


def _floats(values: Tensor) -> str:
    return _base64(values.to(torch.float32).numpy().astype("<f4").tobytes())


def _integers(values: Tensor | None) -> str | None:
    return None if values is None else _base64(values.numpy().astype("<i4").tobytes())


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(ESCAPES)


def _hash(text: str) -> str:
    return f"sha256-{_base64(hashlib.sha256(text.encode()).digest())}"


def _asset(name: str) -> str:
    return resources.files("hkconv.viz.explorer").joinpath("assets", name).read_text(encoding="utf-8")
