"""One graph from an ``.npz`` file of plain arrays; pickled ones are refused."""

from pathlib import Path

import numpy as np

from hkconv.data.own.arrays import KIND, graph_of_arrays, ids_of_array, labels_of_array
from hkconv.data.own.graphs import OwnGraphs
from hkconv.data.plain_arrays import read_arrays
from hkconv.data.split_files import parts_of_masks

# As the archives of Platonov et al. (2023) call them; their edges are rows.
OTHER_NAMES = {"node_features": "x", "node_labels": "y"}
MASKS = tuple(f"{part}_mask{end}" for part in ("train", "val", "test") for end in ("", "s"))
KNOWN = ("x", "edge_index", "edges", "edge_weight", "y", "ids", *OTHER_NAMES, *MASKS)


def read_archive(path: Path) -> OwnGraphs:
    """Read the arrays of one graph.

    Args:
        path: an ``.npz`` file with ``x`` (N, F), ``edge_index`` (2, E) or ``edges`` (E, 2) and, where there are some,
            ``y`` (N,), whole numbers, negative where unknown, or names; ``edge_weight`` (E,); ``ids`` (N,);
            ``train_mask``, ``val_mask`` and ``test_mask``, (N,) or (S, N) for S splits. Other arrays are not read.

    Returns:
        The graph.
    """
    arrays = _load(path)
    place = str(path)
    graph = graph_of_arrays(arrays, place)
    count = graph.num_nodes
    labels = labels_of_array(arrays["y"], count, place) if "y" in arrays else [""] * count
    ids = ids_of_array(arrays["ids"], count, place) if "ids" in arrays else list(map(str, range(count)))
    splits = parts_of_masks(arrays, count, place) if any(name in arrays for name in MASKS) else None
    return OwnGraphs(place, KIND, "node", [graph], ids, labels, splits)


def _load(path: Path) -> dict[str, np.ndarray]:
    found = {OTHER_NAMES.get(name, name): array for name, array in read_arrays(path, str(path), KNOWN).items()}
    if "edges" in found and "edge_index" not in found:
        found["edge_index"] = found.pop("edges").T
    return found
