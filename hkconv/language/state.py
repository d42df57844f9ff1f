"""All that the next step of a training depends on, as one file: whole or absent, whenever the process was killed."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from hkconv.errors import InputError
from hkconv.language.batches import Position
from hkconv.language.runs import check_shapes, check_vocabulary, read_tensors, vocabulary_facts, write_tensors
from hkconv.models.translation.seq2seq import Seq2Seq
from hkconv.training.distributed import ALONE, Processes

if TYPE_CHECKING:
    from tokenizers import Tokenizer


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
    """

    step: int = 0
    position: Position = field(default_factory=Position)
    target_tokens: int = 0
    seconds: float = 0.0
    new_tokens: int = 0
    new_seconds: float = 0.0
    losses: list[Tensor] = field(default_factory=list)
    norms: list[Tensor] = field(default_factory=list)


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
    tensors = {f"model/{name}": tensor for name, tensor in model.state_dict().items()}
    for index, entries in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer/{index}/{name}": tensor for name, tensor in entries.items()}
    for rank, states in enumerate(processes.all(_generators(_device(model)))):
        tensors |= {f"generator/{_of_rank(name, rank)}": state for name, state in states.items()}
    tensors |= {f"pending/{name}": torch.stack(values) for name, values in pending.items() if values}
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
    parts = _by_part(tensors)
    check_shapes(model, parts["model"], path)
    model.load_state_dict(parts["model"])
    _restore_optimizer(optimizer, parts["optimizer"])
    _restore_generators(parts["generator"], _device(model), processes.rank)
    return _restore_progress(facts, parts["pending"], _device(model))


def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for place, tensor in tensors.items():
        index, name = place.split("/")
        state.setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _restore_generators(states: dict[str, Tensor], device: torch.device, rank: int) -> None:
    # A state from a machine without a GPU has none of its, nor one of fewer processes those of the others; the run then
    # goes on with the seed's.
    cpu, cuda = (_of_rank(name, rank) for name in ("cpu", "cuda"))
    if cpu in states:
        torch.set_rng_state(states[cpu])
    if device.type == "cuda" and cuda in states:
        torch.cuda.set_rng_state(states[cuda], device)


def _of_rank(name: str, rank: int) -> str:
    return f"{name}.{rank}" if rank else name


def _restore_progress(facts: dict[str, Any], pending: dict[str, Tensor], device: torch.device) -> Progress:
    counts = {**facts["progress"], "position": Position(**facts["progress"]["position"])}
    lists = {name: list(values.to(device).unbind()) for name, values in pending.items()}
    return Progress(**counts, **lists)


def _generators(device: torch.device) -> dict[str, Tensor]:
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def _by_part(tensors: dict[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    parts: dict[str, dict[str, Tensor]] = {name: {} for name in ("model", "optimizer", "generator", "pending")}
    for name, tensor in tensors.items():
        part, _, rest = name.partition("/")
        parts[part][rest] = tensor
    return parts


def _device(model: Seq2Seq) -> torch.device:
    return next(model.parameters()).device
