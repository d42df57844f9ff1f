"""Translation as a task of the engine: batches of parallel text, label smoothing, and Noam's learning rate."""

import math
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import geoopt
import torch
from torch import Tensor

from hkconv.engine.distributed import ALONE, Processes
from hkconv.engine.optimizer import RiemannianAdam
from hkconv.engine.reproducibility import seed_everything
from hkconv.engine.step import CapturedParts, Step
from hkconv.engine.steps import Position, StepTask
from hkconv.errors import InputError
from hkconv.language import runs
from hkconv.language.batches import Batch, Buckets, prefetch, training_batches
from hkconv.language.loss import summed_loss
from hkconv.language.recipe import TranslationRecipe

if TYPE_CHECKING:
    from tokenizers import Tokenizer

# As Vaswani et al. (2017).
BETAS, EPSILON = (0.9, 0.98), 1e-9


class TranslationTask(StepTask):
    """Translation of parallel text.

    Args:
        recipe: how to train.
        folder: of the run.
        tokenizer: the run's.
        train: training data.
        valid: validation data.
        device: where the model is.
    """

    advice = "a smaller lr or a longer warmup may help"

    def __init__(
        self,
        recipe: TranslationRecipe,
        folder: Path,
        tokenizer: "Tokenizer",
        train: Buckets,
        valid: Buckets,
        device: torch.device,
    ):
        self.recipe, self.folder, self.tokenizer = recipe, folder, tokenizer
        self.train, self.valid, self.device = train, valid, device

    def stream(self, start: Position) -> Generator[tuple[Position, Batch], None, None]:
        return prefetch(self.train, training_batches(self.train, self.recipe.seed, start), self.device)

    def loss(self, model: torch.nn.Module, batch: Batch) -> Tensor:
        return self._summed_loss(model, batch, self.recipe.label_smoothing)

    def total_weight(self, batches: Sequence[Batch]) -> int:
        return sum(batch.target_tokens for batch in batches)

    def rate(self, step: int) -> float:
        return noam(step, self.recipe.dim, self.recipe.warmup, self.recipe.lr)

    @torch.no_grad()
    def validation_losses(self, model: torch.nn.Module) -> tuple[Tensor, int]:
        model.eval()
        plan = ((Position(), pairs) for pairs in self.valid.in_order())
        losses, tokens = [], 0
        for _, batch in prefetch(self.valid, plan, self.device):
            losses.append(self._summed_loss(model, batch, smoothing=0.0))
            tokens += batch.target_tokens
        model.train()
        return torch.stack(losses), tokens

    def keep_weights(self, model: torch.nn.Module, step: int, validation_loss: float) -> None:
        runs.write_weights(self.folder, model, self.tokenizer, step, validation_loss)

    def prune_weights(self) -> None:
        runs.prune_weights(self.folder, self.recipe.keep)

    def facts(self) -> dict[str, Any]:
        return {"data": self.train.corpus.info.digest, **runs.vocabulary_facts(self.tokenizer)}

    def check_facts(self, facts: dict[str, Any], path: Path) -> None:
        runs.check_vocabulary(facts, self.tokenizer, path)
        if facts.get("data") != self.train.corpus.info.digest:
            raise InputError(f"the training text is not the one that {path.parent} was begun with")

    def _summed_loss(self, model: torch.nn.Module, batch: Batch, smoothing: float) -> Tensor:
        # With its cache, for tied weights are used twice; the loss itself is in float32.
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.recipe.bf16):
            logits = model(batch.source, batch.target[:, :-1])
        return summed_loss(logits, batch.target[:, 1:], smoothing)


def make_step(task: TranslationTask, processes: Processes = ALONE) -> Step:
    """Build the model of a translation task, the same in every rank, and what takes its steps."""
    recipe = task.recipe
    seed_everything(recipe.seed)
    model = runs.build_model(recipe, task.tokenizer).to(task.device).train()
    processes.copy_model(model)
    processes.seed_dropout(recipe.seed)
    optimizer = make_optimizer(model, capturable=recipe.capture)
    kind = CapturedParts if recipe.capture else Step
    return kind(model, task, optimizer, clip=recipe.clip, processes=processes)


def make_optimizer(model: torch.nn.Module, *, capturable: bool = False) -> RiemannianAdam:
    """Return the optimizer of a translator; one that a CUDA graph can hold has learning rates on the device."""
    groups = parameter_groups(model)
    if capturable:
        for group in groups:
            group["lr"] = torch.zeros((), device=next(model.parameters()).device)
    return RiemannianAdam(groups, betas=BETAS, eps=EPSILON, capturable=capturable)


def parameter_groups(model: torch.nn.Module) -> list[dict[str, Any]]:
    r"""Return the parameters of a model by what multiplies their learning rate, ``stretch``.

    Adam moves every coordinate of a vector by about the learning rate, and so the vector by :math:`\sqrt n` of it; a
    point of a manifold moves by the learning rate as a whole. A vocabulary of points would learn that much more slowly
    than one of vectors. Points of :math:`n` dimensions therefore have a stretch of :math:`\sqrt n`.
    """
    groups: dict[float, list[torch.nn.Parameter]] = {}
    for parameter in model.parameters():
        stretch = 1.0
        if isinstance(parameter, geoopt.ManifoldParameter):
            stretch = math.sqrt(parameter.size(-1) - 1)
        groups.setdefault(stretch, []).append(parameter)
    return [{"params": parameters, "stretch": stretch} for stretch, parameters in groups.items()]


def noam(step: int, dim: int, warmup: int, factor: float = 1.0) -> float:
    r"""Return the learning rate of Vaswani et al. (2017): linear for ``warmup`` steps, then falling as the square root.

    .. math::
        \eta(t) = f \, d^{-1/2} \min\left(t^{-1/2},\; t \, w^{-3/2}\right)

    Args:
        step: :math:`t`, from 1.
        dim: :math:`d`, dimension of the model.
        warmup: :math:`w`, steps until the highest rate.
        factor: :math:`f`.
    """
    return factor * dim**-0.5 * min(step**-0.5, step * warmup**-1.5)
