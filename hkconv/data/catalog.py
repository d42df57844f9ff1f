"""The datasets by name: their sizes, and where they come from. It loads no PyTorch, so that they are listed quickly."""

import difflib
import os
from dataclasses import dataclass
from pathlib import Path

from hkconv.data import sources
from hkconv.data.options import CHOICES, CLEAN, PUBLISHED
from hkconv.data.sources import Molecules, Source
from hkconv.data.staging import data_root
from hkconv.errors import InputError

# The datasets that the paper's code divides, by how it does.
BINARY_SPLIT_NODES = ("cornell", "cornell-legacy", "texas", "wisconsin", "chameleon", "squirrel", "actor")
CITATION_NODES = ("cora", "pubmed")
GRAPHS = ("ptc", "enzymes", "proteins", "imdb-binary", "imdb-multi")

# A file of graphs or of molecules, or "module:function" of what makes a dataset.
Origin = Source | Molecules | str

NODE_TASKS = ("node", "link")
LINK_FIRST = ("link", "node")
GRAPH_TASKS = ("graph",)

# As HGCN divides its airports and its disease trees.
AIRPORT_FRACTIONS = (0.70, 0.15, 0.15)
DISEASE_FRACTIONS = (0.30, 0.10, 0.60)


@dataclass(frozen=True)
class Facts:
    """Sizes of a dataset, totals over its graphs; an undirected edge and a self loop count one each.

    Those of embedded datasets are for seed 0; other seeds differ by a few nodes. Those of ``ogbg-molpcba`` come from
    the averages that OGB gives. A dataset with several yes-or-no questions has two classes, no and yes.
    """

    graphs: int
    nodes: int
    edges: int
    features: int
    classes: int


@dataclass(frozen=True)
class Entry:
    """A dataset of the catalog.

    Args:
        name: its name, lower case with hyphens.
        facts: its sizes.
        origin: the raw files, a file of molecules, or ``"module:function"`` of what makes an embedded dataset, in
            :mod:`hkconv.data`.
        tasks: what it can be used for, the usual one first.
        fractions: of stratified random node splits; None where the data brings its own splits.
        one_way: whether some edges are stored in one direction only.
    """

    name: str
    facts: Facts
    origin: Origin
    tasks: tuple[str, ...] = NODE_TASKS
    fractions: tuple[float, float, float] | None = None
    one_way: bool = False


@dataclass(frozen=True)
class DatasetInfo:
    """One line of ``hkconv datasets``; sizes are those of :class:`Facts`.

    ``location`` is ``"embedded"``, the folder the raw files lie in, ``"download to FOLDER"`` or
    ``"absent: FOLDER"``.
    """

    name: str
    task: str
    graphs: int
    nodes: int
    edges: int
    features: int
    classes: int
    location: str


_ENTRIES = (
    Entry("tree", Facts(1, 971, 970, 16, 8), "trees:hierarchy"),
    Entry("disease", Facts(1, 1093, 1092, 11, 2), "trees:disease"),
    Entry("cornell", Facts(1, 183, 280, 1703, 5), sources.webkb("cornell"), one_way=True),
    Entry("cornell-legacy", Facts(1, 183, 280, 1703, 5), sources.webkb("cornell", "webkb_legacy", False), one_way=True),
    Entry("texas", Facts(1, 183, 295, 1703, 5), sources.webkb("texas"), one_way=True),
    Entry("wisconsin", Facts(1, 251, 466, 1703, 5), sources.webkb("wisconsin"), one_way=True),
    Entry("chameleon", Facts(1, 2277, 31421, 2325, 5), sources.wikipedia("chameleon"), one_way=True),
    Entry("squirrel", Facts(1, 5201, 198493, 2089, 5), sources.wikipedia("squirrel"), one_way=True),
    Entry("chameleon-filtered", Facts(1, 890, 8854, 2325, 5), sources.filtered_wikipedia("chameleon")),
    Entry("squirrel-filtered", Facts(1, 2223, 46998, 2089, 5), sources.filtered_wikipedia("squirrel")),
    Entry("actor", Facts(1, 7600, 26752, 932, 5), sources.actor(), one_way=True),
    Entry("cora", Facts(1, 2708, 5278, 1433, 7), sources.planetoid("Cora")),
    Entry("citeseer", Facts(1, 3327, 4552, 3703, 6), sources.planetoid("CiteSeer")),
    Entry("pubmed", Facts(1, 19717, 44324, 500, 3), sources.planetoid("PubMed")),
    Entry("airport", Facts(1, 3188, 18631, 4, 4), sources.airport(), fractions=AIRPORT_FRACTIONS),
    Entry(
        "disease-nc",
        Facts(1, 1044, 1043, 1000, 2),
        sources.hgcn_disease("disease_nc"),
        fractions=DISEASE_FRACTIONS,
    ),
    Entry(
        "disease-lp",
        Facts(1, 2665, 2664, 11, 2),
        sources.hgcn_disease("disease_lp"),
        LINK_FIRST,
        DISEASE_FRACTIONS,
    ),
    Entry(
        "ptc",
        Facts(344, 8792, 8931, 19, 2),
        sources.tu("PTC", "node_labels", can_download=False),
        GRAPH_TASKS,
    ),
    Entry(
        "enzymes",
        Facts(600, 19580, 37282, 21, 6),
        sources.tu("ENZYMES", "node_labels", "node_attributes"),
        GRAPH_TASKS,
    ),
    Entry(
        "enzymes-labels",
        Facts(600, 19580, 37282, 3, 6),
        sources.tu("ENZYMES", "node_labels"),
        GRAPH_TASKS,
    ),
    Entry(
        "proteins",
        Facts(1113, 43471, 81044, 4, 2),
        sources.tu("PROTEINS", "node_labels", "node_attributes"),
        GRAPH_TASKS,
    ),
    Entry(
        "proteins-labels",
        Facts(1113, 43471, 81044, 3, 2),
        sources.tu("PROTEINS", "node_labels"),
        GRAPH_TASKS,
    ),
    Entry("imdb-binary", Facts(1000, 19773, 96531, 136, 2), sources.tu("IMDB-BINARY"), GRAPH_TASKS),
    Entry("imdb-multi", Facts(1500, 19502, 98903, 89, 3), sources.tu("IMDB-MULTI"), GRAPH_TASKS),
    Entry(
        "ogbg-molhiv",
        Facts(41127, 1049163, 1129688, 174, 2),
        sources.molecules("hiv.csv.gz", "HIV_active", metric="ROC-AUC", split_folder="ogbg_molhiv_split"),
        GRAPH_TASKS,
    ),
    Entry(
        "ogbg-molpcba",
        Facts(437929, 11386154, 12305805, 174, 2),
        sources.molecules("pcba.csv.gz", "PCBA-", metric="AP", split_folder="ogbg_molpcba_split"),
        GRAPH_TASKS,
    ),
    Entry(
        "muv", Facts(93087, 2255846, 2446126, 174, 2), sources.molecules("muv.csv.gz", "MUV-", metric="AP"), GRAPH_TASKS
    ),
    Entry(
        "tox21",
        Facts(7831, 145459, 151095, 174, 2),
        sources.molecules("tox21.csv.gz", "NR-", "SR-", metric="ROC-AUC"),
        GRAPH_TASKS,
    ),
)

CATALOG = {entry.name: entry for entry in _ENTRIES}


def describe(root: str | os.PathLike[str] | None = None) -> list[DatasetInfo]:
    """Datasets that :func:`hkconv.data.load` knows, with sizes and the place each would load from. Reads no dataset.

    Args:
        root: folder of the raw files, as for :func:`hkconv.data.load`.

    Returns:
        One entry a dataset, in the order of the catalog.
    """
    folder = data_root(root)
    return [
        DatasetInfo(name=entry.name, task=entry.tasks[0], **vars(entry.facts), location=_location(entry.origin, folder))
        for entry in CATALOG.values()
    ]


def find_entry(name: str) -> Entry:
    """Return the entry of a dataset; an :class:`InputError` names those that are spelled alike."""
    key = name.lower().replace("_", "-")
    if key in CATALOG:
        return CATALOG[key]
    nearest = difflib.get_close_matches(key, CATALOG, n=3)
    hint = f"did you mean {' or '.join(nearest)}? " if nearest else ""
    raise InputError(f"unknown dataset {name!r}: {hint}`hkconv datasets` lists them")


def check_name(name: str) -> None:
    """Raise an :class:`InputError` if a name is neither a dataset's nor, as those of own data are, a path."""
    is_path = os.sep in name or Path(name).suffix != "" or os.path.exists(os.path.expanduser(name))
    if not is_path:
        find_entry(name)


def check_protocol(protocol: str, name: str, task: str) -> None:
    """``protocol`` is known and, if it is ``"published"``, the paper's code has a split for the dataset and task."""
    if protocol not in CHOICES:
        raise InputError(f"protocol must be {' or '.join(map(repr, CHOICES))}, got {protocol!r}")
    known = (*BINARY_SPLIT_NODES, *CITATION_NODES, *GRAPHS)
    if protocol == PUBLISHED and (task == "link" or name not in known):
        raise InputError(
            f"protocol {PUBLISHED!r} does not cover the {task} task of dataset {name!r}, only the classification of "
            f"{', '.join(known)}: use {CLEAN!r}"
        )


def choose_task(entry: Entry, task: str | None) -> str:
    """Return the task to use a dataset for: the usual one, unless another of its tasks is asked for."""
    if task is None:
        return entry.tasks[0]
    if task not in entry.tasks:
        accepted = " or ".join(repr(possible) for possible in entry.tasks)
        raise InputError(f"task of dataset {entry.name!r} must be {accepted}, got {task!r}")
    return task


def _location(origin: Origin, root: Path) -> str:
    if isinstance(origin, str):
        return "embedded"
    source = origin.raw if isinstance(origin, Molecules) else origin
    folder = root / source.folder
    if not source.missing(root):
        return str(folder)
    return f"download to {folder}" if source.can_download else f"absent: {folder}"
