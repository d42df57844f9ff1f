"""The command as a process of its own: what a shell, a pipe and Ctrl-C see."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from hkconv.engine.checkpoint import load_checkpoint

COMMAND = (sys.executable, "-m", "hkconv")


def wait_for_first_training(process: subprocess.Popen, run: Path) -> None:
    """Until the first of many trainings has finished, so that another is under way."""
    deadline = time.monotonic() + 60
    while not (run / "mlp" / "split0-seed0" / "metrics.json").exists():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def listen_to_ctrl_c() -> None:
    """A shell starts background jobs deaf to Ctrl-C, and their children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_bad_input_is_one_line_and_exit_code_2(in_empty_folder):
    command = [*COMMAND, "train", "txas", "--out", "run"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert finished.returncode == 2
    assert finished.stdout == ""
    assert finished.stderr == "error: unknown dataset 'txas': did you mean texas? `hkconv datasets` lists them\n"
    assert os.listdir(in_empty_folder) == []


def test_ctrl_c_keeps_the_best_checkpoint_and_shows_what_finished(in_empty_folder):
    Path("recipe.yaml").write_text("models: [mlp]\nepochs: 100\npatience: 100000\nnum_splits: 50\nhidden_dim: 4\n")
    command = [*COMMAND, "train", "--recipe", "recipe.yaml", "--out", "run"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=listen_to_ctrl_c
    )
    run = in_empty_folder / "run"
    wait_for_first_training(process, run)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr
    assert "\x1b" not in stdout + stderr
    assert "interrupted: the table shows what had finished" in stdout
    assert "go on: hkconv train --resume run" in stdout
    summary = json.loads((run / "summary.json").read_text())
    assert summary["interrupted"]
    for result in summary["cells"]:
        load_checkpoint(run / result["model"] / f"split{result['split']}-seed{result['seed']}", expected="mlp")
