"""The loss curve of a translation run, one line of JSON every few steps."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from hkconv.engine.files import append_json, write_bytes


@dataclass(frozen=True)
class LogEntry:
    """A line of the loss curve.

    Args:
        step: the last step it covers.
        loss: mean, over the steps since the last line, of the loss a target token, smoothing included.
        gradient_norm: mean over the same steps of the norm before clipping.
        lr: learning rate of the step.
        epoch: complete passes over the training data.
        target_tokens: target tokens seen so far.
        seconds: time in steps so far, over all parts of the run; validation not counted.
        tokens_per_second: tokens of both sides since the last line, padding not counted.
        validation_loss: mean negative log likelihood of a token of the validation text, without smoothing; None where
            there was no validation after this step.
    """

    step: int
    loss: float
    gradient_norm: float
    lr: float
    epoch: int
    target_tokens: int
    seconds: float
    tokens_per_second: float
    validation_loss: float | None = None


_WHOLE, _NUMBER = (int,), (int, float)
_KINDS = {
    **dict.fromkeys((entry.name for entry in fields(LogEntry)), _NUMBER),
    **dict.fromkeys(("step", "epoch", "target_tokens"), _WHOLE),
    "validation_loss": (*_NUMBER, type(None)),
}


def append_entry(path: Path, entry: LogEntry) -> None:
    """Add a line."""
    append_json(path, asdict(entry), "the log")


def read_log(path: Path) -> list[LogEntry]:
    """Every line of a log; one that a kill cut short is left out, and a log that does not exist has none."""
    if not path.exists():
        return []
    entries = []
    for line in path.read_bytes().split(b"\n"):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if _is_entry(found):
            entries.append(LogEntry(**found))
    return entries


def forget_after(path: Path, step: int) -> None:
    """Leave out the lines after a step: those steps will be taken again."""
    kept = [json.dumps(asdict(entry)) for entry in read_log(path) if entry.step <= step]
    if path.exists():
        write_bytes(path, "".join(f"{line}\n" for line in kept).encode())


def _is_entry(found: Any) -> bool:
    if not isinstance(found, dict) or found.keys() != _KINDS.keys():
        return False
    return all(type(value) in _KINDS[name] for name, value in found.items())
