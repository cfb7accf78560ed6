"""What peers are made of is fetched or built once and kept in a cache folder."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_MARKER = "complete"


def cache_folder() -> Path:
    """``$ORBITMQ_PEERS``, or ``.peers`` in the project."""
    chosen = os.environ.get("ORBITMQ_PEERS")
    return Path(chosen).absolute() if chosen else Path(__file__).parents[2] / ".peers"


def is_filled(name: str) -> bool:
    """Whether ``filled`` has nothing left to do for this folder."""
    return (cache_folder() / name / _MARKER).exists()


def filled(name: str, fill: Callable[[Path], None]) -> Path:
    """The folder of this name in the cache, which ``fill`` is called to fill if that was never done to the end.

    An interrupted ``fill`` starts again from an empty folder. Of two runs at once the second waits for the first.
    """
    folder = cache_folder() / name
    if is_filled(name):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(folder.with_name(f"{name}.lock"), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_filled(name):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            fill(folder)
            (folder / _MARKER).touch()
    return folder
