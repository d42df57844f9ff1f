"""A trained network to share: its weights, their description, and a model card made from the files of its run."""

import inspect
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from hkconv.data import load
from hkconv.data.options import ACCURACY, CLEAN, PUBLISHED, R2
from hkconv.data.own.loading import is_own
from hkconv.data.own.schema import Schema
from hkconv.engine.checkpoint import CheckpointInfo, load_checkpoint, save_checkpoint
from hkconv.engine.files import make_folder, write_bytes
from hkconv.errors import InputError
from hkconv.models.checkpoint_files import CONFIG_FILE, WEIGHTS_FILE
from hkconv.models.options import foreign_options
from hkconv.tasks.building import find_schema
from hkconv.tasks.predict import REFIT_OF, ChosenTraining, choose_training
from hkconv.tasks.recipe import Recipe
from hkconv.tasks.run import read_recipe, read_result, trained_cells
from hkconv.tasks.summary import CellResult, ModelSummary, Spread

CARD_FILE = "README.md"
# The model that is shared: HKN alone is loaded by from_pretrained.
SHARED = "hkn"
# The names that the Hugging Face hub has for metrics.
HUB_METRICS = {ACCURACY: "accuracy", "ROC-AUC": "roc_auc", "AP": "average_precision", R2: "r_squared"}
TASK_TAGS = {"node": "node-classification", "graph": "graph-classification", "link": "link-prediction"}
PROTOCOLS = {
    CLEAN: "disjoint parts to train on, to choose with and to test on",
    PUBLISHED: "the parts of the code released with the paper, which overlap: scores are too high",
}
OWN_PROTOCOL = "splits of the user's own, with disjoint parts"
CALLS = {
    "node": "`model(x, edge_index)`",
    "graph": "`model(x, edge_index, batch=batch)`",
    "link": "`model(x, edge_index, pairs=pairs)`",
}
UNTESTED = {
    "node": "Other graphs, and changes of this one: the test part are nodes of the graph that was trained on.",
    "graph": "Graphs that were collected in another way than those of this dataset.",
    "link": "Other graphs, and changes of this one: the test part are links between nodes that were trained on.",
}
UNTESTED_EVER = (
    "Wrong or missing edges, features and labels.",
    "Other devices and versions than those above.",
    "Uses in which a wrong answer does harm.",
)


def export_folder(run: Path | str, out: Path | str, *, license: str | None = None) -> ChosenTraining:
    """Write the HKN with the best validation score of a run with its model card, for ``HKN.from_pretrained``.

    Nothing of what is written names a place on this machine.

    Args:
        run: a folder that :func:`~hkconv.tasks.run.train_run` made.
        out: a new folder, an empty one, or one with an older network, which is replaced.
        license: of the weights, by its SPDX name.

    Returns:
        The training that was written.
    """
    run, out = Path(run), Path(out)
    choice = choose_training(run, SHARED)
    recipe = read_recipe(run)
    model, info = load_checkpoint(choice.place, expected=SHARED)
    info = replace(info, dataset={name: value for name, value in info.dataset.items() if name != "source"})
    results = [read_result(run, cell) for cell in trained_cells(run, recipe)]
    card = model_card(out.resolve().name, recipe, choice.result, results, info, find_schema(run), license)
    save_checkpoint(_checked(out), model, info)
    write_bytes(out / CARD_FILE, card.encode())
    return choice


def _checked(out: Path) -> Path:
    """Return the folder, which holds nothing that would be lost."""
    found = {path.name for path in make_folder(out, "out").iterdir()}
    if found and not {CONFIG_FILE, WEIGHTS_FILE} <= found:
        raise InputError(f"out {out} is not empty and holds no network: name a new folder")
    return out


def model_card(
    name: str,
    recipe: Recipe,
    result: CellResult,
    results: Sequence[CellResult],
    info: CheckpointInfo,
    schema: Schema | None = None,
    license: str | None = None,
) -> str:
    """Return the model card of a training, Markdown after a YAML head as the Hugging Face hub reads it.

    Args:
        name: of the folder that the card is for.
        recipe: of the run.
        result: scores of the training.
        results: those of all trainings of the run.
        info: of its checkpoint.
        schema: of own data.
        license: of the weights.
    """
    dataset, task = plain(info.dataset["name"]), info.dataset["task"]
    head = yaml.safe_dump(_head(name, result, info, license), sort_keys=False, allow_unicode=True, width=float("inf"))
    sections = [
        f"---\n{head}---",
        f"# {plain(name)}",
        f"HKN, a network of hyperbolic kernel convolutions, for the {task} task of {dataset}: {result.parameters:,} "
        "parameters. Its folder was written by `hkconv export --format folder` and holds `model.safetensors`, "
        "`config.json` and this card, whose figures are those of the run that trained it.",
        "## Use",
        _use(name, recipe, result, info, schema),
        *_names(result, schema),
        "## Data",
        _table(("", ""), _data_rows(recipe, result, info)),
        "## Scores",
        _table(("", f"validation {result.metric}", f"test {result.metric}"), _score_rows(result, results)),
        " ".join(_remarks(result, results, info)),
        "## Settings",
        _table(("", ""), _setting_rows(recipe)),
        "## Software and device",
        _table(("", ""), _circumstances(result, info)),
        "## Not tested",
        "\n".join(f"- {text}" for text in (UNTESTED[task], *UNTESTED_EVER)),
    ]
    return "\n\n".join(sections) + "\n"


def _head(name: str, result: CellResult, info: CheckpointInfo, license: str | None) -> dict[str, Any]:
    dataset, metric = _one_line(info.dataset["name"]), HUB_METRICS[result.metric]
    tag = TASK_TAGS[info.dataset["task"]]
    task = {"type": tag.replace("classification", "regression") if result.metric == R2 else tag}
    score = {"type": metric, "name": f"test {result.metric}", "value": result.test_metric}
    found = {"task": task, "dataset": {"name": dataset, "type": dataset}, "metrics": [score]}
    return {
        "library_name": "hkconv",
        **({} if license is None else {"license": license.lower()}),
        "pipeline_tag": "graph-ml",
        "tags": ["hkconv", "hyperbolic-geometry", "graph-neural-network", task["type"]],
        "datasets": [dataset],
        "metrics": [metric],
        "model-index": [{"name": _one_line(name), "results": [found]}],
    }


def _use(name: str, recipe: Recipe, result: CellResult, info: CheckpointInfo, schema: Schema | None) -> str:
    imports, lines, remark = ["from hkconv.models import HKN"], [f"model = HKN.from_pretrained({name!r})"], ""
    if not _is_public(recipe):
        remark = (
            f"It takes {info.config['in_features']} features, prepared as the training saw them: the run's `data.json` "
            "has their names, order and scale, and `hkconv predict` prepares them by itself. "
        )
    elif REFIT_OF not in info.training:
        imports = ["from hkconv.data import load", *imports, "from hkconv.tasks.tasks import make_task"]
        lines += [
            f"dataset = load({_arguments(recipe, result)})",
            f"task = make_task(dataset, dataset.splits[{result.split}], next(model.parameters()))",
            'print(task.evaluate(model, "test").metric)',
        ]
        remark = "This prints the test score. "
    return "\n".join(
        ["```python", *imports, "", *lines, "```", "", remark + _answers(result, info.dataset["task"], schema)]
    )


def _answers(result: CellResult, task: str, schema: Schema | None) -> str:
    """Return what a call gives, and what to make of it."""
    if task == "link":
        return f"{CALLS[task]} gives a logit for each pair, and `sigmoid` makes a probability of it."
    if schema is not None and schema.targets is not None:
        mean, deviation = schema.targets[result.split]
        number = f"{mean:.9g} + {deviation:.9g} * (logits[:, 1] - logits[:, 0])"
        return f"{CALLS[task]} gives two logits for each {task}, and its number is `{number}`."
    if result.metric == ACCURACY:
        return f"{CALLS[task]} gives a row of logits for each {task}, and `softmax` makes probabilities of it."
    return (
        f"{CALLS[task]} gives a row of logits for each {task}, no and yes of one question after the other, and "
        "`softmax` of the two makes probabilities of them."
    )


def _names(result: CellResult, schema: Schema | None) -> Iterable[str]:
    """Yield the names of what is told apart, in the order of the logits."""
    if schema is not None and schema.classes and result.metric != R2:
        kind = "Classes" if result.metric == ACCURACY else "Questions"
        yield f"{kind}, in the order of the logits: {', '.join(map(plain, schema.classes))}."


def _is_public(recipe: Recipe) -> bool:
    """Return whether others can load the same data and splits."""
    return not is_own(recipe.data.dataset) and recipe.data.split_file is None


def _arguments(recipe: Recipe, result: CellResult) -> str:
    """Return the arguments of :func:`hkconv.data.load` that give the data of a training."""
    usual = inspect.signature(load).parameters
    given = {**vars(recipe.data), "seed": recipe.optim.seed, "num_splits": max(10, result.split + 1)}
    named = [f"{name}={value!r}" for name, value in given.items() if name in usual and value != usual[name].default]
    return ", ".join([repr(recipe.data.dataset), *named])


def _data_rows(recipe: Recipe, result: CellResult, info: CheckpointInfo) -> Iterable[tuple[str, str]]:
    protocol = info.dataset["protocol"]
    yield "dataset", info.dataset["name"] + (", own data" if is_own(recipe.data.dataset) else "")
    yield "task", info.dataset["task"]
    for key in ("graphs", "nodes", "edges", "features", "classes"):
        count = info.dataset[f"num_{key}"]
        if count is not None and (key != "classes" or result.metric == ACCURACY):
            yield key, f"{count:,}"
    yield "protocol", f"{protocol}: {PROTOCOLS.get(protocol, OWN_PROTOCOL)}"
    yield "split", f"{result.split}, of splits 0 to {recipe.data.num_splits - 1}; seed {result.seed}"


def _score_rows(result: CellResult, results: Sequence[CellResult]) -> Iterable[tuple[str, str, str]]:
    yield "this training", percent(result.val_metric), percent(result.test_metric)
    finished = [entry for entry in results if not entry.interrupted]
    for model in dict.fromkeys(entry.model for entry in finished):
        row = ModelSummary.of([entry for entry in finished if entry.model == model])
        yield f"mean of the {row.trainings} of {model}", _spread(row.val), _spread(row.test)


def percent(share: float | None) -> str:
    """Return a score from 0 to 1 as a percentage with two decimals."""
    return "none" if share is None else f"{100 * share:.2f} %"


def _spread(scores: Spread) -> str:
    return percent(scores.mean) + ("" if scores.deviation is None else f" ± {100 * scores.deviation:.2f}")


def _remarks(result: CellResult, results: Sequence[CellResult], info: CheckpointInfo) -> Iterable[str]:
    same = [entry for entry in results if entry.model == result.model]
    if len(same) > 1:
        yield (
            f"This training has the best validation score of {len(same)}. Chosen so, its own scores are not those to "
            "expect of another; the mean is, with the standard deviation over the trainings."
        )
    else:
        yield "There was one training only, so that nothing is known of how much such scores vary."
    yield f"The weights are those of epoch {result.best_epoch} of {result.epochs}."
    if result.interrupted:
        yield "The training was interrupted."
    if REFIT_OF in info.training:
        yield "Then it was trained once more on all labels, and the weights are of that: no score is known of them."


def _setting_rows(recipe: Recipe) -> Iterable[tuple[str, str]]:
    # The dataset is named above, and may be a path, as may a file with splits.
    left_out = {"dataset", "split_file", "models", "num_splits", "seeds", "seed", *foreign_options(SHARED)}
    for name, value in recipe.identity().items():
        if name not in left_out:
            # None is the default, which is not the word `none` that some of them take.
            yield name, "default" if value is None else str(value)


def _circumstances(result: CellResult, info: CheckpointInfo) -> Iterable[tuple[str, str]]:
    yield from info.training.get("versions", {}).items()
    if "device" in info.training:
        yield "device", info.training["device"]
    yield "seconds of training", f"{result.seconds:.1f}"


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(plain, line))} |" for line in lines)


def plain(text: str) -> str:
    """Return a text that Markdown shows as it is: no markup, no link, no HTML."""
    return re.sub(r"([\\`*_\[\]<>|&#~!$@]|:(?=//)|(?<=www)\.)", r"\\\1", _one_line(text))


def _one_line(text: str) -> str:
    return "".join(filter(str.isprintable, " ".join(text.split())))
