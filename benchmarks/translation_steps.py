"""Full training steps of translators beside each other, in turns, and how many operations a step has.

Run: python benchmarks/translation_steps.py --device cuda
"""

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

# OpenMP reads this once, when PyTorch is loaded; threads that spin while they wait disturb what runs beside them.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hkconv.engine.devices import find_device
from hkconv.engine.files import write_json
from hkconv.engine.measuring import header, time_calls
from hkconv.engine.step import CapturedParts, Step
from hkconv.engine.task import Objective
from hkconv.errors import InputError
from hkconv.language.batches import Batch
from hkconv.language.loss import summed_loss
from hkconv.language.task import make_optimizer
from hkconv.models.translation import create_translator
from hkconv.models.translation.tokens import UNKNOWN
from hkconv.ops.backends import Launcher

RESULTS = Path(__file__).parent / "results"
VOCABULARY, WIDTH, SMOOTHING, CLIP, LR = 10_000, 16, 0.1, 1.0, 1e-4
# Of one side of a batch: what was trained with on a GPU, and what two cores do in seconds.
TOKENS = {"cpu": 512, "cuda": 16_384}
WARM_UPS = 3
# What takes no kernel besides views: memory without contents, and numbers that the host reads.
FREE = {"_local_scalar_dense", "empty", "empty_like", "empty_strided", "lift_fresh", "new_empty"}


class Operations(TorchDispatchMode):
    """Counts what is computed inside, kernels of our own included."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function._schema.name.removeprefix("aten::")
        views = any(alias.alias_info and not alias.alias_info.is_write for alias in function._schema.returns)
        self.count += not views and name not in FREE
        return function(*args, **(kwargs or {}))

    def __enter__(self) -> "Operations":
        launch = self._launch = Launcher.__call__

        def counted(launcher: Launcher, *arguments: Any, **constants: Any) -> None:
            self.count += 1
            launch(launcher, *arguments, **constants)

        Launcher.__call__ = counted  # type: ignore[method-assign]
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        Launcher.__call__ = self._launch  # type: ignore[method-assign]
        super().__exit__(*error)


def make_batch(tokens: int, device: torch.device) -> Batch:
    rows = max(1, tokens // WIDTH)
    source = torch.randint(UNKNOWN + 1, VOCABULARY, (rows, WIDTH), device=device)
    target = torch.randint(UNKNOWN + 1, VOCABULARY, (rows, WIDTH + 1), device=device)
    return Batch(source, target, rows * WIDTH, 2 * rows * WIDTH)


class Smoothed(Objective):
    """The loss of translation without a run."""

    def loss(self, model: torch.nn.Module, batch: Batch) -> torch.Tensor:
        return summed_loss(model(batch.source, batch.target[:, :-1]), batch.target[:, 1:], SMOOTHING)

    def total_weight(self, batches: Sequence[Batch]) -> int:
        return sum(batch.target_tokens for batch in batches)


def make_step(name: str, seed: int, device: torch.device) -> Step:
    torch.manual_seed(seed)
    model = create_translator(name, VOCABULARY).to(device).train()
    is_captured = device.type == "cuda"
    optimizer = make_optimizer(model, capturable=is_captured)
    return (CapturedParts if is_captured else Step)(model, Smoothed(), optimizer, clip=CLIP)


def count_operations(step: Step, batch: Batch) -> int:
    step.unrecorded([batch], LR)
    with Operations() as seen:
        step.unrecorded([batch], LR)
    return seen.count


def run(models: list[str], tokens: int, budget: float, seed: int, device: torch.device) -> dict[str, Any]:
    """Operations and times of a step of each model, as plain data."""
    protocol = {"tokens": tokens, "width": WIDTH, "dim": 64, "captured": device.type == "cuda", "budget": budget}
    found: dict[str, Any] = {}
    calls = {}
    batch = make_batch(tokens, device)
    for name in models:
        step = make_step(name, seed, device)
        found[name] = {"operations": count_operations(step, batch)}
        calls[name] = partial(step, [batch], LR)
        for _ in range(WARM_UPS):
            calls[name]()
    time_calls(calls, budget, device, found, "step")
    return {**header("translation-steps", device, seed, protocol), "models": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--models", nargs="+", default=["hkn", "hybonet", "transformer"])
    parser.add_argument("--tokens", type=int, help="of one side of a batch; default: 512 on the CPU, 16384 on a GPU")
    parser.add_argument("--budget", type=float, default=30.0, help="seconds of timing for all models together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/translation-steps-DEVICE.json")
    options = parser.parse_args()
    device = find_device(options.device)
    tokens = options.tokens or TOKENS.get(device.type, TOKENS["cpu"])
    document = run(options.models, tokens, options.budget, options.seed, device)
    for name, entry in document["models"].items():
        print(f"{name}: {entry['operations']} operations, {1000 * entry['step']['median']:.1f} ms a step")
    out = options.out or RESULTS / f"translation-steps-{device.type}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    write_json(out, document)
    print(f"written to {out}")


if __name__ == "__main__":
    try:
        main()
    except InputError as error:
        sys.exit(f"error: {error}")
