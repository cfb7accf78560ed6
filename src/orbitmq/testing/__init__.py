"""Test support for OrbitMQ and for applications that use it: clusters in the test process, disks, clocks.

``LocalCluster`` is real name servers and brokers inside the test's own process; the pytest plugin makes fixtures
of it. Below it are a disk that loses power and fails on request (``MemoryDisk``), a clock that stands still until
it is moved (``ManualClock``) and one that runs and can be moved ahead (``LoopClock``). They keep the same contracts
as the machine's disk and clock, are driven by a seed, and so replay a failure exactly.

This package replaces the world outside the process, never a part of OrbitMQ itself.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.testing.cluster_thread import ThreadCluster
    from orbitmq.testing.local_cluster import LocalCluster
    from orbitmq.testing.simulation.clock import ManualClock
    from orbitmq.testing.simulation.disk import BrokenMapError, MemoryDisk, PowerCut, UnreservedStoreError
    from orbitmq.testing.simulation.loop_clock import LoopClock

__all__ = [
    "BrokenMapError",
    "LocalCluster",
    "LoopClock",
    "ManualClock",
    "MemoryDisk",
    "PowerCut",
    "ThreadCluster",
    "UnreservedStoreError",
]

_MODULES = {
    "BrokenMapError": "simulation.disk",
    "LocalCluster": "local_cluster",
    "LoopClock": "simulation.loop_clock",
    "ManualClock": "simulation.clock",
    "MemoryDisk": "simulation.disk",
    "PowerCut": "simulation.disk",
    "ThreadCluster": "cluster_thread",
    "UnreservedStoreError": "simulation.disk",
}


def __getattr__(name: str) -> object:
    """Load a name at its first use: pytest imports this package at the start of every run."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name == "LocalCluster":
        from orbitmq.lazy_import import require_server  # noqa: PLC0415 - pytest imports this package in every run

        require_server("a cluster inside tests")
    found: object = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = found
    return found
