"""Faults of clusters with a controller: of the master, whoever it is, of the controller, and of their links."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from orbitmq.testing.simulation.faults.kinds import FaultKind

if TYPE_CHECKING:
    from orbitmq.testing.simulation.failover import FailoverCluster
    from orbitmq.testing.simulation.faults.kinds import Fault
    from orbitmq.testing.simulation.machines import Machine

SHARE_BESIDE = 0.5
"""Share of clients and name servers that are cut off together with a master."""

DIRECTIONS = 3
"""A link is cut in one direction, in the other, or in both."""


async def failover_fault(cluster: FailoverCluster, fault: Fault) -> None:
    """Let a fault happen, and end it when its time is over."""
    controller, master = cluster.controller, cluster.master
    match fault.kind:
        case FaultKind.KILL_CONTROLLER | FaultKind.POWER_CUT_CONTROLLER:
            await _end(cluster, controller, fault, cuts_power=fault.kind is FaultKind.POWER_CUT_CONTROLLER)
        case FaultKind.PAUSE_CONTROLLER:
            await _pause(controller, fault)
        case FaultKind.CUT_CONTROLLER:
            replicas = [machine.host for machine in cluster.replicas]
            chosen = replicas if fault.other % 2 or master is None else [master.host]
            await _cut(cluster, [(host, controller.host) for host in chosen], fault)
        case FaultKind.LOSE_DISK:
            await _lose_disk(cluster, fault)
        case _ if master is None:
            return
        case FaultKind.KILL_MASTER | FaultKind.POWER_CUT_MASTER:
            await _end(cluster, master, fault, cuts_power=fault.kind is FaultKind.POWER_CUT_MASTER)
        case FaultKind.PAUSE_MASTER:
            await _pause(master, fault)
        case FaultKind.ISOLATE_MASTER:
            chance = random.Random(fault.seed)
            outside = [machine.host for machine in (controller, *cluster.slaves)]
            beside = [*(one.host for one in cluster.name_servers), *(one.host for one in cluster.clients)]
            outside += [host for host in beside if chance.random() >= SHARE_BESIDE]
            inside = [host for host in cluster.hosts if host not in outside]
            links = [(host, other) for host in inside for other in outside]
            await _cut(cluster, links, fault, is_both_ways=True)
        case FaultKind.CUT_SLAVES:
            slaves = [machine.host for machine in cluster.slaves]
            chosen = slaves if fault.other % 2 else [slaves[fault.which % len(slaves)]]
            await _cut(cluster, [(host, master.host) for host in chosen], fault)
        case _:
            raise AssertionError(fault.kind)


async def _end(cluster: FailoverCluster, machine: Machine, fault: Fault, *, cuts_power: bool) -> None:
    if not machine.is_up:
        return
    if cuts_power:
        machine.cut_power(fault.seed)
    else:
        machine.kill()
    await asyncio.sleep(fault.seconds)
    await cluster.bring_up(machine)


async def _pause(machine: Machine, fault: Fault) -> None:
    process = machine.process
    machine.pause()
    await asyncio.sleep(fault.seconds)
    if machine.process is process:
        machine.resume()


async def _cut(
    cluster: FailoverCluster, links: list[tuple[str, str]], fault: Fault, *, is_both_ways: bool = False
) -> None:
    direction = DIRECTIONS - 1 if is_both_ways else fault.seed % DIRECTIONS
    back = [(other, host) for host, other in links]
    cut = [links, back, [*links, *back]][direction]
    for link in cut:
        cluster.network.cut(*link)
    await asyncio.sleep(fault.seconds)
    for link in cut:
        cluster.network.heal(*link)


async def _lose_disk(cluster: FailoverCluster, fault: Fault) -> None:
    """A replica loses its disk, while another one in sync has everything: the last copy is not taken away."""
    controller, master = cluster.controller, cluster.master
    if master is None or master.master is None or not controller.is_up or not master.replica.lease_is_valid:
        return
    group = controller.server.storage.groups.get(master.broker_name)
    if group is None or group.master != master.replica.term.own_id:
        return
    members = set(group.in_sync)
    present = {machine.replica.term.own_id for machine in cluster.replicas if machine.is_open}
    has_copy = len(members) > 1 and members <= present and members == master.master.sync.effective
    able = cluster.replicas if has_copy else cluster.slaves
    machine = able[fault.which % len(able)]
    if not machine.is_up:
        return
    machine.lose_disk()
    await asyncio.sleep(fault.seconds)
    await cluster.bring_up(machine)
