"""Sources of the native extension: each compiles by itself, so none depends on the order of includes."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sysconfig

import pytest

from support.native.sanitized_build import SOURCES

COMPILER = shutil.which("cc") or shutil.which("gcc")
INCLUDE = sysconfig.get_paths()["include"]

pytestmark = pytest.mark.skipif(
    COMPILER is None or not pathlib.Path(INCLUDE, "Python.h").exists(),
    reason="there is no C compiler or no headers of Python",
)


@pytest.mark.parametrize("folder", ["base", "protocol", "store", "broker", "broker/offsets"])
def test_each_source_compiles_by_itself(folder: str) -> None:
    assert COMPILER is not None
    sources = sorted((SOURCES / folder).glob("*.[ch]"))
    assert sources
    command = [COMPILER, "-fsyntax-only", "-w", f"-I{INCLUDE}", f"-I{SOURCES}", "-x", "c", *map(str, sources)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
