"""Compile the kernels, a shared library for each set of vector instructions.

Nothing of the package is imported here: hatch_build.py takes this file as it is, before anything is installed.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
FLAGS = [
    *("-std=c++17", "-O3", "-fPIC", "-pthread", "-fvisibility=hidden", "-fopenmp-simd"),
    *("-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"),
]
# By the names that torch.backends.cpu.get_cpu_capability() has for them, the best first.
INSTRUCTIONS = {
    "AVX512": [
        *("-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mavx2", "-mfma", "-mprefer-vector-width=512"),
    ],
    "AVX2": ["-mavx2", "-mfma"],
    "DEFAULT": [],
}


def instruction_sets() -> list[str]:
    """Names of the sets that this kind of processor may have."""
    return list(INSTRUCTIONS) if platform.machine().lower() in {"x86_64", "amd64"} else ["DEFAULT"]


def library_name(instructions: str) -> str:
    """File name of a library, with a digest of all that it is made of: one of other sources is never taken for it."""
    sources = [(path.name, path.read_bytes()) for path in _sources("*.[ch]pp")]
    digest = hashlib.sha256(repr((sources, FLAGS, INSTRUCTIONS[instructions])).encode()).hexdigest()
    return f"kernels-{instructions.lower()}-{digest[:16]}.so"


def compile_libraries(folder: Path, instruction_sets: Iterable[str]) -> None:
    """Make libraries in a folder, where they appear when they are complete.

    Raises:
        RuntimeError: there is no compiler, or it fails; one line that says so.
        OSError: the folder cannot be written to.
    """
    compiler = next(filter(None, map(shutil.which, [os.environ.get("CXX", ""), "c++", "g++", "clang++"])), None)
    if compiler is None or sys.platform == "win32":
        raise RuntimeError("there is no C++ compiler")
    with tempfile.TemporaryDirectory(dir=folder) as place, ThreadPoolExecutor(os.cpu_count()) as pool:
        objects: dict[str, list[str]] = {name: [] for name in instruction_sets}
        commands = []
        for name, made in objects.items():
            for source in _sources("*.cpp"):
                made.append(str(Path(place, f"{name}-{source.stem}.o")))
                commands.append([compiler, *FLAGS, *INSTRUCTIONS[name], "-c", str(source), "-o", made[-1]])
        # No more at once than there are processors: each takes hundreds of megabytes.
        list(pool.map(_run, commands))
        for name, made in objects.items():
            library = Path(place, library_name(name))
            _run([compiler, "-shared", "-pthread", *made, "-o", str(library)])
            library.rename(folder / library.name)


def _run(command: list[str]) -> None:
    # The user's own compiler with the arguments above; no shell reads them.
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # nosec B603
    if result.returncode:
        said = result.stderr.strip().splitlines()
        raise RuntimeError(f"{command[0]} failed: {said[0] if said else f'exit code {result.returncode}'}")


def _sources(pattern: str) -> list[Path]:
    return sorted(HERE.glob(pattern))
