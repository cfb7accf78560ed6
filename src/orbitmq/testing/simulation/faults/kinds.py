"""Kinds of faults of a simulated run, and the fault itself as a seed or a list gives it."""

from __future__ import annotations

import dataclasses
import enum


class FaultKind(enum.StrEnum):
    """Kinds of faults."""

    KILL_BROKER = "kill-broker"
    POWER_CUT = "power-cut"
    PAUSE_BROKER = "pause-broker"
    STOP_BROKER = "stop-broker"
    KILL_NAME_SERVER = "kill-name-server"
    KILL_CLIENT = "kill-client"
    PAUSE_CLIENT = "pause-client"
    CUT_LINK = "cut-link"
    CUT_ONE_WAY = "cut-one-way"
    RESET = "reset"
    SLOW_DISK = "slow-disk"
    FAIL_SYNC = "fail-sync"
    DISK_FULL = "disk-full"
    CLOCK_JUMP = "clock-jump"
    # Of clusters with a controller only; the master is whoever it is at that moment.
    KILL_MASTER = "kill-master"
    POWER_CUT_MASTER = "power-cut-master"
    PAUSE_MASTER = "pause-master"
    ISOLATE_MASTER = "isolate-master"
    CUT_SLAVES = "cut-slaves"
    KILL_CONTROLLER = "kill-controller"
    POWER_CUT_CONTROLLER = "power-cut-controller"
    PAUSE_CONTROLLER = "pause-controller"
    CUT_CONTROLLER = "cut-controller"
    LOSE_DISK = "lose-disk"


FAILOVER_KINDS = (
    FaultKind.KILL_MASTER,
    FaultKind.POWER_CUT_MASTER,
    FaultKind.PAUSE_MASTER,
    FaultKind.ISOLATE_MASTER,
    FaultKind.CUT_SLAVES,
    FaultKind.KILL_CONTROLLER,
    FaultKind.POWER_CUT_CONTROLLER,
    FaultKind.PAUSE_CONTROLLER,
    FaultKind.CUT_CONTROLLER,
    FaultKind.LOSE_DISK,
)
"""Kinds that strike clusters with a controller."""

BROKER_KINDS = tuple(kind for kind in FaultKind if kind not in FAILOVER_KINDS)
"""Kinds that can strike every cluster."""


@dataclasses.dataclass(frozen=True, slots=True)
class Fault:
    """One fault. ``which`` and ``other`` choose machines, by their number among those that it can strike."""

    at: float
    kind: FaultKind
    which: int = 0
    other: int = 0
    seconds: float = 0.0
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.at:.3f} s {self.kind} {self.which}/{self.other} for {self.seconds:.1f} s"
