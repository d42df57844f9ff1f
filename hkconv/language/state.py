"""All that the next step of a training depends on, as one file: whole or absent, whenever the process was killed."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hkconv.engine.distributed import ALONE, Processes
from hkconv.engine.state import (
    by_part,
    check_shapes,
    generator_tensors,
    optimizer_tensors,
    read_tensors,
    restore_generators,
    restore_optimizer,
    write_tensors,
)
from hkconv.errors import InputError
from hkconv.language.batches import Position
from hkconv.language.runs import check_vocabulary, vocabulary_facts
from hkconv.models.translation.seq2seq import Seq2Seq

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PARTS = ("model", "optimizer", "generator", "pending")


@dataclass
class Progress:
    """How far a training is.

    Args:
        step: steps taken.
        position: where the next step's data begins.
        target_tokens: target tokens seen.
        seconds: time spent in steps.
        new_tokens: tokens of both sides since the last line of the log.
        new_seconds: time since then.
        losses: of the steps since then, 0-d tensors on the model's device that nobody has looked at yet.
        norms: of the gradients of those steps.
        guard: what the guard did when something was not finite, in words; None if it had nothing to do. With it, the
            learning rate is half of what it was.
    """

    step: int = 0
    position: Position = field(default_factory=Position)
    target_tokens: int = 0
    seconds: float = 0.0
    new_tokens: int = 0
    new_seconds: float = 0.0
    losses: list[Tensor] = field(default_factory=list)
    norms: list[Tensor] = field(default_factory=list)
    guard: str | None = None


def save_state(
    path: Path,
    model: Seq2Seq,
    optimizer: torch.optim.Optimizer,
    tokenizer: "Tokenizer",
    progress: Progress,
    data_digest: str,
    processes: Processes = ALONE,
) -> None:
    """Write the state of a training, the generators of the CPU and of the model's GPU included.

    Several processes call it together; they differ in their generators alone, and the first of them writes.

    Args:
        path: the file; an older state in it is replaced.
        model: the translator.
        optimizer: of its parameters.
        tokenizer: its subwords.
        progress: how far it is.
        data_digest: which data it is trained on.
        processes: which train it.
    """
    counts = asdict(progress)
    pending = {name: counts.pop(name) for name in ("losses", "norms")}
    found = enumerate(processes.all(generator_tensors(_device(model))))
    contents = {
        "model": model.state_dict(),
        "optimizer": optimizer_tensors(optimizer),
        "generator": {_of_rank(name, rank): state for rank, states in found for name, state in states.items()},
        "pending": {name: torch.stack(values) for name, values in pending.items() if values},
    }
    tensors = {f"{part}/{name}": tensor for part, content in contents.items() for name, tensor in content.items()}
    facts = {"progress": counts, "data": data_digest, **vocabulary_facts(tokenizer)}
    processes.first(lambda: write_tensors(path, tensors, facts))


def restore_state(
    path: Path,
    model: Seq2Seq,
    optimizer: torch.optim.Optimizer,
    tokenizer: "Tokenizer",
    data_digest: str,
    processes: Processes = ALONE,
) -> Progress:
    """Bring a model, its optimizer and the generators to where :func:`save_state` left them; the arguments are its own.

    Returns:
        How far the training is.
    """
    tensors, facts = read_tensors(path)
    check_vocabulary(facts, tokenizer, path)
    if facts.get("data") != data_digest:
        raise InputError(f"the training text is not the one that {path.parent} was begun with")
    parts = by_part(tensors, PARTS, path)
    check_shapes(model.state_dict(), parts["model"], path)
    progress = _progress(facts, parts["pending"], _device(model), path)
    restore_optimizer(optimizer, parts["optimizer"], path)
    model.load_state_dict(parts["model"])
    states, rank = parts["generator"], processes.rank
    mine = {name: states[_of_rank(name, rank)] for name in ("cpu", "cuda") if _of_rank(name, rank) in states}
    # A state of fewer processes has none of the others; they go on with the seed's.
    if mine or processes.is_first:
        restore_generators(mine, _device(model), path)
    return progress


def _of_rank(name: str, rank: int) -> str:
    return f"{name}.{rank}" if rank else name


def _progress(facts: dict[str, Any], pending: dict[str, Tensor], device: torch.device, path: Path) -> Progress:
    try:
        stored = facts["progress"]
        position = Position(**stored["position"])
        lists: dict[str, Any] = {name: list(values.to(device).unbind()) for name, values in pending.items()}
        progress = Progress(**{**stored, "position": position}, **lists)
        whole = [progress.step, progress.target_tokens, progress.new_tokens, position.epoch, position.batch]
        is_sound = (
            all(type(number) is int and number >= 0 for number in whole)
            and all(type(number) is float for number in (progress.seconds, progress.new_seconds))
            and len(progress.losses) == len(progress.norms)
            and isinstance(progress.guard, str | None)
        )
    except (KeyError, TypeError, RuntimeError, IndexError):
        is_sound = False
    if not is_sound:
        raise InputError(f"checkpoint {path} is damaged: it does not say how far the training is")
    return progress


def _device(model: Seq2Seq) -> torch.device:
    return next(model.parameters()).device
