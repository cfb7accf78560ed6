"""Scenarios from the life of a broker: start, crash and recovery, new log files, long runs, more brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.suite.brokers import Brokers
from bench.suite.recoveries import Recovery
from bench.suite.rollovers import RollOver
from bench.suite.soaks import Soak
from bench.suite.startups import StartUp

if TYPE_CHECKING:
    from bench.figures import Size
    from bench.suite.scenario import Scenario


def lifetimes(size: Size) -> list[Scenario]:
    """These scenarios, in the order of a run."""
    return [StartUp(size), Recovery(size), RollOver(size), Soak(size), Brokers(size)]
