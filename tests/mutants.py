"""Mutation testing: one small fault after another in a copy of the package, and whether the tests notice it.

    python tests/mutants.py geometry hkconv/engine/optimizer.py    # a room, a file
    python tests/mutants.py --base HEAD~3                          # lines that differ from a revision

Mutants are first given to the tests of their module, the survivors to the others of the room, then to those of the
modules in other rooms that import theirs; one is dead when a test fails. Outcomes are written as they come; a further
call passes over the dead and tries the survivors again. Those that no test should kill stand in ``mutants.yaml`` with
the reason.
"""

import argparse
import ast
import hashlib
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import entry_points
from pathlib import Path
from queue import SimpleQueue

import yaml

ROOT = Path(__file__).parents[1]
EXPLAINED = "tests/mutants.yaml"
# Imported once, before the processes are forked that each run the tests of one mutant.
PRELOADED = ("torch", "torch_geometric", "geoopt", "numba", "networkx", "scipy.special", "pytest")
LEAST_SECONDS = 60
SURVIVED = "survived"
NOT_COPIED = (".git", ".venv", "__pycache__", ".*_cache", ".hypothesis", "site", "results")

COMPARISONS = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
OPPOSITES = {"min": "max", "amin": "amax", "minimum": "maximum", "argmin": "argmax", "all": "any", "floor": "ceil"}
OPPOSITES |= {second: first for first, second in OPPOSITES.items()}
ATOMS = (ast.Constant, ast.Name, ast.Attribute, ast.Slice)
# Types, decorators and words are not what a program does.
NOT_MUTATED = {"annotation", "returns", "decorator_list"}


@dataclass(frozen=True)
class Mutant:
    """One fault: where it is, the code there before and after, and the digest of the file and place it belongs to."""

    file: str
    line: int
    old: str
    new: str
    key: str


def mutants_of(path: Path, root: Path, lines: set[int] | None = None) -> Iterator[tuple[Mutant, str]]:
    """Yield the mutants of a file with the source of each, all or those that begin in some lines."""
    source = path.read_text(encoding="utf-8")
    text = source.encode()
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node, field in _walk(ast.parse(source)):
        if lines is not None and node.lineno not in lines:
            continue
        first, last = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
        for fault in _faults(node, field):
            changed = ast.unparse(fault)
            if not (isinstance(node, ast.stmt) or (isinstance(node, ATOMS) and type(node) is type(fault))):
                changed = f"({changed})"
            before, after = text[starts[node.lineno - 1] : first], text[last : starts[node.end_lineno]]
            old = " ".join(text[starts[node.lineno - 1] : starts[node.end_lineno]].decode().split())
            new = " ".join((before + changed.encode() + after).decode().split())
            made = (text[:first] + changed.encode() + text[last:]).decode()
            name = path.relative_to(root).as_posix()
            key = hashlib.sha256(f"{name} {first} {made}".encode()).hexdigest()[:16]
            yield Mutant(name, node.lineno, old, new, key), made


def _walk(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield the nodes below one that may be changed, each with the field of its parent that it stands in."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if name in NOT_MUTATED or not isinstance(child, ast.AST) or _says_types_alone(child):
                continue
            if hasattr(child, "lineno"):
                yield child, name
            # What an error says, and the inside of a text, whose place Python 3.11 does not know.
            if not isinstance(child, ast.Raise | ast.JoinedStr):
                yield from _walk(child)


def _says_types_alone(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def _faults(node: ast.AST, field: str) -> Iterator[ast.AST]:
    """Yield what may stand in the place of an expression or statement."""
    nothing = ast.Pass()
    if field == "test" and not isinstance(node, ast.Compare | ast.UnaryOp):
        yield ast.UnaryOp(ast.Not(), node)
    match node:
        case ast.Compare(left, operators, right):
            for place, operator in enumerate(operators):
                for other in COMPARISONS[type(operator)]:
                    yield ast.Compare(left, [*operators[:place], other(), *operators[place + 1 :]], right)
        case ast.BinOp(left, operator, right) if type(operator) in ARITHMETIC:
            yield ast.BinOp(left, ARITHMETIC[type(operator)](), right)
        case ast.AugAssign(target, operator, value):
            yield nothing
            if type(operator) in ARITHMETIC:
                yield ast.AugAssign(target, ARITHMETIC[type(operator)](), value)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not() | ast.USub() | ast.Invert(), value):
            yield value
        case ast.Constant(bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(int(value) | float(value)):
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.Call(ast.Attribute(_, "where"), [_, first, second], []):
            yield first
            yield second
        case ast.Name(name) if name in OPPOSITES:
            yield ast.Name(OPPOSITES[name])
        case ast.Attribute(value, name) if name in OPPOSITES:
            yield ast.Attribute(value, OPPOSITES[name])
        case ast.Slice(lower, upper, step):
            one = ast.Constant(1)
            if lower is not None and not isinstance(lower, ast.Constant):
                yield ast.Slice(ast.BinOp(lower, ast.Add(), one), upper, step)
            if upper is not None and not isinstance(upper, ast.Constant):
                yield ast.Slice(lower, ast.BinOp(upper, ast.Sub(), one), step)
        case ast.Expr(ast.Call()) | ast.Raise() | ast.Continue() | ast.Break() | ast.Delete():
            yield nothing
        case ast.Assign([ast.Attribute() | ast.Subscript()]):
            yield nothing
        case ast.Return(value) if value is not None and not _is_none(value):
            yield ast.Return(ast.Constant(None))


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def stages(file: str, root: Path) -> list[list[str]]:
    """List the tests of a module, then the others of its room, then those of modules elsewhere that import it.

    A module without tests of its own has those of the modules of its room that import it.
    """
    path = Path(file)
    module = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
    parent, _, name = module.rpartition(".")
    imported = re.compile(rf"\b{re.escape(module)}\b|from {re.escape(parent)} import .*\b{name}\b")
    modules = sorted((root / path.parts[0]).rglob("*.py"))
    readers = [_test_of(_relative(found, root)) for found in modules if imported.search(found.read_text())]
    room = Path("tests", path.parts[1])
    own = [_test_of(file)]
    if not (root / own[0]).is_file():
        own = [name for name in readers if Path(name).is_relative_to(room)]
    kin = [_relative(found, root) for found in sorted((root / room).rglob("test_*.py"))]
    seen: set[str] = set()
    found = []
    for tests in (own, kin, readers):
        found.append([name for name in dict.fromkeys(tests) if name not in seen and (root / name).is_file()])
        seen.update(tests)
    return [tests for tests in found if tests]


def _test_of(file: str) -> str:
    path = Path(file)
    return Path("tests", *path.parts[1:-1], f"test_{path.name}").as_posix()


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix()


def _run_pytest(copy: Path, tests: list[str], kernels: str, log: str) -> None:
    """Run tests in this process, a fork of one that has imported what takes long."""
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(copy)
    os.environ.update(PYTHONPATH=str(copy), NUMBA_CACHE_DIR=kernels, PYTHONDONTWRITEBYTECODE="1")
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(copy))
    if "numba" in sys.modules:
        sys.modules["numba"].config.reload_config()
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    import pytest

    sys.exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", f"--basetemp={copy.parent / 'temporary'}", *tests]))


class Copy:
    """A copy of the project in which one mutant after the other is tried."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root, folder
        shutil.copytree(root, folder / "tree", ignore=shutil.ignore_patterns(*NOT_COPIED))
        self.seconds: dict[str, float] = {}

    def killer(self, mutant: Mutant, source: str, tests: list[str]) -> str:
        """Return the test that fails for a mutant, or ``time``; empty where it survives."""
        limit = LEAST_SECONDS + 5 * self._seconds_without_fault(tests)
        path = self.folder / "tree" / mutant.file
        sound = path.read_text(encoding="utf-8")
        path.write_text(source, encoding="utf-8")
        try:
            code = self._run(tests, limit, fresh_kernels="njit" in sound)
        finally:
            path.write_text(sound, encoding="utf-8")
        if code is None:
            return "time"
        return self._first_failure() if code else ""

    def _seconds_without_fault(self, tests: list[str]) -> float:
        """Return how long sound tests take, those that were not run before for the first time."""
        new = [name for name in tests if name not in self.seconds]
        start = time.monotonic()
        if new and self._run(new, 3600, fresh_kernels=False) != 0:
            raise SystemExit(f"without any fault {self._first_failure()} fails:\n{self._log().read_text()[-3000:]}")
        self.seconds |= dict.fromkeys(new, (time.monotonic() - start) / max(1, len(new)))
        return sum(self.seconds[name] for name in tests)

    def _run(self, tests: list[str], limit: float, fresh_kernels: bool) -> int | None:
        """Return the exit code, None where time ran out."""
        kernels = self.folder / ("fresh" if fresh_kernels else "kernels")
        if fresh_kernels:
            shutil.rmtree(kernels, ignore_errors=True)
        arguments = (self.folder / "tree", tests, str(kernels), str(self._log()))
        process = multiprocessing.get_context("forkserver").Process(target=_run_pytest, args=arguments)
        process.start()
        process.join(limit)
        code = process.exitcode
        if code is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.join()
        return code

    def _log(self) -> Path:
        return self.folder / "log"

    def _first_failure(self) -> str:
        found = re.search(r"^(?:FAILED|ERROR) (\S+)", self._log().read_text(errors="replace"), re.M)
        return found[1] if found else "the end of its process"


def changed_lines(base: str, root: Path) -> dict[str, set[int]]:
    """Return the lines of each file of the package that differ from a revision."""
    command = ["git", "diff", "-U0", "--no-color", base, "--", "hkconv/*.py"]
    found: dict[str, set[int]] = {}
    lines: set[int] = set()
    for line in subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.splitlines():
        if line.startswith("+++ "):
            lines = found.setdefault(line.removeprefix("+++ b/"), set())
        elif place := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            lines.update(range(int(place[1]), int(place[1]) + int(place[2] or 1)))
    return found


def choose(places: Sequence[str], base: str | None, root: Path) -> dict[Mutant, str]:
    """Return all mutants of some rooms and files, or of the lines that differ from a revision."""
    lines = changed_lines(base, root) if base else {}
    paths = [root / name for name in lines if (root / name).is_file()]
    for place in places:
        path = root / place if place.endswith(".py") else root / "hkconv" / place
        if not path.exists():
            raise SystemExit(f"{place} is neither a room of hkconv nor a file")
        paths += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    return dict(pair for path in paths for pair in mutants_of(path, root, lines.get(_relative(path, root))))


def reason_for(mutant: Mutant, explained: Iterable[dict[str, str]]) -> str:
    """Return why no test should kill a mutant, empty where it is not explained."""
    for entry in explained:
        if (entry["file"], entry["old"]) == (mutant.file, mutant.old) and entry.get("new", mutant.new) == mutant.new:
            return entry["why"]
    return ""


def report(outcomes: dict[Mutant, str], explained: list[dict[str, str]]) -> int:
    """Print counts a room and the survivors; return how many are not explained."""
    counts: Counter[tuple[str, str]] = Counter()
    unexplained = 0
    for mutant, outcome in sorted(outcomes.items(), key=lambda item: (item[0].file, item[0].line)):
        room = mutant.file.split("/")[1]
        counts[room, "mutants"] += 1
        counts[room, SURVIVED] += outcome == SURVIVED
        if outcome == SURVIVED:
            reason = reason_for(mutant, explained)
            unexplained += not reason
            print(f"{mutant.file}:{mutant.line} {f'explained: {reason}' if reason else 'SURVIVED'}")
            print(f"  - {mutant.old}\n  + {mutant.new}")
    for room in sorted({room for room, _ in counts}):
        total, survived = counts[room, "mutants"], counts[room, SURVIVED]
        print(f"{room}: {total - survived} of {total} killed ({100 * (total - survived) / total:.0f} %)")
    return unexplained


def try_all(mutants: dict[Mutant, str], root: Path, out: Path, workers: int) -> dict[Mutant, str]:
    """Try mutants in copies of the project, all with the nearest tests first, and write every outcome at once."""
    known = [json.loads(line) for line in out.read_text().splitlines()] if out.is_file() else []
    dead = {entry["key"]: entry["outcome"] for entry in known if entry["outcome"] != SURVIVED}
    outcomes = {mutant: dead[mutant.key] for mutant in mutants if mutant.key in dead}
    left = sorted((mutant for mutant in mutants if mutant not in outcomes), key=lambda mutant: mutant.file)
    outcomes |= dict.fromkeys(left, SURVIVED)  # where there is no test at all, too
    tests_of = {file: stages(file, root) for file in {mutant.file for mutant in left}}
    print(f"{len(mutants)} mutants, {len(outcomes) - len(left)} known to be dead", flush=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(workers) as pool:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(min(workers, len(left))):
            copies.put(Copy(root, Path(folder, str(number))))

        def outcome(mutant: Mutant, stage: int) -> str:
            copy = copies.get()
            try:
                killer = copy.killer(mutant, mutants[mutant], tests_of[mutant.file][stage])
                return f"killed by {killer}" if killer else SURVIVED
            finally:
                copies.put(copy)

        try:
            for stage in range(max(map(len, tests_of.values()), default=0)):
                tried = [mutant for mutant in left if stage < len(tests_of[mutant.file])]
                found = pool.map(outcome, tried, [stage] * len(tried))
                for number, (mutant, what) in enumerate(zip(tried, found), start=1):
                    outcomes[mutant] = what
                    with out.open("a", encoding="utf-8") as file:
                        file.write(json.dumps({**asdict(mutant), "outcome": what}) + "\n")
                    print(f"{stage + 1}: {number}/{len(tried)} {mutant.file}:{mutant.line} {what}", flush=True)
                left = [mutant for mutant in left if outcomes.get(mutant, SURVIVED) == SURVIVED]
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return outcomes


def main(arguments: Sequence[str] | None = None, root: Path = ROOT, preloaded: Sequence[str] = PRELOADED) -> int:
    """Run the program; the exit code is 1 where a mutant survives that is not explained."""
    parser = argparse.ArgumentParser(description="Report which small faults the tests do not notice.")
    parser.add_argument("places", nargs="*", help="rooms (geometry) or files (hkconv/engine/optimizer.py)")
    parser.add_argument("--base", help="a revision: the lines that differ from it; HEAD without places")
    parser.add_argument("--count", type=int, default=50, help="mutants to draw")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--workers", type=int, default=os.cpu_count(), help="mutants at a time")
    parser.add_argument("--out", type=Path, default=Path("mutants.jsonl"), help="file of the outcomes")
    options = parser.parse_args(arguments)
    base = options.base if options.places or options.base else "HEAD"
    every = choose(options.places, base, root)
    drawn = random.Random(options.seed).sample(list(every), min(options.count, len(every)))
    # PyG imports Triton, which then reads whether to interpret kernels.
    os.environ.setdefault("TRITON_INTERPRET", "1")
    plugins = [entry.module for entry in entry_points(group="pytest11")]
    multiprocessing.set_forkserver_preload([*preloaded, *plugins])
    try:
        outcomes = try_all({mutant: every[mutant] for mutant in drawn}, root, options.out, options.workers)
    except KeyboardInterrupt:
        print(f"\ninterrupted: {options.out} has the outcomes so far, and the same command goes on from there")
        return 130
    explained = root / EXPLAINED
    return int(report(outcomes, yaml.safe_load(explained.read_text()) if explained.is_file() else []) > 0)


if __name__ == "__main__":
    sys.exit(main())
