"""The command ``hkconv`` in processes that can be killed, without the seconds that each would take to import PyTorch.

A server imports everything once and forks a process for each command. That process is the command's alone: a signal
that it gets, or the moment at which it kills itself, is what a real one would meet.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

# What is imported before a fork; a command imports the rest itself.
MODULES = (
    *("hkconv.cli.main", "hkconv.cli.progress", "hkconv.tasks.run"),
    *("hkconv.experiments.studies", "hkconv.experiments.tuner", "hkconv.language.train"),
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Command:
    """A running command, or one that has ended."""

    def __init__(self, server: "ForkServer", pid: int, notes: Path):
        self.server, self.pid, self.notes = server, pid, notes

    def send(self, number: int) -> None:
        """Send it a signal; one that has ended is left alone."""
        self.server.ask({"signal": number, "pid": self.pid})

    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self.server.ask({"running": self.pid})

    def wait(self) -> int:
        """Its exit code, once it has ended; negative for the signal that killed it."""
        return self.server.ask({"wait": self.pid})

    @property
    def stdout(self) -> str:
        return (self.notes / "stdout").read_text()

    @property
    def stderr(self) -> str:
        return (self.notes / "stderr").read_text()

    @property
    def touches(self) -> int:
        """How often it touched a file in its folder, once it has ended by itself."""
        return int((self.notes / "touches").read_text())


class ForkServer:
    """Starts commands. Use it as a context manager."""

    def __init__(self) -> None:
        self.notes = tempfile.TemporaryDirectory()
        environment = {**os.environ, "OMP_WAIT_POLICY": "PASSIVE", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def __enter__(self) -> "ForkServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.notes.cleanup()

    def start(
        self,
        *arguments: object,
        folder: Path,
        kill_at: int | None = None,
        limit: int | None = None,
        obey: bool = False,
        stdout: str | None = None,
    ) -> Command:
        """Start ``hkconv`` with arguments.

        Args:
            arguments: its own.
            folder: where it runs. What it prints goes elsewhere.
            kill_at: kill it right before it touches a file in the folder for that time, from 1.
            limit: the largest file in bytes that it may write.
            obey: whether the permissions of files hold for it even if it is root's.
            stdout: where its standard output goes instead.
        """
        notes = tempfile.mkdtemp(dir=self.notes.name)
        order = {"start": list(map(str, arguments)), "folder": str(folder), "notes": notes, "stdout": stdout}
        return Command(self, self.ask({**order, "kill_at": kill_at, "limit": limit, "obey": obey}), Path(notes))

    def run(self, *arguments: object, folder: Path, **options: object) -> tuple[int, Command]:
        """Start it, wait for its end and give its exit code too."""
        command = self.start(*arguments, folder=folder, **options)
        return command.wait(), command

    def ask(self, order: dict) -> int:
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


class _Touches:
    """Counts what is done to the files of a folder, and kills the process right before a chosen one."""

    def __init__(self, folder: str, kill_at: int | None):
        self.folder, self.kill_at, self.count = folder, kill_at, 0

    def __call__(self, event: str, arguments: tuple) -> None:
        if event == "open":
            path, _, flags = arguments
            is_touch = bool(flags & WRITING) and isinstance(path, str | bytes | os.PathLike)
        else:
            path = arguments[0] if arguments else ""
            is_touch = event in ("os.rename", "os.remove", "os.mkdir", "os.truncate", "fcntl.flock", "sqlite3.connect")
        if is_touch and (isinstance(path, int) or os.path.abspath(os.fsdecode(path)).startswith(self.folder)):
            self.count += 1
            if self.count == self.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)


def _serve() -> None:
    import importlib

    for name in MODULES:
        importlib.import_module(name)
    ended: dict[int, int] = {}
    for line in sys.stdin:
        order = json.loads(line)
        if "start" in order:
            answer = os.fork()
            if answer == 0:
                _become(order)
        elif "wait" in order:
            answer = ended.pop(order["wait"], None)
            answer = os.waitpid(order["wait"], 0)[1] if answer is None else answer
            answer = os.waitstatus_to_exitcode(answer)
        else:
            pid = order.get("running", order.get("pid"))
            if pid not in ended:
                found, status = os.waitpid(pid, os.WNOHANG)
                ended |= {pid: status} if found else {}
            answer = pid not in ended
            # A number may be given away again; while its process is not waited for, it is not.
            if answer and "signal" in order:
                os.kill(pid, order["signal"])
        print(json.dumps(answer), flush=True)


def _become(order: dict) -> None:
    """Be the command that was asked for, and never return."""
    import resource

    code, notes = 70, order["notes"]
    try:
        os.chdir(order["folder"])
        for stream, name in ((0, os.devnull), (1, order["stdout"] or f"{notes}/stdout"), (2, f"{notes}/stderr")):
            handle = os.open(name, os.O_RDONLY if stream == 0 else os.O_WRONLY | os.O_CREAT, 0o666)
            os.dup2(handle, stream)
            os.close(handle)
        # A shell starts background jobs deaf to Ctrl-C, and tests may be one.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if order["limit"] is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (order["limit"], order["limit"]))
        if order["obey"]:
            _obey_permissions()
        touches = _Touches(order["folder"], order["kill_at"])
        sys.addaudithook(touches)
        sys.argv = ["hkconv", *order["start"]]
        from hkconv.cli.main import run

        try:
            run()
        except SystemExit as end:
            code = end.code or 0
        Path(notes, "touches").write_text(str(touches.count))
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _obey_permissions() -> None:
    """Give up root's right to pass over the permissions of files; others do not have it."""
    import ctypes

    override, version = 1 << 1, 0x20080522
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = (ctypes.c_uint32 * 2)(version, 0), (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    # The effective set, the permitted one and the one that is inherited, and then their upper halves.
    for index in range(3):
        sets[index] &= ~override
    if libc.capset(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capset")


if __name__ == "__main__":
    _serve()
