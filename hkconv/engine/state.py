"""The resume state of a training as one file: whole or absent, whenever the process was killed.

It holds all that the next step depends on: weights, the optimizer's moments, the generators, the scale of the loss in
float16, the history so far and the weights of its best epoch. Nothing in such a file can be run.
"""

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_safetensors
from torch import Tensor

from hkconv.engine.distributed import ALONE, Processes
from hkconv.engine.files import make_folder, write_bytes
from hkconv.engine.guard import Rewind
from hkconv.engine.loop import Best, Epoch, EpochProgress
from hkconv.engine.optimizer import moving_part
from hkconv.engine.task import Score
from hkconv.errors import InputError, is_out_of_memory
from hkconv.opening import check_regular

FORMAT_VERSION = 1


def write_tensors(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Write tensors and plain data as one file, atomically.

    Args:
        path: the file.
        tensors: on any device.
        facts: what JSON can hold.
    """
    # Cloned, because the format refuses tensors that share memory, as tied weights do.
    copies = {name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}
    write_bytes(path, to_safetensors(copies, {"facts": json.dumps({"format_version": FORMAT_VERSION, **facts})}))


def read_facts(path: Path) -> dict[str, Any]:
    """The plain data of :func:`write_tensors`."""
    return _read(path, with_tensors=False)[1]


def count_numbers(path: Path) -> int:
    """Return how many numbers the tensors of :func:`write_tensors` have; none of them is read."""
    try:
        check_regular(path)
        with safe_open(path, framework="pt") as file:
            return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118
    except (OSError, SafetensorError):
        raise InputError(f"checkpoint {path} is damaged: it is not a safetensors file") from None


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the plain data of :func:`write_tensors`."""
    return _read(path, with_tensors=True)


def by_part(tensors: dict[str, Tensor], parts: tuple[str, ...], path: Path) -> dict[str, dict[str, Tensor]]:
    """Tensors whose names are ``PART/NAME`` as a dictionary for each part, empty where there are none.

    Args:
        tensors: of a file.
        parts: those that the file may have.
        path: how an error calls the file.
    """
    found: dict[str, dict[str, Tensor]] = {part: {} for part in parts}
    for name, tensor in tensors.items():
        part, _, rest = name.partition("/")
        if part not in found:
            raise InputError(f"checkpoint {path} is damaged: it has no place for tensor {name!r}")
        found[part][rest] = tensor
    return found


def check_shapes(expected: dict[str, Tensor], found: dict[str, Tensor], path: Path) -> None:
    """Refuse weights of another model.

    Args:
        expected: the model's.
        found: those of a file.
        path: how an error calls the file.
    """
    for name in sorted(expected.keys() | found.keys()):
        shapes = [tuple(where[name].shape) if name in where else None for where in (found, expected)]
        if shapes[0] != shapes[1]:
            here, wanted = (shape or "nothing" for shape in shapes)
            raise InputError(f"checkpoint {path} does not fit the run: {name!r} is {here}, expected {wanted}")


def _read(path: Path, *, with_tensors: bool) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        check_regular(path)
        with safe_open(path, framework="pt") as file:
            facts = json.loads((file.metadata() or {}).get("facts", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()} if with_tensors else {}  # noqa: SIM118
    except OSError as error:
        raise InputError(f"checkpoint {path} cannot be read ({error.strerror or 'no such file'})") from None
    except (SafetensorError, ValueError, RecursionError):
        raise InputError(f"checkpoint {path} is damaged: it is not a safetensors file") from None
    if not isinstance(facts, dict) or facts.get("format_version") != FORMAT_VERSION:
        found = facts.get("format_version") if isinstance(facts, dict) else None
        raise InputError(f"checkpoint {path} has format version {found!r}; this hkconv reads {FORMAT_VERSION}")
    return tensors, facts


# The factor of a loss is in float32.
_LARGEST = torch.finfo(torch.float32).max


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return what an optimizer of Adam's kind remembers, as ``PARAMETER/NAME``."""
    states = optimizer.state_dict()["state"].items()
    return {f"{index}/{name}": tensor for index, entries in states for name, tensor in entries.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Bring an optimizer to where :func:`optimizer_tensors` found it.

    Args:
        optimizer: of the same parameters.
        tensors: from a file, unchecked.
        path: how an error calls the file.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for place, tensor in tensors.items():
        index, _, name = place.partition("/")
        if not index.isascii() or not index.isdecimal() or int(index) >= len(parameters):
            raise InputError(f"checkpoint {path} is damaged: the optimizer has no parameter {index!r}")
        state.setdefault(int(index), {})[name] = tensor
    for number, entries in state.items():
        if not _fits(entries, parameters[number]):
            raise InputError(f"checkpoint {path} does not fit the run: the optimizer's memory of parameter {number}")
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def generator_tensors(device: torch.device, own: torch.Generator | None = None) -> dict[str, Tensor]:
    """The states of the CPU's default generator, of a GPU's and of one of the training's own."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    if own is not None:
        states["own"] = own.get_state()
    return states


def restore_generators(
    states: Mapping[str, Tensor], device: torch.device, path: Path, own: torch.Generator | None = None
) -> None:
    """Bring the generators to where :func:`generator_tensors` found them.

    Args:
        states: from a file, unchecked. One from a machine without a GPU has no state of a GPU; the training then goes
            on with the seed's.
        device: where the training is.
        path: how an error calls the file.
        own: the training's.
    """
    try:
        torch.set_rng_state(states["cpu"])
        if own is not None:
            own.set_state(states["own"])
        if device.type == "cuda" and "cuda" in states:
            torch.cuda.set_rng_state(states["cuda"], device)
    except (KeyError, TypeError, RuntimeError) as error:
        if is_out_of_memory(error):
            raise
        raise InputError(f"checkpoint {path} is damaged: it does not hold the states of the generators") from None


def scaler_facts(scaler: torch.amp.GradScaler) -> dict[str, float]:
    """Return what changes in the scaler of a loss: its factor, and the steps since a gradient has overflowed."""
    state = scaler.state_dict()
    return {"scale": state["scale"], "growth_tracker": state["_growth_tracker"]}


def restore_scaler(scaler: torch.amp.GradScaler, facts: Any, path: Path) -> None:
    """Bring the scaler of a loss to where :func:`scaler_facts` found it.

    Args:
        scaler: made as it was.
        facts: from a file, unchecked.
        path: how an error calls the file.
    """
    try:
        scale, tracker = facts["scale"], facts["growth_tracker"]
        is_sound = type(scale) is float and 0 < scale <= _LARGEST and type(tracker) is int and 0 <= tracker < 2**31
    except (KeyError, TypeError):
        is_sound = False
    if not is_sound:
        raise InputError(f"checkpoint {path} is damaged: it does not hold the factor of the loss")
    scaler.load_state_dict({**scaler.state_dict(), "scale": scale, "_growth_tracker": tracker})


def _fits(entries: Mapping[str, Tensor], parameter: Tensor) -> bool:
    """A mean of gradients for each number that moves, and a mean of squares for each or, on a manifold, one a point."""
    if entries.keys() != {"step", "exp_avg", "exp_avg_sq"}:
        return False
    first, second = entries["exp_avg"].shape, entries["exp_avg_sq"].shape
    squares = (parameter.shape, (*parameter.shape[:-1], 1))
    return entries["step"].numel() == 1 and first == moving_part(parameter).shape and second in squares


FILE = "unfinished.safetensors"


def write_state(
    path: Path,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    facts: dict[str, Any],
    *,
    parts: Mapping[str, Mapping[str, Tensor]],
    generator: torch.Generator | None = None,
    processes: Processes = ALONE,
) -> None:
    """Write all that the next step depends on, the generators of the CPU and of the model's GPU included.

    Several ranks call it together; they differ in their generators alone, and the first of them writes.

    Args:
        path: the file; an older state in it is replaced.
        model: the network.
        optimizer: of its parameters.
        facts: plain data.
        parts: further tensors by the names of their parts.
        generator: of the training's own.
        processes: the ranks that train together.
    """
    states = enumerate(processes.all(generator_tensors(next(model.parameters()).device, generator)))
    contents = {
        "model": model.state_dict(),
        "optimizer": optimizer_tensors(optimizer),
        "generator": {_of_rank(name, rank): state for rank, found in states for name, state in found.items()},
        **parts,
    }
    tensors = {f"{part}/{name}": tensor for part, content in contents.items() for name, tensor in content.items()}
    processes.first(lambda: write_tensors(path, tensors, facts))


def read_state(
    path: Path,
    model: torch.nn.Module,
    parts: tuple[str, ...],
    check_facts: Callable[[dict[str, Any], Path], None] | None = None,
) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Return the tensors of a state by part, of which ``parts`` are further ones, and its plain data, checked first."""
    tensors, facts = read_tensors(path)
    if check_facts is not None:
        check_facts(facts, path)
    found = by_part(tensors, ("model", "optimizer", "generator", *parts), path)
    check_shapes(model.state_dict(), found["model"], path)
    return found, facts


def restore_training(
    path: Path,
    parts: Mapping[str, Mapping[str, Tensor]],
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    generator: torch.Generator | None = None,
    processes: Processes = ALONE,
) -> None:
    """Bring a training to where :func:`write_state` found it, with the tensors of :func:`read_state`."""
    restore_optimizer(optimizer, parts["optimizer"], path)
    model.load_state_dict(parts["model"])
    names = {name: _of_rank(name, processes.rank) for name in ("cpu", "cuda", "own")}
    mine = {name: parts["generator"][there] for name, there in names.items() if there in parts["generator"]}
    # A state of fewer ranks has none of the others; they go on with the seed's.
    if mine or processes.is_first:
        restore_generators(mine, next(model.parameters()).device, path, generator)


def _of_rank(name: str, rank: int) -> str:
    return f"{name}.{rank}" if rank else name


class Unfinished:
    """Keeps a training in a file, and brings it back.

    Args:
        folder: of the training; made when first written to.
        every: seconds from one time to the next.
        about: plain data that must be the same for the training to go on, such as what is known of its dataset.
    """

    def __init__(self, folder: Path, every: float = 60.0, about: Mapping[str, Any] | None = None):
        self.path, self.every, self.about = folder / FILE, every, dict(about or {})
        self.saved_at = time.perf_counter()

    def restore(self, kept: Rewind) -> EpochProgress:
        """Bring a new training, built as it was, to where the file left it; return how far it is.

        Args:
            kept: all that an epoch changes.
        """
        model, optimizer = kept.model, kept.optimizer
        if not self.path.exists():
            return EpochProgress()
        parts, facts = read_state(self.path, model, ("best",))
        device = next(model.parameters()).device
        check_shapes(model.state_dict(), parts["best"], self.path)
        progress = self._progress(facts, {name: tensor.to(device) for name, tensor in parts["best"].items()})
        self._check_same(facts["about"])
        restore_training(self.path, parts, model, optimizer, kept.generator)
        for group, lr in zip(optimizer.param_groups, facts["lr"]):
            group["lr"] = lr
        # A file that was written before factors were kept has none; the training then finds it again.
        if kept.scaler is not None and facts.get("scaler") is not None:
            restore_scaler(kept.scaler, facts["scaler"], self.path)
        return progress

    def save_if_due(self, kept: Rewind, progress: EpochProgress) -> None:
        """Write the file if the last time is long ago; the arguments are those of :meth:`save`."""
        if time.perf_counter() - self.saved_at >= self.every:
            self.save(kept, progress)

    def save(self, kept: Rewind, progress: EpochProgress) -> None:
        """Write the file between two epochs, of which at least one is done."""
        best = cast(Best, progress.best)
        facts = {
            "about": self.about,
            "history": [asdict(epoch) for epoch in progress.history],
            "best": {"epoch": best.epoch, **asdict(best.score)},
            "seconds": progress.seconds,
            "guard": progress.guard,
            # The guard may have lowered it.
            "lr": [group["lr"] for group in kept.optimizer.param_groups],
            "scaler": None if kept.scaler is None else scaler_facts(kept.scaler),
        }
        make_folder(self.path.parent, "out")
        parts = {"best": best.weights}
        write_state(self.path, kept.model, kept.optimizer, facts, generator=kept.generator, parts=parts)
        self.saved_at = time.perf_counter()

    def remove(self) -> None:
        """The training has ended."""
        self.path.unlink(missing_ok=True)

    def _progress(self, facts: dict[str, Any], weights: dict[str, Tensor]) -> EpochProgress:
        try:
            history = [Epoch(**epoch) for epoch in facts["history"]]
            score = Score(facts["best"]["metric"], facts["best"]["loss"])
            best, numbers = facts["best"]["epoch"], [score.metric, score.loss, facts["seconds"], *facts["lr"]]
            numbers += [value for epoch in history for value in (epoch.loss, epoch.val_loss, epoch.val_metric)]
            is_sound = (
                all(type(number) in (int, float) for number in numbers)
                and [epoch.number for epoch in history] == list(range(1, len(history) + 1))
                and type(best) is int
                and 1 <= best <= len(history)
                and isinstance(facts["about"], dict)
                and isinstance(facts["guard"], str | None)
            )
        except (KeyError, TypeError):
            is_sound = False
        if not is_sound:
            raise InputError(f"{self.path} is damaged: remove it to begin the training anew")
        return EpochProgress(history, Best(best, score, weights), facts["seconds"], facts["guard"])

    def _check_same(self, about: dict[str, Any]) -> None:
        for key, now in self.about.items():
            if about.get(key) != now:
                raise InputError(
                    f"{self.path} was begun with {key} {about.get(key)!r}, but here it is {now!r}: "
                    "remove it to begin the training anew"
                )
