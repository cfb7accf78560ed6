"""Builds the native extension if there are a C compiler and Python's headers; without it the Python path serves."""

from __future__ import annotations

import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCE = pathlib.Path("src/orbitmq/native/src/module.c")


class NativeExtensionHook(BuildHookInterface):  # type: ignore[misc]
    """Compiles the sources of ``orbitmq.native`` as one unit, for editable installs and wheels alike."""

    def initialize(self, _version: str, build_data: dict[str, Any]) -> None:
        # ORBITMQ_KERNEL is the older name of the switch.
        switches = {os.environ.get(name, "").lower() for name in ("ORBITMQ_NATIVE", "ORBITMQ_KERNEL")}
        if self.target_name != "wheel" or switches & {"off", "0", "false"}:
            return
        root = pathlib.Path(self.root)
        target = root / target_of(SOURCE)
        problem = compiled(root / SOURCE, target)
        if problem is not None:
            # An extension built from other sources would not fit the Python code.
            target.unlink(missing_ok=True)
            self.app.display_warning(f"the native extension was not built, and OrbitMQ will be slower: {problem}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"].append(f"/{target.relative_to(self.root).as_posix()}")


def target_of(source: pathlib.Path) -> pathlib.Path:
    """The extension module that ``module.c`` in ``native/src`` is compiled to."""
    return source.parents[1] / ("_native" + sysconfig.get_config_var("EXT_SUFFIX"))


def compiled(source: pathlib.Path, target: pathlib.Path) -> str | None:
    """Compile the extension from ``module.c``, which includes the other sources. Returns the problem, if any."""
    compiler = shlex.split(os.environ.get("CC", "")) or [shutil.which("cc") or shutil.which("gcc") or ""]
    include = sysconfig.get_paths()["include"]
    if not compiler[0]:
        return "there is no C compiler (Debian: apt-get install gcc libc6-dev)"
    if not pathlib.Path(include, "Python.h").exists():
        return "the headers of Python are missing (Debian: apt-get install python3-dev)"
    # Written under another name and renamed: a running server keeps the file that it has loaded.
    partial = target.with_suffix(".partial")
    flags = ["-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-DNDEBUG", f"-I{include}", f"-I{source.parent}"]
    if sys.platform == "darwin":
        flags += ["-undefined", "dynamic_lookup"]
    ran = subprocess.run(  # noqa: S603 - the compiler that the environment names
        [*compiler, *flags, str(source), "-o", str(partial)], capture_output=True, text=True, check=False
    )
    if ran.returncode:
        return (ran.stderr.strip().splitlines() or [f"{compiler[0]} ended with {ran.returncode}"])[0]
    partial.replace(target)
    return None
