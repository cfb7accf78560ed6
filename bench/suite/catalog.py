"""Which scenarios there are, in the order of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.suite.consumes import consumes
from bench.suite.lifetimes import lifetimes
from bench.suite.monitored import Monitored
from bench.suite.others import OtherSystems
from bench.suite.real_clients import real_clients
from bench.suite.scale import Backlog, ManyQueues
from bench.suite.sends import ApachesProducer, Batches, EchoCeiling, OtherClients, SyncFlush, sends
from bench.suite.upkeep import upkeep

if TYPE_CHECKING:
    from bench.figures import Size
    from bench.suite.scenario import Scenario


def scenarios(size: Size) -> list[Scenario]:
    """All scenarios of a run of this size; a scenario whose parts or disk depend on the size is made for it."""
    return [
        *sends(size),
        OtherClients(size),
        EchoCeiling(size),
        ApachesProducer(size),
        SyncFlush(size),
        Batches(size),
        ManyQueues(size),
        Backlog(size),
        Monitored(size),
        *consumes(size),
        *upkeep(size),
        *real_clients(size),
        *lifetimes(size),
        OtherSystems(size),
    ]
