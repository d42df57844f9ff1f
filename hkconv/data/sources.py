"""Readers of the raw files of published datasets, as PyG graphs: PyG's own classes wherever it has one.

PyTorch is imported when something is read, so that the catalog can say quickly where files would lie."""

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from hkconv.data.staging import staged
from hkconv.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor
    from torch_geometric.data import Data

    from hkconv.data.molecules import Content as MoleculesContent

FILES_NAMED_IN_ERRORS = 4

# All that the pickles of Planetoid need: arrays, sparse matrices and a dictionary of lists.
PLANETOID_NAMES = (
    *("numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype"),
    *("scipy.sparse.csr csr_matrix", "collections defaultdict", "__builtin__ list"),
)

Content = TypeVar("Content")


@dataclass(frozen=True)
class Source(Generic[Content]):
    """Raw files below a data root and the function that reads them.

    Args:
        folder: where the files lie, relative to the data root.
        files: the files that must be there.
        read: makes the content, mostly a list of graphs, from a root laid out as the data root.
        pyg_class: name of the PyG dataset class that ``read`` opens; empty where PyG has none.
        can_download: whether PyG fetches missing files.
    """

    folder: str
    files: tuple[str, ...]
    read: Callable[[Path], Content]
    pyg_class: str = ""
    can_download: bool = False

    def missing(self, root: Path) -> list[str]:
        """The files that are not there."""
        return [name for name in self.files if not (root / self.folder / name).is_file()]

    def __str__(self) -> str:
        return f"{self.folder} (PyG {self.pyg_class})" if self.pyg_class else self.folder


@dataclass(frozen=True)
class Molecules:
    """A CSV file of molecules in the folder ``molecules`` of a data root.

    Args:
        raw: reads it and, where there is one, its published split.
        metric: how answers are scored: ``"ROC-AUC"`` or ``"AP"``.
    """

    raw: "Source[MoleculesContent]"
    metric: str


def read_source(source: Source[Content], root: Path, name: str) -> Content:
    """The content of a source, downloaded first where files are missing and PyG knows where to find them.

    Args:
        source: what to read.
        root: the data root; written to only by a download.
        name: the dataset's name, for error messages.

    Returns:
        What its ``read`` makes.
    """
    if source.missing(root):
        _download(source, root, name)
    try:
        if source.pyg_class:
            return source.read(staged(root, source.folder, source.read))
        return source.read(root)
    except InputError:
        raise
    # PyG's readers fail on damaged text, arrays and pickles with whatever error comes first.
    except Exception as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"dataset {name!r}: the files in {str(root / source.folder)!r} could not be read "
            f"({type(error).__name__}: {reason})"
        ) from error


def _download(source: Source, root: Path, name: str) -> None:
    """Let PyG download into a private folder, then move over each file that was missing."""
    if not source.can_download:
        raise InputError(_absence(source, root, name, "it has no download"))
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=root) as private:
            source.read(Path(private))
            target = root / source.folder
            target.mkdir(parents=True, exist_ok=True)
            for file in source.missing(root):
                os.replace(Path(private) / source.folder / file, target / file)
    # Name lookup, proxies, servers, archives and a read-only root all fail with errors of their own.
    except Exception as error:
        reason = f"the download failed with {type(error).__name__}"
        raise InputError(_absence(source, root, name, reason)) from error


def _absence(source: Source, root: Path, name: str, reason: str) -> str:
    missing = source.missing(root)
    named = ", ".join(missing[:FILES_NAMED_IN_ERRORS])
    if len(missing) > FILES_NAMED_IN_ERRORS:
        named += f" and {len(missing) - FILES_NAMED_IN_ERRORS} more"
    return (
        f"dataset {name!r} not found and {reason}: looked in {str(root / source.folder)!r} for {named}; "
        f"point --data or HKCONV_DATA to a folder that has them in {source.folder}"
    )


def webkb(name: str, folder: str = "webkb", can_download: bool = True) -> Source:
    """One of the WebKB graphs; PyG would fetch the current Cornell in place of the legacy one."""

    def read(root: Path) -> "list[Data]":
        from torch_geometric.datasets import WebKB

        return [WebKB(str(root / folder), name)[0]]

    files = ("out1_node_feature_label.txt", "out1_graph_edges.txt", *_geom_gcn_splits(name))
    return Source(f"{folder}/{name}/raw", files, read, "WebKB", can_download)


def wikipedia(name: str) -> Source:
    """Chameleon or Squirrel as Geom-GCN prepared them."""

    def read(root: Path) -> "list[Data]":
        from torch_geometric.datasets import WikipediaNetwork

        return [WikipediaNetwork(str(root / "wikipedia"), name, geom_gcn_preprocess=True)[0]]

    files = ("out1_node_feature_label.txt", "out1_graph_edges.txt", *_geom_gcn_splits(name))
    return Source(f"wikipedia/{name}/geom_gcn/raw", files, read, "WikipediaNetwork", can_download=True)


def actor() -> Source:
    """The film actors of Geom-GCN."""

    def read(root: Path) -> "list[Data]":
        from torch_geometric.datasets import Actor

        return [Actor(str(root / "actor"))[0]]

    files = ("out1_node_feature_label.txt", "out1_graph_edges.txt", *_geom_gcn_splits("film"))
    return Source("actor/raw", files, read, "Actor", can_download=True)


def planetoid(name: str) -> Source:
    """Cora, CiteSeer or PubMed with the Geom-GCN splits."""

    pickles = tuple(f"ind.{name.lower()}.{part}" for part in ("x", "tx", "allx", "y", "ty", "ally", "graph"))

    def read(root: Path) -> "list[Data]":
        from torch_geometric.datasets import Planetoid

        from hkconv.data.untrusted_files import check_pickle

        class CheckedPlanetoid(Planetoid):
            """PyG unpickles the raw files, wherever they came from."""

            def process(self) -> None:
                for file in pickles:
                    path = Path(self.raw_dir, file)
                    check_pickle(path.read_bytes(), PLANETOID_NAMES, str(path))
                super().process()

        return [CheckedPlanetoid(str(root / "planetoid"), name, split="geom-gcn")[0]]

    files = (*pickles, f"ind.{name.lower()}.test.index", *_geom_gcn_splits(name.lower()))
    return Source(f"planetoid/{name}/geom-gcn/raw", files, read, "Planetoid", can_download=True)


def tu(name: str, *node_files: str, can_download: bool = True) -> Source:
    """A graph classification set of the TU collection.

    ``node_files`` says what becomes features: ``"node_labels"``, one-hot, and ``"node_attributes"``, as they are.
    Without either a node's features are its degree, one-hot, with a column for every degree from zero to the
    largest of the whole dataset: structure alone, no label is looked at.
    """

    def read(root: Path) -> "list[Data]":
        from torch_geometric.datasets import TUDataset

        graphs = list(TUDataset(str(root / "tu"), name, use_node_attr="node_attributes" in node_files))
        return graphs if node_files else _with_degree_features(graphs)

    parts = ("A", "graph_indicator", "graph_labels", *node_files)
    files = tuple(f"{name}_{part}.txt" for part in parts)
    return Source(f"tu/{name}/raw", files, read, "TUDataset", can_download)


def filtered_wikipedia(name: str) -> Source:
    """Chameleon or Squirrel without the duplicate nodes (Platonov et al. 2023); PyG has no class for them."""
    file = f"{name}_filtered.npz"

    def read(root: Path) -> "list[Data]":
        import numpy as np
        import torch

        with np.load(root / "wikipedia_filtered" / file, allow_pickle=False) as arrays:
            graph = _undirected_graph(arrays["node_features"], arrays["edges"], arrays["node_labels"])
            for part in ("train", "val", "test"):
                graph[f"{part}_mask"] = torch.from_numpy(arrays[f"{part}_masks"]).bool().t()
        return [graph]

    return Source("wikipedia_filtered", (file,), read)


def airport() -> Source:
    """HGCN's airports from plain arrays; the original file is a pickle, which could execute anything."""

    def read(root: Path) -> "list[Data]":
        import numpy as np

        with np.load(root / "hgcn/airport/airport.npz", allow_pickle=False) as arrays:
            return [_undirected_graph(arrays["node_features"], arrays["edges"], arrays["node_labels"])]

    return Source("hgcn/airport", ("airport.npz",), read)


def hgcn_disease(name: str) -> Source:
    """``disease_nc`` or ``disease_lp``, the trees that HGCN was evaluated on."""
    folder = f"hgcn/{name}"

    def read(root: Path) -> "list[Data]":
        import numpy as np
        from scipy.sparse import load_npz

        features = load_npz(root / folder / f"{name}.feats.npz").toarray()
        edges = np.loadtxt(root / folder / f"{name}.edges.csv", delimiter=",", dtype=np.int64, ndmin=2)
        labels = np.load(root / folder / f"{name}.labels.npy", allow_pickle=False)
        return [_undirected_graph(features, edges, labels)]

    return Source(folder, tuple(f"{name}.{part}" for part in ("edges.csv", "feats.npz", "labels.npy")), read)


def molecules(file: str, *label_prefixes: str, metric: str, split_folder: str = "") -> Molecules:
    """The molecules of a gzipped CSV file with a column ``smiles`` and yes-or-no columns.

    Args:
        file: its name.
        label_prefixes: how the names of the yes-or-no columns begin.
        metric: see :class:`Molecules`.
        split_folder: folder of the published split, three files of row numbers; empty where there is none.

    Returns:
        What :func:`hkconv.data.molecules.load_molecules` takes.
    """
    parts = ("train.csv.gz", "valid.csv.gz", "test.csv.gz")
    split_files = tuple(f"{split_folder}/{name}" for name in parts) if split_folder else ()

    def read(root: Path) -> "MoleculesContent":
        from hkconv.data.molecules import read_molecules

        return read_molecules(root / "molecules", file, label_prefixes, split_files)

    return Molecules(Source("molecules", (file, *split_files), read), metric)


def _geom_gcn_splits(name: str) -> tuple[str, ...]:
    return tuple(f"{name}_split_0.6_0.2_{index}.npz" for index in range(10))


def _undirected_graph(features: "np.ndarray", edges: "np.ndarray", labels: "np.ndarray") -> "Data":
    """A graph from files that list each undirected edge once."""
    import torch
    from torch_geometric.data import Data
    from torch_geometric.utils import to_undirected

    x = torch.from_numpy(features).float()
    edge_index = to_undirected(torch.from_numpy(edges).long().t().contiguous(), num_nodes=len(x))
    return Data(x=x, edge_index=edge_index, y=torch.from_numpy(labels).long())


def _with_degree_features(graphs: "list[Data]") -> "list[Data]":
    import torch

    degrees = [_degree(graph) for graph in graphs]
    columns = 1 + max(int(degree.max()) for degree in degrees)
    for graph, degree in zip(graphs, degrees):
        graph.x = torch.nn.functional.one_hot(degree, columns).float()
    return graphs


def _degree(graph: "Data") -> "Tensor":
    import torch

    return torch.bincount(graph.edge_index[0], minlength=graph.num_nodes)
