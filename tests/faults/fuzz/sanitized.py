"""A copy of the package whose compiled kernel checks every memory access and every arithmetic operation."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path

import orbitmq

_FLAGS = (
    *("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"),
    *("-fPIC", "-shared", "-fvisibility=hidden"),
)


def build(folder: Path) -> dict[str, str]:
    """Copy the package there, compile its kernel with sanitizers, and return the environment that uses it."""
    source = Path(orbitmq.__file__).parent
    copy = folder / "package" / "orbitmq"
    shutil.copytree(source, copy, ignore=shutil.ignore_patterns("__pycache__", "*.so", "*.partial"))
    native = copy / "native"
    target = native / ("_native" + sysconfig.get_config_var("EXT_SUFFIX"))
    compiler = shutil.which("gcc") or shutil.which("cc")
    assert compiler is not None, "a sanitizer build needs a C compiler (Debian: apt-get install gcc libc6-dev)"
    include = sysconfig.get_paths()["include"]
    sources = native / "src"
    command = [compiler, *_FLAGS, f"-I{include}", f"-I{sources}", str(sources / "module.c"), "-o", str(target)]
    subprocess.run(command, check=True)
    libraries = [_library(compiler, name) for name in ("libasan.so", "libubsan.so")]
    return {
        "PYTHONPATH": str(copy.parent),
        "LD_PRELOAD": " ".join(libraries),
        "PYTHONMALLOC": "malloc",
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=1:handle_segv=0:allocator_may_return_null=1",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }


def _library(compiler: str, name: str) -> str:
    found = subprocess.run([compiler, f"-print-file-name={name}"], check=True, capture_output=True, text=True)
    path = found.stdout.strip()
    # A linker script is no library: the real one stands in it.
    text = Path(path).read_bytes()[:200]
    return shlex.split(text.decode())[-2] if text.startswith(b"INPUT") else path
