"""Decisions on requests: the event that a request causes, or the response code with which it is refused.

Codes and the order of checks are those of RocketMQ 5.5.0.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.controller.machine.election import best, elected, next_epoch
from orbitmq.controller.machine.events import (
    BrokerAddressUpdated,
    BrokerIdApplied,
    BrokersCleaned,
    MasterElected,
    SyncStateSetAltered,
)
from orbitmq.controller.machine.group import FIRST_ID
from orbitmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.controller.machine.election import Replicas
    from orbitmq.controller.machine.events import Event
    from orbitmq.controller.machine.group import BrokerGroup

ANY_BROKER = -1
"""Broker id of an election that the controller itself triggers."""


@dataclasses.dataclass(frozen=True, slots=True)
class Decision:
    """Response code, remark, and the event to commit before the response is sent."""

    code: int = ResponseCode.SUCCESS
    remark: str | None = None
    event: Event | None = None


def next_broker_id(group: BrokerGroup | None) -> int:
    """Answer of GET_NEXT_BROKER_ID (1012). The id is free until a broker applies for it."""
    return FIRST_ID if group is None else group.next_id


@dataclasses.dataclass(frozen=True, slots=True)
class Application:
    """APPLY_BROKER_ID (1013)."""

    cluster: str
    name: str
    broker_id: int
    check_code: str


def apply_broker_id(group: BrokerGroup | None, request: Application) -> Decision:
    wanted = request.broker_id
    known = None if group is None else group.replicas.get(wanted)
    if known is not None and known.check_code == request.check_code:
        return Decision()
    if known is not None or not FIRST_ID <= wanted <= next_broker_id(group):
        name = request.name
        return Decision(
            ResponseCode.CONTROLLER_BROKER_ID_INVALID,
            f"Fail to apply brokerId: {wanted} in broker-set: {name}; get the next id and apply for that",
        )
    address = request.check_code.partition(";")[0]
    return Decision(event=BrokerIdApplied(request.cluster, request.name, wanted, address, request.check_code))


def register(group: BrokerGroup | None, name: str, broker_id: int, address: str) -> Decision:
    """REGISTER_BROKER (1003): a replica with an id is up."""
    known = None if group is None else group.replicas.get(broker_id)
    if known is None:
        return Decision(
            ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
            f"Broker-set: {name} or broker {broker_id} hasn't been registered in controller, "
            "broker need to get an id first",
        )
    if known.address == address:
        return Decision()
    return Decision(event=BrokerAddressUpdated(name, broker_id, address))


@dataclasses.dataclass(frozen=True, slots=True)
class Alteration:
    """ALTER_SYNC_STATE_SET (1001), as its master requests it."""

    name: str
    broker_id: int
    master_epoch: int
    set_epoch: int
    members: frozenset[int]


def alter_sync_state_set(group: BrokerGroup | None, request: Alteration, replicas: Replicas) -> Decision:
    refused = None if group is None else _refusal_of_alteration(group, request, replicas)
    if group is None:
        refused = (
            ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
            f"Broker-set {request.name} is not registered",
        )
    if refused is not None:
        return Decision(*refused)
    return Decision(event=SyncStateSetAltered(request.name, tuple(sorted(request.members))))


def _refusal_of_alteration(
    group: BrokerGroup, request: Alteration, replicas: Replicas
) -> tuple[ResponseCode, str] | None:
    members = request.members
    if members == set(group.in_sync):
        return (
            ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
            "The newSyncStateSet is equal with oldSyncStateSet, no needed to update syncStateSet",
        )
    if group.master != request.broker_id:
        return (
            ResponseCode.CONTROLLER_INVALID_MASTER,
            f"Rejecting alter syncStateSet request because the current leader is:{group.master}, "
            f"not {request.broker_id}",
        )
    if group.master_epoch != request.master_epoch:
        return (
            ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
            f"Rejecting alter syncStateSet request because the current master epoch is:{group.master_epoch}, "
            f"not {request.master_epoch}",
        )
    if group.set_epoch != request.set_epoch:
        return (
            ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
            f"Rejecting alter syncStateSet request because the current syncStateSet epoch is:{group.set_epoch}, "
            f"not {request.set_epoch}",
        )
    for broker_id in sorted(members):
        if broker_id not in group.replicas:
            return (
                ResponseCode.CONTROLLER_INVALID_REPLICAS,
                f"Rejecting alter syncStateSet request because the replica {broker_id} doesn't exist",
            )
        if replicas.report(broker_id) is None:
            return (
                ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
                f"Rejecting alter syncStateSet request because the replica {broker_id} isn't alive",
            )
    if request.broker_id not in members:
        return (
            ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
            f"Rejecting alter syncStateSet request because the master {request.broker_id} is not in it",
        )
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class ElectionRequest:
    """ELECT_MASTER (1002); of the controller itself with ``ANY_BROKER``."""

    name: str
    broker_id: int = ANY_BROKER
    designated: bool = False


def elect_master(
    group: BrokerGroup | None, request: ElectionRequest, replicas: Replicas, *, unclean: bool
) -> Decision:
    name, requester = request.name, request.broker_id
    if group is None or (requester != ANY_BROKER and requester not in group.replicas):
        return Decision(
            ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
            f"Broker-set: {name} or broker {requester} hasn't been registered in controller",
        )
    winner = _winner(group, request, replicas, unclean=unclean)
    if winner is None:
        if requester != ANY_BROKER:
            return Decision(ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, _no_candidate(group, replicas))
        event = None if group.master is None else MasterElected(name, None, group.master_epoch + 1)
        return Decision(ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE, _no_candidate(group, replicas), event)
    if winner == group.master:
        return Decision(
            ResponseCode.CONTROLLER_MASTER_STILL_EXIST,
            f"The old master {winner} of broker-set {name} still exists",
        )
    return Decision(event=MasterElected(name, winner, next_epoch(group, replicas)))


def _winner(group: BrokerGroup, request: ElectionRequest, replicas: Replicas, *, unclean: bool) -> int | None:
    requester = request.broker_id
    if group.master_epoch == 0:
        if requester == ANY_BROKER:
            return elected(group, replicas, designated=None, unclean=True)
        # The requester need not have sent a heartbeat before.
        return requester if request.designated else _longest(group.replicas, requester, replicas)
    master = group.master
    if request.designated and requester != ANY_BROKER:
        return elected(group, replicas, designated=requester, unclean=unclean)
    if master is not None and master == requester and replicas.report(master) is not None:
        # The master has restarted, and writes nothing now. RocketMQ keeps it. If it lost the end of its log in a
        # crash, an in-sync replica has more, and would be truncated to what the old master has left.
        return _longest(group.in_sync, master, replicas)
    if master is not None and not replicas.is_gone(master):
        return master
    return elected(group, replicas, designated=None, unclean=unclean)


def _longest(ids: Iterable[int], preferred: int, replicas: Replicas) -> int:
    """The living replica with the longest log; the preferred one unless another has more."""
    own = replicas.report(preferred)
    longest = best([broker_id for broker_id in ids if replicas.report(broker_id) is not None], replicas)
    other = None if longest is None else replicas.report(longest)
    if longest is None or other is None or own is None:
        return preferred
    return longest if other.position > own.position else preferred


def _no_candidate(group: BrokerGroup, replicas: Replicas) -> str:
    alive = [broker_id for broker_id in sorted(group.replicas) if replicas.report(broker_id) is not None]
    return (
        f"Failed to elect a new master of broker-set {group.name}: in sync are {list(group.in_sync)}, "
        f"alive are {alive}"
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Cleaning:
    """CLEAN_BROKER_DATA (1011)."""

    name: str
    ids: frozenset[int] | None
    """None is the whole group."""
    living_too: bool


def clean_broker_data(group: BrokerGroup | None, request: Cleaning, replicas: Replicas) -> Decision:
    refused = ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    if group is None:
        return Decision(refused, f"Broker-set {request.name} is not registered, nothing to clean")
    if not request.living_too:
        if request.ids is None and group.master is not None:
            return Decision(refused, f"Broker-set {request.name} has the master {group.master}; stop it first")
        listed = group.replicas if request.ids is None else request.ids
        alive = sorted(broker_id for broker_id in listed if replicas.report(broker_id) is not None)
        if alive:
            return Decision(
                refused,
                f"Brokers {alive} of broker-set {request.name} are alive; stop them first, or clean living too",
            )
    if request.ids is None:
        return Decision(event=BrokersCleaned(request.name, None))
    ids = tuple(sorted(request.ids & group.replicas.keys()))
    if not ids:
        return Decision(refused, f"Broker-set {request.name} has none of the brokers {sorted(request.ids)}")
    return Decision(event=BrokersCleaned(request.name, ids))
