"""Build hook: the kernels of the CPU are compiled into the package, where there is a compiler."""

import importlib.util
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelHook(BuildHookInterface):
    """Adds a library for each set of vector instructions to a wheel, which is then one for this platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        folder = Path(self.root, "hkconv", "ops", "native")
        spec = importlib.util.spec_from_file_location("build_kernels", folder / "build.py")
        assert spec is not None and spec.loader is not None
        build = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(build)
        names = [build.library_name(instructions) for instructions in build.instruction_sets()]
        for old in folder.glob("*.so"):
            if old.name not in names:
                old.unlink()
        try:
            if not all((folder / name).is_file() for name in names):
                build.compile_libraries(folder, build.instruction_sets())
        except (OSError, RuntimeError) as error:
            # The package compiles them when they are needed, or says that it takes the reference.
            print(f"hkconv is installed without compiled kernels: {error}", file=sys.stderr)
            return
        build_data["artifacts"] += [f"/hkconv/ops/native/{name}" for name in names]
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
