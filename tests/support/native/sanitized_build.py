"""The compiled kernel, built to stop at undefined behaviour and at accesses outside its buffers."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import sysconfig

import pytest

import orbitmq.native

SOURCES = pathlib.Path(orbitmq.native.__file__).parent / "src"
FLAGS = ("-O1", "-g", "-fPIC", "-shared", "-fsanitize=undefined,bounds", "-fno-sanitize-recover=all")

HEAD = """
import importlib.util, struct, sys
spec = importlib.util.spec_from_file_location("_native", sys.argv[1])
native = importlib.util.module_from_spec(spec)
spec.loader.exec_module(native)
LEAST, MOST = -(1 << 63), (1 << 63) - 1
"""


def build_checked_kernel(directory: pathlib.Path) -> pathlib.Path:
    """Compile the kernel with sanitizers; skips the test where that is not possible."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    include = sysconfig.get_paths()["include"]
    if compiler is None or not pathlib.Path(include, "Python.h").exists():
        pytest.skip("there is no C compiler or no headers of Python")
    target = directory / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    command = [compiler, *FLAGS, f"-I{include}", f"-I{SOURCES}", str(SOURCES / "module.c"), "-o", str(target)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("the compiler has no sanitizer for undefined behaviour")
    return target


def run_with(kernel: pathlib.Path, code: str) -> None:
    """Run code in a process of its own, with the kernel as ``native``."""
    command = [sys.executable, "-c", HEAD + code, str(kernel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"ended with {done.returncode}: {done.stderr[-1000:]}"
