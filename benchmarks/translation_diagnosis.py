"""Validation loss of translators that differ from HKN, HyboNet or the Transformer in one thing each.

Several are trained side by side on one device. Rows of the table come with every validation; a call that was killed, or
whose time was up, goes on where it was.

Run: python benchmarks/translation_diagnosis.py --train iwslt14/train --valid iwslt14/valid --device cuda --capture
     python benchmarks/translation_diagnosis.py --show
"""

import argparse
import csv
import gc
import math
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

# OpenMP reads this once, when PyTorch is loaded; threads that spin while they wait disturb what runs beside them.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import geoopt
import torch
import yaml
from torch import Tensor
from torch.nn import functional as F

from hkconv.data.parallel_text import find_parallel_text
from hkconv.engine.callbacks import Callback
from hkconv.engine.devices import find_device
from hkconv.engine.files import append_line, make_folder, read_json, write_json
from hkconv.engine.guard import DivergenceError
from hkconv.engine.reproducibility import deterministic_algorithms, seed_everything
from hkconv.engine.step import CapturedParts, Step
from hkconv.engine.steps import LogEntry, StepCourse, StepSettings, read_log
from hkconv.errors import InputError, unknown_name
from hkconv.experiments.pool import Lost, results_of
from hkconv.geometry.lorentz import lift
from hkconv.language import runs
from hkconv.language.batches import Buckets
from hkconv.language.corpus import Corpus, encode_corpus
from hkconv.language.recipe import FREE_ON_RESUME, TranslationRecipe
from hkconv.language.task import TranslationTask, make_optimizer
from hkconv.language.tokenizer import learn_tokenizer, load_tokenizer, save_tokenizer
from hkconv.models.translation.hyperbolic_transformer import HyperbolicTransformer, LorentzEmbedding
from hkconv.nn import HNorm
from hkconv.nn.transformer import HResidual
from hkconv.options import COUNT, Interval

RESULTS = Path(__file__).parent / "results"
Change = Callable[[HyperbolicTransformer], Any]


class SpaceSum(torch.nn.Module):
    """A residual that adds the coordinates of space, where HResidual takes a centroid; with or without its norm."""

    def __init__(self, dim: int, is_normed: bool):
        super().__init__()
        self.norm = HNorm(dim, "layer") if is_normed else torch.nn.Identity()

    def forward(self, x: Tensor, part: Tensor) -> Tensor:
        return self.norm(lift(x[..., 1:] + part[..., 1:]))


class Normed(torch.nn.Module):
    """A part of a layer behind a norm of its input."""

    def __init__(self, dim: int, part: torch.nn.Module):
        super().__init__()
        self.norm, self.part = HNorm(dim, "layer"), part

    def forward(self, x: Tensor, *arguments: Any, **options: Any) -> Tensor:
        return self.part(self.norm(x), *arguments, **options)


class FreeTargets(LorentzEmbedding):
    """Points of the output that are not those of the input."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.targets = geoopt.ManifoldParameter(self.tokens.detach().clone(), manifold=self.tokens.manifold)

    def logits(self, states: Tensor) -> Tensor:
        return self.logits_of(self.targets, states)


class GeodesicLogits(LorentzEmbedding):
    r"""Logits :math:`-d(x, e_w)^p / T`, by products of matrices."""

    power = 1

    def logits(self, states: Tensor) -> Tensor:
        mirrored = torch.cat([-states[..., :1], states[..., 1:]], dim=-1)
        excess = (-1 - F.linear(mirrored, lift(self.tokens[:, 1:]))).clamp(min=1e-6)
        distance = torch.log1p(excess + (excess * (excess + 2)).sqrt())
        return -(distance**self.power) * (-self.log_temperature).exp()


class SquaredGeodesicLogits(GeodesicLogits):
    """Logits :math:`-d^2(x, e_w) / T`."""

    power = 2


def with_embedding(kind: type[LorentzEmbedding], model: HyperbolicTransformer) -> None:
    model.embedding = kind(model.sizes, model.embedding.output)


@torch.no_grad()
def with_temperature(factor: float, model: HyperbolicTransformer) -> None:
    model.embedding.log_temperature.add_(math.log(factor))


@torch.no_grad()
def with_radius(factor: float, model: HyperbolicTransformer) -> None:
    """Multiply the space of all points of the vocabulary, and of positions alike."""
    for points in (model.embedding.tokens, model.embedding.positions):
        points.copy_(lift(factor * points[:, 1:]))


@torch.no_grad()
def with_share(share: float, model: HyperbolicTransformer) -> None:
    for module in model.modules():
        if isinstance(module, HResidual):
            module.logit.fill_(math.log(share / (1 - share)))


def with_sums(model: HyperbolicTransformer) -> None:
    """Post-norm as before, of sums."""
    for layer in [*model.encoder, *model.decoder]:
        for name, module in list(layer.named_children()):
            if isinstance(module, HResidual):
                setattr(layer, name, SpaceSum(model.sizes.dim, is_normed=True))


def with_norms_first(model: HyperbolicTransformer) -> None:
    """Pre-norm: parts of layers see normalized states, and only the last sum of a stack is normalized."""
    dim = model.sizes.dim
    for stack in (model.encoder, model.decoder):
        for layer in stack:
            for name, module in list(layer.named_children()):
                is_last = layer is stack[-1] and name == "after_feedforward"
                is_residual = isinstance(module, HResidual)
                setattr(layer, name, SpaceSum(dim, is_last) if is_residual else Normed(dim, module))


# What a part of a variant's name does to the fresh model, alone or with a number after "=".
CHANGES: dict[str, Change] = {
    "free-targets": partial(with_embedding, FreeTargets),
    "geodesic": partial(with_embedding, GeodesicLogits),
    "squared-geodesic": partial(with_embedding, SquaredGeodesicLogits),
    "sums": with_sums,
    "norms-first": with_norms_first,
}
FACTOR = Interval(0.0, 1e6, above=True)
NUMBERED: dict[str, tuple[Interval, Callable[[float, HyperbolicTransformer], Any]]] = {
    "temperature": (FACTOR, with_temperature),
    "radius": (FACTOR, with_radius),
    "share": (Interval(0.0, 1.0, above=True, below=True), with_share),
}
# Kinds of parameters whose learning rate a number multiplies: points of the vocabulary, lengths of HLinear with shares
# of residuals and the temperature, and norms.
STRETCHED = ("points", "scalars", "norms")
OPTIONS = TranslationRecipe.options().keys() - FREE_ON_RESUME - {
    *("model", "source", "target", "merges", "max_length", "seed")
}  # fmt: skip
# One change at a time to what was best here on a CPU, and what that is a change of.
DEFAULT = (
    *("transformer", "transformer+lr=2.0", "transformer+lr=8.0"),
    *("hybonet", "hkn", "hybonet+output=planes", "hkn+output=planes", "hkn+form=views+output=planes"),
    *("hybonet+output=planes+free-targets", "hkn+form=views+output=planes+free-targets"),
    *(
        f"hybonet+output=planes+{part}"
        for part in (
            *("lr=1.0", "lr=2.0", "lr=8.0", "warmup=300", "dropout=0.0", "clip=10.0", "norms-first", "sums"),
            *(
                "share=0.4",
                "temperature=0.3",
                "temperature=3.0",
                "radius=0.3",
                "points=0.3",
                "scalars=8.0",
                "norms=0.125",
            ),
        )
    ),
    *("hybonet+geodesic", "hybonet+squared-geodesic", "hybonet+free-targets"),
)


@dataclass(frozen=True)
class Variant:
    """A system and its changes.

    Args:
        recipe: options that differ from the common ones.
        changes: what is done to the fresh model, one after the other.
        stretch: multipliers of the learning rate of some of :data:`STRETCHED`.
    """

    recipe: dict[str, Any]
    changes: list[Change]
    stretch: dict[str, float]


def read_variant(name: str) -> Variant:
    """Read a name such as ``hkn+form=views+lr=2.0+free-targets``; all but changes are options of a recipe.

    What all trainings of a folder share is no part of a name.
    """
    model, *parts = name.split("+")
    found = Variant({"model": model}, [], {})
    for part in parts:
        key, _, value = part.partition("=")
        if part in CHANGES:
            found.changes.append(CHANGES[part])
        elif key in OPTIONS:
            try:
                found.recipe[key] = yaml.safe_load(value)
            except yaml.YAMLError:
                raise InputError(f"{key} must be a value, got {value!r}") from None
        elif key in STRETCHED:
            found.stretch[key] = FACTOR.check(key, value)
        elif key in NUMBERED:
            interval, change = NUMBERED[key]
            found.changes.append(partial(change, interval.check(key, value)))
        else:
            raise unknown_name("change", part, [*CHANGES, *NUMBERED, *STRETCHED, *sorted(OPTIONS)])
    if found.changes and model not in ("hkn", "hybonet"):
        raise InputError(f"changes of the model are for hkn and hybonet, got {name}")
    return found


COLUMNS = ("variant", "seed", "step", "validation_loss", "loss", "gradient_norm", "seconds", "tokens_per_second")


@dataclass(frozen=True)
class Job:
    """One training: a variant with a seed, in the folder of all of them.

    Args:
        variant: a name for :func:`read_variant`.
        seed: of weights, dropout and the order of the data.
        common: options of the recipe that all share.
        folder: of the tokenizer, the corpora and the trainings.
        table: where rows go.
        until: time of the clock at which it stops in order.
    """

    variant: str
    seed: int
    common: dict[str, Any]
    folder: Path
    table: Path
    until: float

    @property
    def recipe(self) -> TranslationRecipe:
        return TranslationRecipe(**{**self.common, **read_variant(self.variant).recipe, "seed": self.seed})

    @property
    def run(self) -> Path:
        return self.folder / "runs" / f"{self.variant}-{self.seed}"

    def has_ended(self) -> bool:
        log = read_log(self.run / runs.LOG_FILE)
        return bool(log) and log[-1].step >= self.common["steps"]


class Measured(TranslationTask):
    """Translation of which no weights are kept but those to go on from."""

    def keep_weights(self, model: torch.nn.Module, step: int, validation_loss: float) -> None:
        pass

    def prune_weights(self) -> None:
        pass


class Rows(Callback):
    """A row of the table for every validation; one that is there already is not written again."""

    def __init__(self, job: Job):
        self.job = job

    def steps_logged(self, entry: LogEntry) -> None:
        if entry.validation_loss is None:
            return
        about = {"variant": self.job.variant, "seed": self.job.seed, **asdict(entry)}
        row = {name: about[name] if name in COLUMNS[:3] else f"{about[name]:.6g}" for name in COLUMNS}
        if all(_key(row) != _key(before) for before in read(self.job.table)):
            line = ",".join(str(value) for value in row.values())
            append_line(self.job.table, line, "the table", header=",".join(COLUMNS))


def _key(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in COLUMNS[:3])


def train(job: Job) -> str:
    """Train a variant up to its last step, or as long as there is time; returns how far that was, in words."""
    recipe, variant, device = job.recipe, read_variant(job.variant), find_device(job.common["device"])
    make_folder(job.run, "out")
    tokenizer = load_tokenizer(job.folder / runs.TOKENIZER_FILE)
    corpora = (Corpus(job.folder / runs.CORPUS_FOLDER, part) for part in ("train", "valid"))
    fills = recipe.capture, False
    buckets = [Buckets(corpus, recipe.batch_tokens, fill=fill) for corpus, fill in zip(corpora, fills)]
    with deterministic_algorithms(recipe.deterministic):
        task = Measured(recipe, job.run, tokenizer, *buckets, device)
        seed_everything(recipe.seed)
        model: Any = runs.build_model(recipe, tokenizer)
        for change in variant.changes:
            change(model)
        model = model.to(device).train()
        optimizer = stretched(model, variant.stretch, recipe.capture)
        step = (CapturedParts if recipe.capture else Step)(model, task, optimizer, clip=recipe.clip)
        settings = StepSettings(recipe.steps, recipe.accumulate, recipe.log_every, recipe.validate_every)
        files = job.run / runs.STATE_FILE, job.run / runs.LOG_FILE
        course = StepCourse(task, step, settings, *files, Rows(job))
        try:
            course.run(time.perf_counter() + job.until - time.time())
        except DivergenceError as error:
            # The others go on; another call tries this one again from its last validation.
            return f"{job.variant}, seed {job.seed}: {error}"
    reached = course.progress.step
    # The graphs of this training must not be taken down while those of the next are recorded.
    del course, step
    gc.collect()
    return f"{job.variant}, seed {job.seed}: step {reached} of {recipe.steps}"


def stretched(model: torch.nn.Module, stretch: dict[str, float], capturable: bool) -> torch.optim.Optimizer:
    """The optimizer of a translator, with other multipliers of the learning rate for some kinds of parameters."""
    norms = {id(p) for module in model.modules() if isinstance(module, HNorm) for p in module.parameters()}

    def kind(parameter: torch.nn.Parameter) -> str:
        if isinstance(parameter, geoopt.ManifoldParameter):
            return "points"
        return "norms" if id(parameter) in norms else "rest" if parameter.dim() else "scalars"

    optimizer = make_optimizer(model, capturable=capturable)
    for group in list(optimizer.param_groups):
        by_kind: dict[str, list[torch.nn.Parameter]] = {}
        for parameter in group["params"]:
            by_kind.setdefault(kind(parameter) if kind(parameter) in stretch else "", []).append(parameter)
        group["params"] = by_kind.pop("", [])
        for name, parameters in by_kind.items():
            lr = group["lr"].clone() if isinstance(group["lr"], Tensor) else group["lr"]
            own = {**group, "params": parameters, "lr": lr, "stretch": group["stretch"] * stretch[name]}
            optimizer.add_param_group(own)
    optimizer.param_groups[:] = [group for group in optimizer.param_groups if group["params"]]
    return optimizer


def prepare(folder: Path, common: dict[str, Any]) -> None:
    """Write the tokenizer and the corpora that all trainings share, once."""
    kept = {name: value for name, value in common.items() if name not in ("steps", "device", "capture")}
    settings = make_folder(folder, "out") / "settings.json"
    if settings.exists() and (before := read_json(settings, "the settings")) != kept:
        raise InputError(f"out {folder} has trainings with {before}, got {kept}: name another folder")
    recipe = TranslationRecipe(**common)
    texts = {
        part: find_parallel_text(getattr(recipe, part), recipe.source, recipe.target) for part in ("train", "valid")
    }
    # Before what depends on them: another call goes on where this one was killed.
    write_json(settings, kept)
    if not (folder / runs.TOKENIZER_FILE).exists():
        save_tokenizer(learn_tokenizer(texts["train"], recipe.merges), folder / runs.TOKENIZER_FILE)
    tokenizer = load_tokenizer(folder / runs.TOKENIZER_FILE)
    for part, text in texts.items():
        if not (folder / runs.CORPUS_FOLDER / f"{part}.json").exists():
            encode_corpus(text, tokenizer, recipe.max_length, folder / runs.CORPUS_FOLDER, part)


def run(jobs: list[Job], workers: int, tell: Callable[[str], None] = lambda _: None) -> None:
    """Train all that have not ended, so many at a time."""
    waiting = (job for job in jobs if not job.has_ended() and time.time() < job.until)
    for job, found in results_of(train, waiting, workers):
        tell(f"{job.variant}, seed {job.seed}: {found}" if isinstance(found, Lost) else found)


def read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def show(rows: Iterable[dict[str, str]]) -> list[str]:
    """A line for each variant and seed with its validation losses, the lowest last one first."""
    found: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        found.setdefault((row["variant"], row["seed"]), {})[int(row["step"])] = float(row["validation_loss"])
    ranked = sorted(found.items(), key=lambda entry: (-max(entry[1]), entry[1][max(entry[1])]))
    return [
        f"{variant} {seed}: " + ", ".join(f"{step} {loss:.3f}" for step, loss in sorted(curve.items()))
        for (variant, seed), curve in ranked
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--train", help="training text: files TRAIN.en and TRAIN.de, or .gz of them")
    parser.add_argument("--valid", help="validation text, named likewise")
    parser.add_argument("--variants", nargs="+", default=DEFAULT, metavar="NAME", help="default: see DEFAULT")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--workers", type=int, default=1, help="trainings at a time")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop in order after this time")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--capture", action="store_true", help="replay steps as CUDA graphs")
    parser.add_argument("--runs", type=Path, default=Path("runs/diagnosis"), help="folder of the trainings")
    parser.add_argument("--out", type=Path, default=RESULTS / "translation-diagnosis.csv", help="the table")
    parser.add_argument("--show", action="store_true", help="print the table and nothing else")
    sizes = {"dim": 64, "num_layers": 6, "merges": 10_000, "batch_tokens": 16_384, "steps": 3000, "validate_every": 250}
    for name, default in sizes.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    options = parser.parse_args()
    if not options.show:
        # As the recorded runs of IWSLT'14.
        common = {**{name: getattr(options, name) for name in sizes}, "lr": 4.0, "warmup": 1000}
        workers = COUNT.check("workers", options.workers)
        common |= {name: getattr(options, name) for name in ("train", "valid", "device", "capture")}
        for name in options.variants:
            TranslationRecipe(**{**common, **read_variant(name).recipe})
        prepare(options.runs, common)
        until = time.time() + 60 * options.minutes
        make = partial(Job, common=common, folder=options.runs, table=options.out, until=until)
        jobs = [make(name, seed) for seed in options.seeds for name in options.variants]
        run(jobs, workers, partial(print, flush=True))
    print("\n".join(show(read(options.out))))


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
