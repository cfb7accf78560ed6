"""The public names of the client are importable from ``orbitmq`` and ``orbitmq.aio``, without loading it early."""

from __future__ import annotations

import subprocess
import sys

import orbitmq
from orbitmq import aio


def test_both_faces_have_the_same_names() -> None:
    assert orbitmq.__all__ == aio.__all__
    assert all(getattr(orbitmq, name) is not None for name in orbitmq.__all__)


def test_importing_orbitmq_loads_no_client() -> None:
    code = "import sys, orbitmq; print([name for name in sys.modules if name.startswith('orbitmq.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
