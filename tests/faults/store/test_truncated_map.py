"""A log file that is truncated while a broker has it mapped: the process names the file and exits."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from support.native.marks import needs_native

if TYPE_CHECKING:
    from pathlib import Path

READER = """
import mmap, os, sys
from orbitmq import native
native.load().guard_maps()
path = sys.argv[1]
with open(path, "r+b") as file:
    mapped = mmap.mmap(file.fileno(), 0)
os.truncate(path, 0)
print(mapped[8192])
"""


@needs_native
def test_a_map_of_a_truncated_file_ends_the_process_with_the_name_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000"
    path.write_bytes(bytes(1 << 16))
    done = subprocess.run(
        [sys.executable, "-c", READER, str(path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 74
    assert done.stderr == (
        f"orbitmq: bus error: a mapped file was truncated or cannot be read: {path}; "
        "restore it or check the disk, then start again\n"
    )
