"""Runs small enough to train in a test, and servers of them that are asked over real connections."""

import asyncio
import contextlib
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import torch
from own_files import write_papers
from torch_geometric.data import Data

from hkconv.serving.app import create_app
from hkconv.serving.limits import Limits
from hkconv.serving.server import address_of, bind, make_server
from hkconv.serving.service import Service, load_service
from hkconv.tasks.recipe import make_recipe
from hkconv.tasks.run import train_run


def run_to_its_end(coroutine: Coroutine) -> Any:
    """What a coroutine returns. In a thread of its own: a browser of other tests may keep a loop running in ours."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


# A path, a body, and the ids with their probabilities of the classes that it should be answered with.
Question = tuple[str, dict[str, Any], list[tuple[str, dict[str, float]]]]
COMMAND = (sys.executable, "-m", "hkconv", "serve")


def train(data: Path, out: Path, **changes: Any) -> Path:
    """Train a small GCN on own data. Returns the folder of the run."""
    values = {"models": ("gcn",), "epochs": 20, "lr": 0.05, "num_splits": 1, "hidden_dim": 4, "device": "cpu"}
    train_run(make_recipe(**{**values, "dataset": str(data), "out": str(out), **changes}))
    return out


def papers_run(folder: Path, **changes: Any) -> Path:
    """A run on two tables: a number, a category, weights. Its data are in the folder ``papers`` beside it."""
    return train(write_papers(folder / "papers"), folder / "run", **changes)


def arrays_run(folder: Path) -> Path:
    """A run on the arrays of one graph without weights, whose nodes are called by their numbers."""
    draw = np.random.default_rng(0)
    y = np.arange(40) % 2
    x = draw.normal(size=(40, 3)) + y[:, None]
    np.savez(folder / "graph.npz", x=x, edge_index=draw.integers(40, size=(2, 90)), y=y)
    return train(folder / "graph.npz", folder / "run")


def shapes(count: int, *, labelled: bool = True) -> list[Data]:
    """Graphs of four nodes with two features, with weights; half of them have larger features."""
    draw = torch.Generator().manual_seed(0)
    made = []
    for number in range(count):
        x = torch.rand(4, 2, generator=draw) + number % 2
        edges, weights = torch.randint(4, (2, 5), generator=draw), torch.rand(5, generator=draw)
        made.append(Data(x=x, edge_index=edges, edge_weight=weights, ids=f"g{number}"))
        if labelled:
            made[-1].y = number % 2
    return made


def shapes_run(folder: Path) -> Path:
    """A run on a list of graphs."""
    torch.save(shapes(30), folder / "graphs.pt")
    return train(folder / "graphs.pt", folder / "run")


def posted(graph: Data) -> dict[str, Any]:
    """A graph as a client posts it."""
    ends, weights = graph.edge_index.t().tolist(), graph.edge_weight.tolist()
    edges = [{"source": start, "target": end, "weight": weight} for (start, end), weight in zip(ends, weights)]
    return {"id": graph.ids, "nodes": graph.x.tolist(), "edges": edges}


@contextlib.contextmanager
def serving(run: Path | Service, *, token: str | None = None, **limits: Any) -> Iterator[httpx.Client]:
    """A server in a thread of this process. Gives a client of it."""
    service = run if isinstance(run, Service) else load_service(run, device="cpu")
    chosen = Limits(**limits)
    with bind("127.0.0.1", 0) as listening:
        address = address_of(listening)
        server = make_server(create_app(service, chosen, token), chosen)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            with httpx.Client(base_url=address, timeout=60) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()


@contextlib.contextmanager
def serving_process(
    run: Path, *options: object, open_files: int | None = None, **environment: str
) -> Iterator[tuple[str, subprocess.Popen]]:
    """``hkconv serve`` as a process of its own, on a free port. Gives its address and the process, and in ``printed``
    the lines that it began with."""

    def prepare() -> None:
        # A shell starts background jobs deaf to Ctrl-C, and their children inherit that.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if open_files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))

    command = [*COMMAND, str(run), "--device", "cpu", "--port", "0", *map(str, options)]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
        preexec_fn=prepare,
    )
    try:
        yield _wait_for_address(process), process
    finally:
        process.kill()
        process.communicate()


def _wait_for_address(process: subprocess.Popen) -> str:
    deadline = time.monotonic() + 120
    process.printed = []
    for line in process.stdout:
        process.printed.append(line.rstrip())
        if found := re.search(r"listening on (http://\S+),", line):
            return found[1]
        assert time.monotonic() < deadline
    raise AssertionError(process.stderr.read())


@dataclass
class Tally:
    """What many clients together met with: answers that were right, wrong, refusals, errors, and seconds to answer."""

    right: int = 0
    wrong: list[str] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        return sorted(self.seconds)[min(int(share * len(self.seconds)), len(self.seconds) - 1)]


async def ask_from_many_clients(address: str, questions: list[Question], clients: int, seconds: float) -> Tally:
    """Let clients, each on a connection of its own, ask one question after the other and compare the answers.

    Written by hand, because a client library with two hundred connections would need more time than the server.
    """
    tally, end = Tally(), time.monotonic() + seconds
    where = urlsplit(address)

    async def ask_for_long(draw: random.Random) -> None:
        try:
            reader, writer = await asyncio.open_connection(where.hostname, where.port)
            while time.monotonic() < end:
                path, body, expected = draw.choice(questions)
                started = time.monotonic()
                status, answer = await asyncio.wait_for(_ask(reader, writer, path, body), timeout=120)
                tally.seconds.append(time.monotonic() - started)
                if status != 200:
                    tally.refused.append(status)
                elif are_close(answer["predictions"], expected):
                    tally.right += 1
                else:
                    tally.wrong.append(str(answer))
            writer.close()
        except (TimeoutError, OSError, EOFError) as error:
            tally.lost.append(repr(error))

    await asyncio.gather(*(ask_for_long(random.Random(number)) for number in range(clients)))
    return tally


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: dict[str, Any]
) -> tuple[int, dict[str, Any]]:
    content = json.dumps(body).encode()
    top = f"POST {path} HTTP/1.1\r\nhost: here\r\ncontent-type: application/json\r\ncontent-length: {len(content)}"
    writer.write(top.encode() + b"\r\n\r\n" + content)
    await writer.drain()
    received = (await reader.readuntil(b"\r\n\r\n")).decode()
    length = int(re.search(r"content-length: (\d+)", received)[1])
    return int(received.split()[1]), json.loads(await reader.readexactly(length))


def are_close(found: list[dict[str, Any]], expected: list[tuple[str, dict[str, float]]]) -> bool:
    """Whether predictions are those expected, up to the rounding of another number of threads."""
    return len(found) == len(expected) and all(
        entry["id"] == name
        and entry["class"] == max(wanted, key=wanted.get)
        and entry["probabilities"].keys() == wanted.keys()
        and all(abs(entry["probabilities"][each] - share) < 1e-6 for each, share in wanted.items())
        for entry, (name, wanted) in zip(found, expected)
    )
