"""Several processes, started by torchrun on this machine's CPU, against one."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import shared_training
import torch
from toy_translation import toy_options

from hkconv.engine import distributed
from hkconv.engine.checkpoint import load_checkpoint
from hkconv.engine.devices import describe_device
from hkconv.engine.distributed import NAMES, LostProcessError, Place, Processes, find_place, joined
from hkconv.engine.loop import EpochCourse
from hkconv.engine.settings import Settings
from hkconv.engine.steps import read_log
from hkconv.errors import InputError
from hkconv.language.batches import Buckets
from hkconv.language.corpus import Corpus
from hkconv.language.runs import load_run, read_tensors
from hkconv.language.train import train_translator
from hkconv.models import MLP
from hkconv.tasks.fitting import fit
from hkconv.tasks.run import read_recipe, train_run
from hkconv.tasks.tasks import make_task

TESTS = Path(__file__).parents[1]
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def environment() -> dict[str, str]:
    paths = [str(TESTS.parent), str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(paths)}


def start(*arguments: object) -> subprocess.Popen:
    """torchrun with two processes."""
    command = [*TORCHRUN, *map(str, arguments)]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(process: subprocess.Popen, is_true) -> None:
    deadline = time.monotonic() + 120
    while not is_true():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.01)


def kill(process: subprocess.Popen, rank: int) -> None:
    """Kill -9 of one of the two."""
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        if f"RANK={rank}".encode() in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            os.kill(int(child), signal.SIGKILL)
            return
    raise AssertionError(f"no process with rank {rank}")


def the_error(stderr: str) -> str:
    """The one line that hkconv says, among what torchrun says."""
    (line,) = (line for line in stderr.splitlines() if line.startswith("error: "))
    return line


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> list[dict]:
    """What each of two processes found; see shared_training.main."""
    folder = tmp_path_factory.mktemp("two")
    process = start(TESTS / "shared_training.py", folder)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == 0, stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


@pytest.fixture(autouse=True)
def one_thread():
    """Sums depend on how they are divided."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_what_is_divided_is_gathered_once_and_in_order(two):
    for length in range(8):
        assert sum(found["said"]["sizes"][length] for found in two) == length
        for found in two:
            assert found["said"][f"gathered {length}"] == list(range(2 * length))


def test_what_the_first_process_finds_all_have(two):
    for rank, found in enumerate(two):
        said = found["said"]
        assert (said["first"], said["calls"]) == (0, 1 - rank)
        assert said["in turn"] == rank
        assert said["agreed"] == [0.1, 7.0]
        assert said["all"] == [{"rank": 0}, {"rank": 1}]
        assert said["complaint"] == "nothing to see here"
        assert "drew different batches" in said["out of step"]
    assert two[0]["said"]["drawn"] != two[1]["said"]["drawn"]


@pytest.mark.parametrize("case", shared_training.CASES)
def test_two_processes_have_the_loss_curve_of_one(two, case):
    """Parts of 5 and 4, of 1 and 0 graphs or nodes, and of as many known answers as there are; without dropout."""
    alone = shared_training.train_case(**shared_training.CASES[case])
    tolerance = 1e-12 if "float64" in case else 1e-5
    for found in two:
        assert found[case]["best_epoch"] == alone["best_epoch"]
        for ours, theirs in zip(found[case]["history"], alone["history"], strict=True):
            assert ours == pytest.approx(theirs, abs=tolerance, rel=0)
        for score in ("val_metric", "test_metric", "test_loss", "weights"):
            assert found[case][score] == pytest.approx(alone[score], abs=tolerance, rel=0), score


@pytest.mark.parametrize("case", [*shared_training.CASES, "dropout", "batch norm", "translation", "whole", "fault"])
def test_processes_never_differ(two, case):
    assert two[0][case] == two[1][case]


def test_a_translator_has_the_loss_curve_of_one_process(two, tmp_path):
    """Steps of two batches each, whose tokens and rows do not divide by two; some batches have a single row."""
    alone = shared_training.train_toy(tmp_path, **shared_training.NARROW)
    for ours, theirs in zip(two[0]["translation"], alone, strict=True):
        for name, value in theirs.items():
            assert ours[name] == (None if value is None else pytest.approx(value, abs=1e-5, rel=0)), name
    buckets = Buckets(Corpus(tmp_path / "run" / "corpus", "train"), 48)
    rows = {len(pairs) for pairs in buckets.shuffled(0, 0)[:12]}
    assert 1 in rows and len(rows) > 1


def test_a_stopped_translation_of_two_processes_goes_on_as_if_nothing_had_been(two):
    """With dropout, whose random numbers each process has its own of."""
    assert [entry["step"] for entry in two[0]["whole"]] == [1, 2, 3, 4, 5, 6]
    # The last line before the stop has a validation that the whole training has not.
    parts = [{**entry, "validation_loss": None} for entry in two[0]["parts"]]
    assert parts == [{**entry, "validation_loss": None} for entry in two[0]["whole"]]


def test_processes_go_back_together_and_say_what_one_of_them_saw(two):
    fault = two[0]["fault"]
    assert (
        "became nan in step 5; first not finite: the output of module 'encoder.0.feedforward' in step 5;"
        in fault["guard"]
    )
    assert [entry["step"] for entry in fault["curve"]] == [3, 6]
    # Noam's rate rises linearly here: twice as far, half of it.
    assert fault["curve"][1]["lr"] == pytest.approx(fault["curve"][0]["lr"])


def test_a_lost_process_leaves_the_best_weights_and_a_line(tmp_path):
    data, run = tmp_path / "shapes.pt", tmp_path / "run"
    torch.save(shared_training.make_shapes().graphs, data)
    settings = ("--models", "mlp", "--epochs", 80, "--patience", 80, "--num-splits", 3, "--device", "cpu")
    process = start("-m", "hkconv", "train", data, "--out", run, *settings)
    wait_for(process, (run / "recipe.json").exists)
    begun = time.monotonic()
    wait_for(process, (run / "mlp" / "split0-seed0" / "metrics.json").exists)
    # In the midst of the second training, which takes about as long as the first.
    time.sleep((time.monotonic() - begun) / 4)
    kill(process, rank=1)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "one of the 2 processes of this run was lost or stopped (" in the_error(stderr)
    assert len(the_error(stderr)) < 200 + len(str(run))
    assert f"hkconv train --resume {run} goes on" in the_error(stderr)
    assert stdout == ""
    summary = json.loads((run / "summary.json").read_text())
    assert summary["interrupted"]
    assert summary["device"] == f"{describe_device(torch.device('cpu'))}, 2 processes"
    *finished, last = summary["cells"]
    assert last["interrupted"] and not any(cell["interrupted"] for cell in finished)
    for cell in summary["cells"]:
        load_checkpoint(run / "mlp" / f"split{cell['split']}-seed0", expected="mlp")
    resumed = train_run(read_recipe(run), resume=True)
    assert [cell.split for cell in resumed.cells] == [0, 1, 2]
    assert not resumed.interrupted


@pytest.mark.nightly
def test_a_lost_first_process_leaves_the_last_state_and_a_line(tmp_path):
    run = tmp_path / "run"
    options = toy_options(tmp_path, dropout=0.3, log_every=1, validate_every=5, steps=100_000, out=str(run))
    arguments = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
    process = start("-m", "hkconv", "translate", "train", *arguments)
    wait_for(process, (run / "state.safetensors").exists)
    kill(process, rank=0)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "one of the 2 processes of this run was lost or stopped" in the_error(stderr)
    assert f"hkconv translate train --resume {run} goes on" in the_error(stderr)
    saved = read_tensors(run / "state.safetensors")[1]["progress"]["step"]
    assert saved >= 5
    load_run(run)
    recipe = shared_training.toy_recipe(tmp_path, dropout=0.3, log_every=1, validate_every=5, steps=saved + 3)
    assert train_translator(recipe, resume=True).step == saved + 3
    assert [entry.step for entry in read_log(run / "log.jsonl")] == list(range(1, saved + 4))


def test_sigterm_ends_a_rank_once():
    """torchrun sends it to the others of a lost rank; what goes on after it is not disturbed again."""
    processes = Processes(Place(0, 2, 0, 2))
    with distributed._sigterm_raises(processes):
        with pytest.raises(LostProcessError, match=r"was lost or stopped \(told to end\); what was learnt is kept"):
            signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)
    with pytest.raises(LostProcessError):
        processes.check()


def test_tasks_that_take_everything_at_once_are_not_divided(tree):
    with pytest.raises(InputError, match="2 processes divide mini-batches, and this task takes everything at once"):
        fit(
            MLP(4, 8, 3, num_layers=1), tree, tree.splits[0], Settings(epochs=1), processes=Processes(Place(0, 2, 0, 2))
        )


def test_recorded_whole_steps_are_not_shared(molecules):
    model = MLP(1, 8, 2, num_layers=1, task="graph")
    task = make_task(molecules, molecules.splits[0], next(model.parameters()), groupings=2)
    with pytest.raises(InputError, match="capture records whole steps, which 2 processes cannot share"):
        EpochCourse(model, task, Settings(capture=True, groupings=2), processes=Processes(Place(0, 2, 0, 2)))


def test_every_process_of_a_machine_has_its_own_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    chosen = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    second = Processes(Place(rank=3, count=4, local_rank=1, local_count=2))
    assert second.find_device("auto") == torch.device("cuda:1")
    assert chosen == [torch.device("cuda:1")]
    assert second.find_device("cpu") == torch.device("cpu")
    with pytest.raises(InputError, match=r"this machine has 2 GPUs for 8 processes: .* --nproc-per-node 2"):
        Processes(Place(0, 8, 0, 8)).find_device("auto")


def test_without_a_launcher_a_process_is_alone():
    with joined() as processes:
        assert processes.is_first and not processes.together
        members = torch.arange(5)
        assert processes.share(members) is members and processes.gather(members) is members
        assert processes.first(lambda: 7) == 7


@pytest.fixture
def no_launcher(monkeypatch):
    for name in NAMES.values():
        monkeypatch.delenv(name, raising=False)


def test_a_place_is_what_torchrun_says(monkeypatch, no_launcher):
    for name, value in {"RANK": 11, "WORLD_SIZE": 16, "LOCAL_RANK": 3, "LOCAL_WORLD_SIZE": 8}.items():
        monkeypatch.setenv(name, str(value))
    assert find_place() == Place(rank=11, count=16, local_rank=3, local_count=8)


@pytest.mark.parametrize("given", [{}, {"RANK": "1", "WORLD_SIZE": "2"}, dict.fromkeys(NAMES.values(), "many")])
def test_without_a_launcher_a_process_is_the_only_one(monkeypatch, no_launcher, given):
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert find_place() == Place(rank=0, count=1, local_rank=0, local_count=1)
