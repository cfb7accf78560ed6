"""Running a function in a fresh process, so that its memory and caches are its own.

Not multiprocessing: its children import the parent's main module, and with it what only the parent needs.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class ApartError(Exception):
    """The process did not come to its end."""


def apart(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a module's function in a fresh process and return what it returned."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.apart"],
        input=pickle.dumps((function, args, kwargs)),
        stdout=subprocess.PIPE,
        cwd=ROOT,
        check=False,
    )
    if done.returncode:
        name = f"{function.__module__}.{function.__qualname__}"
        raise ApartError(f"{name} ended with status {done.returncode}")
    return cast("T", pickle.loads(done.stdout))


def _serve() -> None:
    function, args, kwargs = pickle.load(sys.stdin.buffer)
    answer = sys.stdout.buffer
    # What the function prints must not get into the answer.
    sys.stdout = sys.stderr
    answer.write(pickle.dumps(function(*args, **kwargs)))
    answer.flush()


if __name__ == "__main__":
    _serve()
