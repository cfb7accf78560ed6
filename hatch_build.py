"""Builds the compiled kernel where there are a C compiler and Python's headers; without them all is plain."""

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

SOURCE = pathlib.Path("src/orbitmq/kernel/_native.c")


class KernelHook(BuildHookInterface):  # type: ignore[misc]
    """Compiles ``_native.c`` beside its source, for editable installs and wheels alike."""

    def initialize(self, _version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel" or os.environ.get("ORBITMQ_KERNEL", "").lower() in {"off", "0", "false"}:
            return
        source = pathlib.Path(self.root) / SOURCE
        target = source.with_name("_native" + sysconfig.get_config_var("EXT_SUFFIX"))
        problem = compiled(source, target)
        if problem is not None:
            # One that was built of other sources would not fit them.
            target.unlink(missing_ok=True)
            self.app.display_warning(f"the compiled kernel was not built, and OrbitMQ will be slower: {problem}")
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"].append(f"/{target.relative_to(self.root).as_posix()}")


def compiled(source: pathlib.Path, target: pathlib.Path) -> str | None:
    """Compile a file; what is wrong if that is not possible."""
    compiler = shlex.split(os.environ.get("CC", "")) or [shutil.which("cc") or shutil.which("gcc") or ""]
    include = sysconfig.get_paths()["include"]
    if not compiler[0]:
        return "there is no C compiler (Debian: apt-get install gcc libc6-dev)"
    if not pathlib.Path(include, "Python.h").exists():
        return "the headers of Python are missing (Debian: apt-get install python3-dev)"
    # Written beside and renamed: a server that runs keeps the file it has loaded.
    partial = target.with_suffix(".partial")
    flags = ["-O3", "-fPIC", "-shared", "-fvisibility=hidden", "-DNDEBUG", f"-I{include}"]
    if sys.platform == "darwin":
        flags += ["-undefined", "dynamic_lookup"]
    ran = subprocess.run(  # noqa: S603 - the compiler that whoever builds has chosen
        [*compiler, *flags, str(source), "-o", str(partial)], capture_output=True, text=True, check=False
    )
    if ran.returncode:
        return (ran.stderr.strip().splitlines() or [f"{compiler[0]} ended with {ran.returncode}"])[0]
    partial.replace(target)
    return None
