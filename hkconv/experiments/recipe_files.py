"""Reads the recipes of the paper's tables: one YAML file for each table and dataset, checked to the last key.

A file either says everything itself::

    table: node
    dataset: texas
    metric: accuracy
    paper: {HKN: [90.94, 0.66], ...}   # mean and deviation in %; null where the paper has none, .nan where it has NaN
    settings: {lr: 0.01, ...}          # fields of a training recipe that all systems share
    chosen_here: [lr, HKN.dropout]     # settings, and fields of a system, that the paper leaves open
    systems: {HKN: {model: hkn, root: false}, GCN: {model: gcn}}
    protocols: {clean: {num_splits: 10, seeds: 1}, published: {num_splits: 3, seeds: 1, settings: {...}}}
    quick: {num_splits: 2, epochs: 30}

or derives its systems from one of another file, and takes from that all that it does not say itself, the paper's
figures of its systems too::

    table: kernels-node
    base: node/texas
    variants: kernels                  # or several: variants/kernels.yaml: {of: HKN, variants: {K=2: {...}, ...}}
    paper: {K=2: [79.08, 0.36], ...}

What ``hkconv tune`` chose for the systems of ``node/texas`` is in ``tuned/node/texas.yaml``, by protocol and system::

    clean: {GCN: {lr: 0.02, dropout: 0.75}, ...}
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from hkconv.data.catalog import CATALOG
from hkconv.data.dataset import CLEAN
from hkconv.data.molecules import Molecules
from hkconv.data.protocols import CHOICES as PROTOCOLS
from hkconv.data.protocols import check_protocol
from hkconv.errors import InputError, did_you_mean
from hkconv.models import MODELS
from hkconv.models.tasks import TASKS
from hkconv.tasks.building import HKN_FIELDS
from hkconv.tasks.recipe import Recipe, make_recipe, read_recipe_file

RECIPES = Path(__file__).parent / "recipes"
VARIANTS = "variants"
TUNED = "tuned"

TRAINED_TABLES = ("graph", "molecules", "node", "kernels-graph", "kernels-node", "ablations")
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
    *("device", "deterministic", "capture", "keep_every", "data", "out"),
}
SETTINGS = tuple(entry.name for entry in fields(Recipe) if entry.name not in _NOT_SETTINGS)

_KEYS = ("table", "dataset", "metric", "paper", "settings", "chosen_here", "systems", "protocols", "quick")
_DERIVED_KEYS = ("table", "base", "variants", "paper", "protocols", "quick")

Settings = dict[str, Any]
Figure = tuple[float, float]
Tuned = dict[str, dict[str, Settings]]


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
    """How often a cell of a table is trained under a protocol, and what differs from the shared settings there."""

    num_splits: int
    seeds: int
    settings: Settings


@dataclass(frozen=True)
class TableRecipe:
    """One dataset of one table, as its file has it.

    Args:
        file: where it was read from.
        table, dataset, metric: what it is about.
        paper: mean and deviation in % by label, None where the paper has no figure, NaN where it has NaN.
        settings: fields of :class:`~hkconv.tasks.recipe.Recipe` that all systems share.
        chosen_here: names of settings, or ``LABEL.FIELD``, that the paper leaves open.
        systems: by label, in the table's order.
        protocols: by name.
        quick: what ``--quick`` cuts every protocol down to.
    """

    file: Path
    table: str
    dataset: str
    metric: str
    paper: dict[str, Figure | None]
    settings: Settings
    chosen_here: tuple[str, ...]
    systems: dict[str, System]
    protocols: dict[str, Repeats]
    quick: Repeats

    @property
    def task(self) -> str:
        """``"node"`` or ``"graph"``."""
        return CATALOG[self.dataset].tasks[0]


def read_table(table: str, folder: Path = RECIPES) -> list[TableRecipe]:
    """The recipes of a table, in the order of the catalog.

    Args:
        table: one of :data:`TRAINED_TABLES`.
        folder: holds a folder for each table.

    Returns:
        One recipe a dataset; an :class:`InputError` names the file and the key that is wrong.
    """
    files = sorted((folder / table).glob("*.yaml"))
    if not files:
        raise InputError(f"table {table!r} has no recipes: {folder / table} holds no .yaml file")
    found = [read_file(file, folder) for file in files]
    return sorted(found, key=lambda recipe: list(CATALOG).index(recipe.dataset))


def read_file(file: Path, folder: Path = RECIPES) -> TableRecipe:
    """One recipe, checked.

    Args:
        file: a YAML file as the module describes.
        folder: where the files lie that it derives from.
    """
    values = read_recipe_file(file)
    try:
        if "base" in values:
            return _parse(file, *_derive(values, folder))
        return _parse(file, values, read_tuned(f"{file.parent.name}/{file.stem}", folder))
    except InputError as error:
        raise InputError(f"recipe {file}: {error}") from None


def tuned_file(name: str, folder: Path = RECIPES) -> Path:
    """Where the tuned settings of a recipe lie, whether there are any or not.

    Args:
        name: ``TABLE/DATASET``.
        folder: of the recipes.
    """
    return folder / TUNED / f"{name}.yaml"


def read_tuned(name: str, folder: Path = RECIPES) -> Tuned:
    """What was tuned for the systems of a recipe, by protocol and label; nothing where nothing was.

    Args:
        name: ``TABLE/DATASET``.
        folder: of the recipes.
    """
    path = tuned_file(name, folder)
    values = read_recipe_file(path) if path.exists() else {}
    _check_keys(values, PROTOCOLS, f"protocol of {path.name} in {TUNED}")
    return {
        protocol: {
            label: _settings(given, f"{label!r} in {TUNED}") for label, given in _mapping(systems, protocol).items()
        }
        for protocol, systems in values.items()
    }


def _derive(values: Mapping[str, Any], folder: Path) -> tuple[dict[str, Any], Tuned]:
    _check_keys(values, _DERIVED_KEYS, "key", required=("table", "base", "variants"))
    base = read_recipe_file(_file_in(folder, values["base"], "base"))
    _check_keys(base, _KEYS, f"key of {values['base']}", required=_KEYS)
    of, variants = _read_variants(values["variants"], folder)
    systems = _mapping(base["systems"], "systems")
    _check_known(of, systems, f"system of {values['base']}")
    tuned = {
        protocol: {
            label: {name: value for name, value in found.get(of, {}).items() if name not in _mapping(changes, label)}
            for label, changes in variants.items()
        }
        for protocol, found in read_tuned(values["base"], folder).items()
    }
    derived = {
        **base,
        **{key: value for key, value in values.items() if key in _KEYS},
        "paper": {
            **{label: figure for label, figure in _mapping(base["paper"], "paper").items() if label in variants},
            **_mapping(values.get("paper", {}), "paper"),
        },
        "systems": {
            label: {**_mapping(systems[of], of), **_mapping(changes, label)} for label, changes in variants.items()
        },
        "chosen_here": [name for entry in _list(base["chosen_here"]) for name in _inherited(entry, of, variants)],
    }
    return derived, tuned


def _read_variants(given: Any, folder: Path) -> tuple[str, dict[str, Any]]:
    """The system that variants are of, and the variants of one file or of several together."""
    names = given if isinstance(given, list) else [given]
    of: list[str] = []
    variants: dict[str, Any] = {}
    for name in names:
        shared = read_recipe_file(_file_in(folder / VARIANTS, name, "variants"))
        _check_keys(shared, ("of", "variants"), f"key of {VARIANTS}/{name}", required=("of", "variants"))
        of.append(str(shared["of"]))
        variants |= _mapping(shared["variants"], "variants")
    if len(set(of)) != 1:
        raise InputError(f"variants must name files about one system, got {' and '.join(of) or 'none'}")
    return of[0], variants


def _file_in(folder: Path, name: Any, what: str) -> Path:
    """The file of a name that a recipe gives, which must not lead out of the folder."""
    path = folder / f"{name}.yaml"
    if not isinstance(name, str) or "\0" in name or not path.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"{what} must name a file in {folder}, got {name!r}")
    return path


def _inherited(entry: str, of: str, variants: Mapping[str, Any]) -> list[str]:
    """A base's choice in the file that derives from it: a shared setting stays, a system's goes to its variants."""
    system, _, name = str(entry).rpartition(".")
    if not system:
        return [entry]
    return [f"{label}.{name}" for label, changes in variants.items() if system == of and name not in changes]


def _parse(file: Path, values: Mapping[str, Any], tuned: Tuned) -> TableRecipe:
    _check_keys(values, _KEYS, "key", required=_KEYS)
    table, dataset = values["table"], values["dataset"]
    _check_known(table, TRAINED_TABLES, "table")
    _check_known(dataset, CATALOG, "dataset")
    if (file.parent.name, file.stem) != (table, dataset):
        raise InputError(f"the recipe of table {table!r} and dataset {dataset!r} must be {table}/{dataset}.yaml")
    _check_metric(values["metric"], dataset)
    settings = _settings(values["settings"], "settings")
    systems = {
        label: _system(label, given, dataset, {name: found[label] for name, found in tuned.items() if label in found})
        for label, given in _mapping(values["systems"], "systems").items()
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
        paper=_paper(values["paper"], systems),
        settings=settings,
        chosen_here=_chosen_here(values["chosen_here"], settings, systems),
        systems=systems,
        protocols=_protocols(values["protocols"], dataset),
        quick=_quick(values["quick"]),
    )


def _check_metric(metric: Any, dataset: str) -> None:
    _check_known(metric, METRICS, "metric")
    origin = CATALOG[dataset].origin
    right = origin.metric if isinstance(origin, Molecules) else METRICS[0]
    if metric != right:
        raise InputError(f"metric of dataset {dataset!r} must be {right!r}, got {metric!r}")


def _system(label: str, given: Any, dataset: str, tuned: dict[str, Settings]) -> System:
    given = _mapping(given, f"system {label!r}")
    _check_keys(given, ("model", *SETTINGS), f"key of system {label!r}", required=("model",))
    model, task = given["model"], CATALOG[dataset].tasks[0]
    _check_known(model, MODELS, f"model of system {label!r}")
    if task not in getattr(MODELS[model], "tasks", TASKS):
        raise InputError(f"system {label!r}: model {model!r} has no {task} task, which dataset {dataset!r} is for")
    settings = _settings({key: value for key, value in given.items() if key != "model"}, f"system {label!r}")
    for key in (*settings, *(name for found in tuned.values() for name in found)):
        if key in HKN_FIELDS and model != "hkn":
            raise InputError(f"system {label!r}: {key} is a setting of model 'hkn', not of {model!r}")
    return System(model, settings, tuned)


def _protocols(given: Any, dataset: str) -> dict[str, Repeats]:
    given = _mapping(given, "protocols")
    if not given:
        raise InputError(f"protocols must name at least one of {', '.join(PROTOCOLS)}")
    found = {}
    for name, values in given.items():
        _check_known(name, PROTOCOLS, "protocol")
        check_protocol(name, dataset, CATALOG[dataset].tasks[0])
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
    checked = make_recipe({"num_splits": values["num_splits"], "seeds": values["seeds"]})
    return checked.num_splits, checked.seeds


def _settings(given: Any, where: str) -> Settings:
    """Fields of a training recipe, each with a value that it accepts."""
    given = _mapping(given, where)
    _check_keys(given, SETTINGS, f"key of {where}")
    checked = make_recipe(given)
    return {key: getattr(checked, key) for key in given}


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


def _chosen_here(given: Any, settings: Settings, systems: Mapping[str, System]) -> tuple[str, ...]:
    _list(given)
    known = [*settings, *(f"{label}.{key}" for label, system in systems.items() for key in system.settings)]
    for name in given:
        _check_known(name, known, "name in chosen_here")
    return tuple(given)


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


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"chosen_here must be a list of names, got {value!r}")
    return value


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{where} must hold keys and values, got {value!r}")
    return value
