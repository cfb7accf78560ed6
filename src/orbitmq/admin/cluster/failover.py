"""Failover report of a broker group: why it has a master or none, and what is safe to do."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.protocol.bodies import EpochEntryCache, ReplicaIdentity, ReplicasInfo


@dataclasses.dataclass(frozen=True, slots=True)
class ReplicaState:
    """One replica, as the controller and the replica itself describe it."""

    id: int
    address: str
    in_sync: bool
    alive: bool
    epoch: int | None
    """Epoch of the end of its log; None if neither knows."""
    max_offset: int | None
    """End of its log; of its last heartbeat if it is dead."""
    missing: int | None
    """Bytes that another replica has beyond it; more if a dead one wrote after its last heartbeat."""
    effect: str
    """What an election of this replica does, and loses."""

    @property
    def position(self) -> tuple[int, int] | None:
        if self.epoch is None or self.max_offset is None:
            return None
        return self.epoch, self.max_offset


@dataclasses.dataclass(frozen=True, slots=True)
class FailoverReport:
    """The state of one broker group, in words."""

    broker_name: str
    master: int | None
    master_address: str
    master_epoch: int
    sync_state_set_epoch: int
    has_master: bool
    """A master that is alive."""
    reason: str
    advice: tuple[str, ...]
    """Steps that are safe, the best one first; then those that lose messages, which say so."""
    replicas: tuple[ReplicaState, ...]


def failover_report(
    name: str, info: ReplicasInfo, logs: Mapping[int, EpochEntryCache], *, unclean: bool | None
) -> FailoverReport:
    """Explain a group. ``logs`` are of queried replicas, ``unclean`` is the controller's setting if known."""
    replicas = _replicas(info, logs, unclean=unclean)
    master = next((one for one in replicas if one.id == info.master_broker_id), None)
    has_master = master is not None and master.alive
    reason, advice = _explained(name, info, replicas, master)
    return FailoverReport(
        name,
        info.master_broker_id,
        info.master_address or "",
        info.master_epoch or 0,
        info.sync_state_set_epoch or 0,
        has_master,
        reason,
        tuple(advice),
        replicas,
    )


def _replicas(
    info: ReplicasInfo, logs: Mapping[int, EpochEntryCache], *, unclean: bool | None
) -> tuple[ReplicaState, ...]:
    found = [_state(one, logs, in_sync=True) for one in info.in_sync_replicas]
    found += [_state(one, logs, in_sync=False) for one in info.not_in_sync_replicas]
    longest = max((one.max_offset for one in found if one.max_offset is not None), default=None)
    any_alive = any(one.in_sync and one.alive for one in found)
    states = []
    for one in sorted(found, key=lambda state: state.id):
        missing = None if longest is None or one.max_offset is None else longest - one.max_offset
        known = dataclasses.replace(one, missing=missing)
        effect = _effect(known, info.master_broker_id, any_in_sync=any_alive, unclean=unclean)
        states.append(dataclasses.replace(known, effect=effect))
    return tuple(states)


def _state(one: ReplicaIdentity, logs: Mapping[int, EpochEntryCache], *, in_sync: bool) -> ReplicaState:
    epoch, max_offset = one.epoch, one.max_offset
    log = logs.get(one.broker_id or 0)
    if log is not None:
        max_offset = log.max_offset
        epoch = log.epoch_list[-1].epoch if log.epoch_list else epoch
    return ReplicaState(
        one.broker_id or 0, one.broker_address or "", in_sync, bool(one.alive), epoch, max_offset, None, ""
    )


def _effect(one: ReplicaState, master: int | None, *, any_in_sync: bool, unclean: bool | None) -> str:
    if one.id == master and one.alive:
        return "is the master"
    if not one.alive:
        return "refused: it is dead"
    if one.in_sync:
        return "becomes master, loses nothing that was acknowledged by the set"
    if any_in_sync:
        return "refused: it is not in sync, and another replica that is alive is"
    lost = "an unknown number of bytes" if one.missing is None else f"at least {one.missing} bytes"
    if unclean:
        return f"becomes master, LOSES {lost}"
    return f"refused: it is not in sync; with enableElectUncleanMaster=true it LOSES {lost}"


def _explained(
    name: str, info: ReplicasInfo, replicas: tuple[ReplicaState, ...], master: ReplicaState | None
) -> tuple[str, list[str]]:
    if not replicas:
        return "the controller knows no replica of it", ["start its brokers with enableControllerMode=true"]
    if master is not None and master.alive:
        return _with_master(replicas, master)
    candidates = [one for one in replicas if one.in_sync and one.alive]
    if master is not None:
        lost = f"master {master.id} ({master.address}) is dead"
    elif not info.master_epoch:
        return (
            "no broker of it has requested its first election yet",
            ["wait until one of its brokers has registered: brokers request the election themselves"],
        )
    else:
        lost = f"the group has had no master since epoch {info.master_epoch} began"
    if candidates:
        best = max(candidates, key=lambda one: (one.position or (0, 0), -one.id))
        return (
            f"{lost}, and replica {best.id} is in sync and alive: an election is due",
            [
                "wait some seconds: the controller elects by itself",
                f"or: orbitmq controller elect {name} {best.id}; it loses nothing that was acknowledged by the set",
            ],
        )
    return _without_candidate(lost, replicas)


def _with_master(replicas: tuple[ReplicaState, ...], master: ReplicaState) -> tuple[str, list[str]]:
    others = [one for one in replicas if one.in_sync and one.id != master.id]
    text = f"master {master.id} ({master.address}) is alive"
    if any(one.alive for one in others):
        ready = ", ".join(str(one.id) for one in others if one.alive)
        return f"{text}; if it dies, a replica in sync takes over: {ready}", []
    lacking = [one for one in replicas if one.id != master.id]
    if not lacking:
        return f"{text}, and is the only replica: if it dies, the group has none until it returns", [
            "start a second broker of this name with enableControllerMode=true"
        ]
    advice = [f"start replica {one.id} ({one.address}): it is dead" for one in lacking if not one.alive]
    advice += [
        f"wait until replica {one.id} ({one.address}) has caught up: it is alive and not in sync"
        for one in lacking
        if one.alive
    ]
    return f"{text}, and no other replica is in sync: if it dies, the group has none until it returns", advice


def _without_candidate(lost: str, replicas: tuple[ReplicaState, ...]) -> tuple[str, list[str]]:
    in_sync = [one for one in replicas if one.in_sync]
    alive = [one for one in replicas if one.alive]
    if not in_sync:
        reason = f"{lost}, and the set of replicas in sync is empty: its members were cleaned from the controller"
    else:
        names = ", ".join(str(one.id) for one in in_sync)
        reason = f"{lost}, and no replica in sync is alive (in sync: {names}): the others may lack messages"
    advice = [
        f"start replica {one.id} ({one.address}): it has everything, and becomes master without loss"
        for one in in_sync
    ]
    if alive:
        best = max(alive, key=lambda one: (one.position or (0, 0), -one.id))
        lost_bytes = "an unknown number of" if best.missing is None else f"at least {best.missing}"
        advice.append(
            "only if none of these can come back: set enableElectUncleanMaster=true at the controller (orbitmq "
            f"controller config set), which then elects replica {best.id} within seconds; set it back to false; "
            f"this LOSES {lost_bytes} bytes of messages for ever"
        )
    elif in_sync:
        advice.append("no replica at all is alive: nothing else can be done")
    return reason, advice
