"""Faults of a simulated run: what breaks, when, for how long. All from one seed, or from a given list."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import json
import logging
from typing import TYPE_CHECKING

from orbitmq.testing.simulation.failover import FailoverCluster
from orbitmq.testing.simulation.faults.failover import failover_fault
from orbitmq.testing.simulation.faults.kinds import BROKER_KINDS, FAILOVER_KINDS, Fault, FaultKind

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from orbitmq.testing.simulation.cluster import SimulatedCluster

log = logging.getLogger("orbitmq.simulation")

MAX_FAULTS = 14


def to_json(faults: Sequence[Fault]) -> str:
    return json.dumps([dataclasses.asdict(fault) for fault in faults])


def from_json(text: str) -> list[Fault]:
    return [Fault(**{**entry, "kind": FaultKind(entry["kind"])}) for entry in json.loads(text)]


def random_faults(rng: random.Random, duration: float, among: Sequence[FaultKind] = BROKER_KINDS) -> list[Fault]:
    """Faults in the first ``duration`` seconds. Some runs have none of some kinds: rare orders need quiet ones."""
    kinds = [kind for kind in among if rng.random() < 0.6] or [FaultKind.KILL_BROKER]
    return sorted(
        (
            Fault(
                at=round(rng.uniform(1.0, duration), 6),
                kind=rng.choice(kinds),
                which=rng.randrange(64),
                other=rng.randrange(64),
                seconds=round(rng.choice([0.05, 0.5, 3.0, 12.0]) * rng.uniform(0.2, 1.5), 6),
                seed=rng.getrandbits(32),
            )
            for _ in range(rng.randint(0, MAX_FAULTS))
        ),
        key=lambda fault: fault.at,
    )


async def inject(cluster: SimulatedCluster, fault: Fault) -> None:
    """Let a fault happen, and end it when its time is over."""
    log.info("fault: %s", fault)
    kind = fault.kind
    if kind in (FaultKind.CUT_LINK, FaultKind.CUT_ONE_WAY, FaultKind.RESET):
        await _network_fault(cluster, fault)
    elif kind in (FaultKind.KILL_CLIENT, FaultKind.PAUSE_CLIENT):
        await _client_fault(cluster, fault)
    elif kind is FaultKind.KILL_NAME_SERVER:
        machine = cluster.name_servers[fault.which % len(cluster.name_servers)]
        if machine.is_up:
            machine.kill()
            await asyncio.sleep(fault.seconds)
            await cluster.bring_up(machine)
    elif kind in FAILOVER_KINDS:
        assert isinstance(cluster, FailoverCluster), kind
        await failover_fault(cluster, fault)
    else:
        await _broker_fault(cluster, fault)


async def _network_fault(cluster: SimulatedCluster, fault: Fault) -> None:
    network, hosts = cluster.network, cluster.hosts
    first = hosts[fault.which % len(hosts)]
    second = [host for host in hosts if host != first][fault.other % (len(hosts) - 1)]
    if fault.kind is FaultKind.RESET:
        network.reset_connections(first, second)
        return
    links = [(first, second)] if fault.kind is FaultKind.CUT_ONE_WAY else [(first, second), (second, first)]
    for link in links:
        network.cut(*link)
    await asyncio.sleep(fault.seconds)
    for link in links:
        network.heal(*link)


async def _client_fault(cluster: SimulatedCluster, fault: Fault) -> None:
    client = cluster.clients[fault.which % len(cluster.clients)]
    if fault.kind is FaultKind.KILL_CLIENT:
        client.kill()
        await asyncio.sleep(fault.seconds)
        client.start()
    else:
        client.pause()
        await asyncio.sleep(fault.seconds)
        client.resume()


async def _broker_fault(cluster: SimulatedCluster, fault: Fault) -> None:
    machine = cluster.all_brokers[fault.which % len(cluster.all_brokers)]
    if not machine.is_up or machine.process is None:
        return
    process = machine.process
    match fault.kind:
        case FaultKind.KILL_BROKER | FaultKind.POWER_CUT | FaultKind.STOP_BROKER:
            if fault.kind is FaultKind.KILL_BROKER:
                machine.kill()
            elif fault.kind is FaultKind.POWER_CUT:
                machine.cut_power(fault.seed)
            else:
                await machine.stop()
            await asyncio.sleep(fault.seconds)
            await cluster.bring_up(machine)
        case FaultKind.PAUSE_BROKER:
            machine.pause()
            await asyncio.sleep(fault.seconds)
            if machine.process is process:
                machine.resume()
        case FaultKind.SLOW_DISK:
            process.disk_delay = min(fault.seconds / 10, 1.0)
            await asyncio.sleep(fault.seconds)
            process.disk_delay = 0.0
        case FaultKind.FAIL_SYNC:
            # A broker whose log could not be synced takes no messages until it is started again.
            machine.disk.fail("sync", times=1 + fault.other % 3, after=fault.other % 20)
            await asyncio.sleep(fault.seconds)
            if machine.process is process:
                machine.kill()
                machine.disk.heal()
                await asyncio.sleep(0.5)
                await cluster.bring_up(machine)
        case FaultKind.DISK_FULL:
            for operation in ("create", "write", "reserve", "pwrite"):
                machine.disk.fail(operation, error=errno.ENOSPC, times=1_000_000)
            await asyncio.sleep(fault.seconds)
            if machine.process is process:
                machine.disk.heal()
        case FaultKind.CLOCK_JUMP:
            machine.clock.skew_ms += (fault.seed % 20_000) - 10_000
        case _:
            raise AssertionError(fault.kind)
