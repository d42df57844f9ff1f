"""Count the signs of a tree that is easy to read: ``python docs/count_signs.py``, the table of docs/design.md.

Rules: a file is *entered before the network* when a function of it runs, other than at import, in ``hkconv train tree``
before the first ``forward`` of a model; *frames* are those of the package on the stack at the first optimizer step; a
*container* is a NamedTuple or dataclass of the package that a Python function holds between ``HKConv.forward`` and its
CPU kernel.
"""

import contextlib
import dataclasses
import io
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

ROOT = Path(__file__).parents[1]
PACKAGE = str(ROOT / "hkconv")
sys.path.insert(0, str(ROOT))


class StepReachedError(Exception):
    """The first optimizer step is reached."""


def is_ours(frame):
    return frame.f_code.co_filename.startswith(PACKAGE)


def is_importing(frame):
    while is_ours(frame) and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return is_ours(frame)


def sizes():
    lines = [len(file.read_text().splitlines()) for file in Path(PACKAGE).rglob("*.py")]
    tables = [len(file.read_text().splitlines()) for file in Path(PACKAGE).rglob("*.yaml")]
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    kept = [ROOT / name for name in tracked.split("\0") if name and not name.startswith("docs/images/")]
    return {
        "package files / lines of Python": f"{len(lines)} / {sum(lines):,}",
        "files with at most 60 lines": sum(count <= 60 for count in lines),
        "YAML of tables, files / lines": f"{len(tables)} / {sum(tables):,}",
        "tracked bytes outside docs/images": f"{sum(file.stat().st_size for file in kept if file.is_file()):,}",
    }


def walk_of_training():
    from hkconv.cli.main import app

    files, frames, is_in_network = set(), 0, False

    def watch(frame, event, _):
        nonlocal is_in_network
        if event != "call" or is_in_network or not is_ours(frame):
            return
        is_in_network = frame.f_code.co_name == "forward"
        if not is_in_network and frame.f_code.co_filename not in files and not is_importing(frame):
            files.add(frame.f_code.co_filename)

    def stop(*_):
        nonlocal frames
        frame = sys._getframe()
        while frame := frame.f_back:
            frames += is_ours(frame)
        raise StepReachedError

    hook = register_optimizer_step_pre_hook(stop)
    with (
        tempfile.TemporaryDirectory() as out,
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.suppress(StepReachedError),
    ):
        arguments = ["train", "tree", "--epochs", "1", "--device", "cpu", "--out", f"{out}/run"]
        sys.setprofile(watch)
        try:
            app(arguments, standalone_mode=False)
        finally:
            sys.setprofile(None)
            hook.remove()
    return f"{len(files)}; {frames}"


def containers():
    from hkconv.nn import HKConv

    found = set()

    def watch(frame, event, _):
        if event in ("call", "return") and is_ours(frame):
            kinds = {type(value) for value in frame.f_locals.values()}
            found.update(
                kind
                for kind in kinds
                if kind.__module__.startswith("hkconv.")
                and (hasattr(kind, "_fields") or dataclasses.is_dataclass(kind))
            )

    layer = HKConv(4, 4, 3, backend="cpu")
    x = torch.nn.functional.pad(torch.zeros(3, 4), (1, 0), value=1.0)
    sys.setprofile(watch)
    try:
        layer(x, torch.tensor([[0, 1, 2], [1, 2, 0]]))
    finally:
        sys.setprofile(None)
    return len(found)


if __name__ == "__main__":
    signs = sizes()
    signs["files that `hkconv train` enters before the network; frames to a step"] = walk_of_training()
    signs["containers between HKConv.forward and the CPU kernel"] = containers()
    print("| | now |\n|---|---|")
    for name, value in signs.items():
        print(f"| {name} | {value} |")
