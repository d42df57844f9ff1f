"""Reads the recipes of the paper's tables: one YAML file a table, checked to the last key.

A table says what its datasets share, and under each dataset what differs there::

    metric: accuracy
    task: node                         # may be left out: each dataset's usual one
    settings: {lr: 0.01, ...}          # fields of a training recipe that all systems share
    systems: {HKN: {model: hkn, relative: false}, GCN: {model: gcn}}
    protocols: {clean: {num_splits: 10, seeds: 1}, published: {num_splits: 3, seeds: 1, settings: {...}}}
    quick: {num_splits: 2, epochs: 30}
    datasets:
      texas:
        systems: {HKN: {kernel_size: 3}}    # added to what the table says; null takes a system or protocol away
        paper: {HKN: [90.94, 0.66], ...}    # mean and deviation in %; null where the paper has none, .nan where NaN

A table may derive its systems from one of another table, and takes from that all that it does not say itself, the
paper's figures of its systems too::

    base: node                         # may differ by dataset
    of: HKN
    variants: {K=2: {kernel_size: 2}, ...}
    more_variants: {directed: {...}}   # for datasets with `more: [directed]`
    datasets: {texas: {paper: {K=2: [79.08, 0.36], ...}}}

What ``hkconv tune`` chose for a table is in ``tuned/TABLE.yaml``, by dataset, protocol and system::

    texas: {clean: {GCN: {lr: 0.02, dropout: 0.75}, ...}}
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from hkconv.data.catalog import CATALOG, check_protocol
from hkconv.data.options import CHOICES as PROTOCOLS
from hkconv.data.options import CLEAN
from hkconv.data.sources import Molecules
from hkconv.engine.files import make_folder, write_bytes
from hkconv.engine.settings import RuntimeOptions
from hkconv.errors import InputError, did_you_mean
from hkconv.experiments.store import RUNTIME
from hkconv.models import MODELS
from hkconv.models.options import TASKS, foreign_options
from hkconv.tasks.recipe import Recipe, make_recipe, read_recipe_file

RECIPES = Path(__file__).parent / "recipes"
TUNED = "tuned"

TRAINED_TABLES = ("graph", "molecules", "node", "kernels-graph", "kernels-node", "ablations", "links")
TABLES = (*TRAINED_TABLES, RUNTIME)
ALL = "all"
METRICS = ("accuracy", "ROC-AUC", "AP")

# The systems of the paper's tables; a recipe may give the paper's figure of one that it does not train.
PAPER_SYSTEMS = (
    *("MLP", "GCN", "GAT", "GraphSAGE", "GCNII", "GIN", "GMT"),
    *("Geom-GCN", "WRGAT", "LINKX", "GloGNN", "GloGNN++"),
    *("HGCN", "H2H-GCN", "HyboNet", "WLHN"),
    *("HKN", "HKN-direct", "HKN-random", "HKN-train"),
)

# What a table says elsewhere, and what it says nothing about.
_NOT_SETTINGS = {
    *("dataset", "task", "protocol", "split_file", "models", "num_splits", "seeds", "seed"),
    *("deterministic", *RuntimeOptions.options()),
}
SETTINGS = tuple(name for name in Recipe.options() if name not in _NOT_SETTINGS)

_KEYS = ("metric", "paper", "task", "settings", "systems", "protocols", "quick")
_OPTIONAL_KEYS = ("paper", "task")
_DERIVED_KEYS = ("base", "paper", "protocols", "quick")

Settings = dict[str, Any]
Figure = tuple[float, float]
Tuned = dict[str, dict[str, Settings]]


def table_names(given: str) -> tuple[str, ...]:
    """The tables that a name stands for: itself, or for ``all`` every one."""
    if given != ALL and given not in TABLES:
        raise InputError(f"unknown table {given!r}; {did_you_mean(given, (*TABLES, ALL))}")
    return TABLES if given == ALL else (given,)


@dataclass(frozen=True)
class System:
    """A line of a table: a model, what differs from the settings that all systems share, and what was then tuned.

    Args:
        model: name of the model.
        settings: fields of :class:`~hkconv.tasks.recipe.Recipe` as a person gave them.
        tuned: fields as a search on validation data chose them, by protocol.
    """

    model: str
    settings: Settings
    tuned: dict[str, Settings]

    def chosen_for(self, protocol: str) -> Settings:
        """Its settings under a protocol: where nothing was tuned for that one, with what was for ``clean``."""
        return {**self.settings, **self.tuned.get(protocol, self.tuned.get(CLEAN, {}))}


@dataclass(frozen=True)
class Repeats:
    """Number of trainings of a table's cell under a protocol, and what differs from the shared settings there."""

    num_splits: int
    seeds: int
    settings: Settings


@dataclass(frozen=True)
class TableRecipe:
    """One dataset of one table.

    Args:
        file: where it was read from.
        table, dataset, metric: what it is about.
        given_task: the table's task; None for the dataset's usual one.
        paper: mean and deviation in % by label, None where the paper has no figure, NaN where it has NaN.
        settings: fields of :class:`~hkconv.tasks.recipe.Recipe` that all systems share.
        systems: by label, in the table's order.
        protocols: by name.
        quick: what ``--quick`` cuts every protocol down to.
    """

    file: Path
    table: str
    dataset: str
    metric: str
    given_task: str | None
    paper: dict[str, Figure | None]
    settings: Settings
    systems: dict[str, System]
    protocols: dict[str, Repeats]
    quick: Repeats

    @property
    def task(self) -> str:
        """``"node"``, ``"graph"`` or ``"link"``."""
        return self.given_task or CATALOG[self.dataset].tasks[0]


def read_table(table: str, folder: Path = RECIPES) -> list[TableRecipe]:
    """The recipes of a table, in the order of the catalog.

    Args:
        table: one of :data:`TRAINED_TABLES`.
        folder: holds a file for each table.

    Returns:
        One recipe a dataset; an :class:`InputError` names the file and the key that is wrong.
    """
    file = folder / f"{table}.yaml"
    if not file.exists():
        raise InputError(f"table {table!r} has no recipes: there is no {file}, one file for all its datasets")
    files = _Files(folder)
    document = files.table(table)
    try:
        found = [
            _parse(file, table, dataset, *_expand(document, table, dataset, files)) for dataset in document["datasets"]
        ]
    except InputError as error:
        raise InputError(f"recipe {file}: {error}") from None
    return sorted(found, key=lambda recipe: list(CATALOG).index(recipe.dataset))


def read_tuned(table: str, dataset: str, folder: Path = RECIPES) -> Tuned:
    """Read what was tuned for the systems of a dataset, by protocol and label; nothing where nothing was."""
    return _Files(folder).tuned(table, dataset)


def save_tuned(table: str, tuned: Mapping[str, Tuned], folder: Path = RECIPES) -> Path:
    """Write what was tuned for some datasets of a table; what its file has of others stays.

    Args:
        table: its name.
        tuned: by dataset.
        folder: of the recipes.

    Returns:
        The file written.
    """
    path = folder / TUNED / f"{table}.yaml"
    make_folder(path.parent, "recipes")
    kept = {**(read_recipe_file(path) if path.exists() else {}), **tuned}
    lines = [f"# What `hkconv tune` chose on validation data; the rest stays as {table}.yaml has it."]
    for dataset, protocols in kept.items():
        lines.append(f"{dataset}:")
        for protocol, systems in protocols.items():
            lines.append(f"  {protocol}:")
            lines += [f"    {label}: {_flow(settings)}" for label, settings in systems.items()]
    write_bytes(path, ("\n".join(lines) + "\n").encode())
    return path


def _flow(settings: Settings) -> str:
    return yaml.safe_dump(settings, default_flow_style=True, sort_keys=False, width=10_000).strip()


class _Files:
    """The files of a folder of recipes, each read once."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.read = cache(read_recipe_file)

    def table(self, name: Any) -> dict[str, Any]:
        """A table's file, with keys that a table has."""
        _check_known(name, TRAINED_TABLES, "table")
        path = self.folder / f"{name}.yaml"
        document = self.read(path)
        try:
            _check_table(document)
        except InputError as error:
            raise InputError(f"recipe {path}: {error}") from None
        return document

    def tuned(self, table: str, dataset: str) -> Tuned:
        """Tuned settings of the systems of a dataset."""
        path = self.folder / TUNED / f"{table}.yaml"
        values = _mapping((self.read(path) if path.exists() else {}).get(dataset, {}), f"{dataset} in {TUNED}")
        _check_keys(values, PROTOCOLS, f"protocol of {dataset} in {TUNED}")
        return {
            protocol: {
                label: _settings(given, f"{label!r} in {TUNED}") for label, given in _mapping(systems, protocol).items()
            }
            for protocol, systems in values.items()
        }


def _check_table(document: Mapping[str, Any]) -> None:
    if "base" in document:
        keys = (*_DERIVED_KEYS, "of", "variants", "more_variants", "datasets")
        _check_keys(document, keys, "key", required=("of", "variants", "datasets"))
    else:
        _check_keys(document, (*_KEYS, "datasets"), "key", required=("datasets",))
    datasets = _mapping(document["datasets"], "datasets")
    if not datasets:
        raise InputError("datasets must name at least one")
    for name in datasets:
        _check_known(name, CATALOG, "dataset")


def _expand(document: Mapping[str, Any], table: str, dataset: str, files: _Files) -> tuple[dict[str, Any], Tuned]:
    """Combine what a table says of a dataset with what was tuned there."""
    given = _mapping(document["datasets"][dataset], f"dataset {dataset!r}")
    if "base" in document:
        return _derive(document, given, dataset, files)
    _check_keys(given, _KEYS, f"key of dataset {dataset!r}")
    shared = {key: value for key, value in document.items() if key != "datasets"}
    return _merged(shared, given), files.tuned(table, dataset)


def _derive(
    document: Mapping[str, Any], given: Mapping[str, Any], dataset: str, files: _Files
) -> tuple[dict[str, Any], Tuned]:
    _check_keys(given, (*_DERIVED_KEYS, "more"), f"key of dataset {dataset!r}")
    own = _merged({key: document[key] for key in _DERIVED_KEYS if key in document}, given)
    base = files.table(own["base"])
    _check_known(dataset, base["datasets"], f"dataset of {own['base']}.yaml")
    values, found = _expand(base, own["base"], dataset, files)
    of, variants = document["of"], _variants(document, own.get("more", []))
    systems = _mapping(values.get("systems", {}), "systems")
    _check_known(of, systems, f"system of {own['base']}.yaml")
    tuned = {
        protocol: {
            label: {name: value for name, value in settings.get(of, {}).items() if name not in changes}
            for label, changes in variants.items()
        }
        for protocol, settings in found.items()
    }
    figures = _mapping(values.get("paper", {}), "paper")
    derived = {
        **values,
        **{key: value for key, value in own.items() if key in _KEYS},
        "paper": {
            **{label: figure for label, figure in figures.items() if label in variants},
            **_mapping(own.get("paper", {}), "paper"),
        },
        "systems": {label: {**_mapping(systems[of], str(of)), **changes} for label, changes in variants.items()},
    }
    return derived, tuned


def _variants(document: Mapping[str, Any], more: Any) -> dict[str, dict[str, Any]]:
    """The variants of all datasets, and those of the groups that one names."""
    groups = _mapping(document.get("more_variants", {}), "more_variants")
    found = dict(_mapping(document["variants"], "variants"))
    if not isinstance(more, list):
        raise InputError(f"more must be a list of names in more_variants, got {more!r}")
    for name in more:
        _check_known(name, groups, "name in more")
        found |= _mapping(groups[name], f"more_variants {name!r}")
    return {label: _mapping(changes, f"variant {label!r}") for label, changes in found.items()}


def _merged(shared: Any, given: Any) -> Any:
    """Add what a dataset gives to what its table shares."""
    if not isinstance(shared, dict) or not isinstance(given, dict):
        return given
    return {**shared, **{key: _merged(shared[key], value) if key in shared else value for key, value in given.items()}}


def _parse(file: Path, table: str, dataset: str, values: Mapping[str, Any], tuned: Tuned) -> TableRecipe:
    _check_keys(values, _KEYS, "key", required=[key for key in _KEYS if key not in _OPTIONAL_KEYS])
    tasks, given_task = CATALOG[dataset].tasks, values.get("task")
    if given_task is not None:
        _check_known(given_task, tasks, f"task of dataset {dataset!r}")
    task = given_task or tasks[0]
    _check_metric(values["metric"], dataset, task)
    settings = _settings(values["settings"], "settings")
    systems = {
        label: _system(label, given, task, {name: found[label] for name, found in tuned.items() if label in found})
        for label, given in _mapping(values["systems"], "systems").items()
        if given is not None
    }
    for found in tuned.values():
        for label in found:
            _check_known(label, systems, f"system in {TUNED}")
    if not systems:
        raise InputError("systems must name at least one")
    for label in systems:
        if "," in label:
            raise InputError(f"name of system {label!r} must have no comma: names are chosen in lists with commas")
    return TableRecipe(
        file=file,
        table=table,
        dataset=dataset,
        metric=values["metric"],
        given_task=given_task,
        paper=_paper(values.get("paper", {}), systems),
        settings=settings,
        systems=systems,
        protocols=_protocols(values["protocols"], dataset, task),
        quick=_quick(values["quick"]),
    )


def _check_metric(metric: Any, dataset: str, task: str) -> None:
    _check_known(metric, METRICS, "metric")
    origin = CATALOG[dataset].origin
    right = origin.metric if isinstance(origin, Molecules) else "ROC-AUC" if task == "link" else "accuracy"
    if metric != right:
        raise InputError(f"metric of dataset {dataset!r} must be {right!r}, got {metric!r}")


def _system(label: str, given: Any, task: str, tuned: dict[str, Settings]) -> System:
    given = _mapping(given, f"system {label!r}")
    _check_keys(given, ("model", *SETTINGS), f"key of system {label!r}", required=("model",))
    model = given["model"]
    _check_known(model, MODELS, f"model of system {label!r}")
    if task not in getattr(MODELS[model], "tasks", TASKS):
        raise InputError(f"system {label!r}: model {model!r} has no {task} task")
    settings = _settings({key: value for key, value in given.items() if key != "model"}, f"system {label!r}")
    for key in (*settings, *(name for found in tuned.values() for name in found)):
        if key in foreign_options(model):
            raise InputError(f"system {label!r}: {key} is no setting of model {model!r}")
    return System(model, settings, tuned)


def _protocols(given: Any, dataset: str, task: str) -> dict[str, Repeats]:
    given = {name: values for name, values in _mapping(given, "protocols").items() if values is not None}
    if not given:
        raise InputError(f"protocols must name at least one of {', '.join(PROTOCOLS)}")
    found = {}
    for name, values in given.items():
        _check_known(name, PROTOCOLS, "protocol")
        check_protocol(name, dataset, task)
        values = _mapping(values, f"protocol {name!r}")
        keys = ("num_splits", "seeds", "settings")
        _check_keys(values, keys, f"key of protocol {name!r}", required=("num_splits", "seeds"))
        settings = _settings(values.get("settings", {}), f"protocol {name!r}")
        found[name] = Repeats(*_counts(values), settings)
    return found


def _quick(given: Any) -> Repeats:
    given = _mapping(given, "quick")
    _check_keys(given, ("num_splits", "seeds", *SETTINGS), "key of quick", required=("num_splits",))
    settings = {key: value for key, value in given.items() if key in SETTINGS}
    return Repeats(*_counts({"seeds": 1, **given}), _settings(settings, "quick"))


def _counts(values: Mapping[str, Any]) -> tuple[int, int]:
    checked = make_recipe(num_splits=values["num_splits"], seeds=values["seeds"])
    return checked.data.num_splits, checked.optim.seeds


def _settings(given: Any, where: str) -> Settings:
    """Fields of a training recipe, each with a value that it accepts."""
    given = _mapping(given, where)
    _check_keys(given, SETTINGS, f"key of {where}")
    checked = make_recipe(given).flat()
    return {key: checked[key] for key in given}


def _paper(given: Any, systems: Mapping[str, System]) -> dict[str, Figure | None]:
    found = {}
    for label, figure in _mapping(given, "paper").items():
        _check_known(label, dict.fromkeys((*systems, *PAPER_SYSTEMS)), "system of paper")
        if figure is not None and not _is_figure(figure):
            raise InputError(f"paper's figure of {label!r} must be [mean, deviation] or null, got {figure!r}")
        found[label] = None if figure is None else (float(figure[0]), float(figure[1]))
    return found


def _is_figure(value: Any) -> bool:
    is_pair = isinstance(value, list) and len(value) == 2
    return is_pair and all(isinstance(number, int | float) and not isinstance(number, bool) for number in value)


def _check_keys(values: Mapping[str, Any], known: Iterable[str], what: str, required: Iterable[str] = ()) -> None:
    for key in values:
        _check_known(key, known, what)
    for key in required:
        if key not in values:
            raise InputError(f"{what} {key!r} is missing")


def _check_known(name: Any, known: Iterable[str], what: str) -> None:
    known = list(known)
    if name not in known:
        raise InputError(f"unknown {what} {name!r}; {did_you_mean(name, known)}")


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where} must hold keys and values, got {value!r}")
    return value
