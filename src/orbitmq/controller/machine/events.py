"""Events: the only changes of broker groups, and their records (int16 event id, JSON) as in RocketMQ."""

from __future__ import annotations

import dataclasses
import enum
import struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

from orbitmq.controller.machine.group import FIRST_ID, BrokerGroup, Replica
from orbitmq.platform.errors import StoreDamagedError

if TYPE_CHECKING:
    from collections.abc import Callable

_ID = struct.Struct(">h")


class EventType(enum.IntEnum):
    """Event ids of RocketMQ's log. 4 is an empty read event, which this controller does not need."""

    ALTER_SYNC_STATE_SET = 1
    APPLY_BROKER_ID = 2
    ELECT_MASTER = 3
    CLEAN_BROKER_DATA = 5
    UPDATE_BROKER_ADDRESS = 6


@dataclasses.dataclass(frozen=True, slots=True)
class SyncStateSetAltered:
    """The master has changed the set of replicas that have everything."""

    name: str
    members: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class BrokerIdApplied:
    """A broker has taken an id."""

    cluster: str
    name: str
    broker_id: int
    address: str
    check_code: str


@dataclasses.dataclass(frozen=True, slots=True)
class MasterElected:
    """A group has another master, or none; either begins a new epoch."""

    name: str
    master: int | None
    epoch: int


@dataclasses.dataclass(frozen=True, slots=True)
class BrokersCleaned:
    """Replicas are forgotten: these ids, or the whole group."""

    name: str
    ids: tuple[int, ...] | None


@dataclasses.dataclass(frozen=True, slots=True)
class BrokerAddressUpdated:
    """A replica has another address."""

    name: str
    broker_id: int
    address: str


Event: TypeAlias = SyncStateSetAltered | BrokerIdApplied | MasterElected | BrokersCleaned | BrokerAddressUpdated


def apply(group: BrokerGroup | None, event: Event) -> BrokerGroup | None:
    """The group after an event; None if it is gone. The event was decided on this state."""
    if isinstance(event, BrokerIdApplied):
        present = group or BrokerGroup(event.cluster, event.name)
        return dataclasses.replace(
            present,
            next_id=max(present.next_id, event.broker_id + 1),
            replicas=_with(present, event.broker_id, Replica(event.address, event.check_code)),
        )
    if group is None:
        raise StoreDamagedError(f"an event names the broker group {event.name}, which does not exist")
    if isinstance(event, SyncStateSetAltered):
        return dataclasses.replace(group, in_sync=tuple(sorted(event.members)), set_epoch=group.set_epoch + 1)
    if isinstance(event, MasterElected):
        if event.master is None:
            return dataclasses.replace(group, master=None, master_epoch=event.epoch)
        return dataclasses.replace(
            group,
            master=event.master,
            master_epoch=event.epoch,
            in_sync=(event.master,),
            set_epoch=group.set_epoch + 1,
        )
    if isinstance(event, BrokerAddressUpdated):
        known = group.replicas[event.broker_id]
        return dataclasses.replace(
            group, replicas=_with(group, event.broker_id, Replica(event.address, known.check_code))
        )
    return _cleaned(group, event)


def _with(group: BrokerGroup, broker_id: int, replica: Replica) -> MappingProxyType[int, Replica]:
    return MappingProxyType({**group.replicas, broker_id: replica})


def _cleaned(group: BrokerGroup, event: BrokersCleaned) -> BrokerGroup | None:
    removed = group.replicas.keys() if event.ids is None else set(event.ids)
    left = {id_: one for id_, one in group.replicas.items() if id_ not in removed}
    if not left:
        return None
    in_sync = tuple(id_ for id_ in group.in_sync if id_ in left)
    return dataclasses.replace(
        group,
        replicas=MappingProxyType(left),
        in_sync=in_sync,
        set_epoch=group.set_epoch + (in_sync != group.in_sync),
        master=group.master if group.master in left else None,
    )


# Records


def encode(event: Event) -> bytes:
    """The record of an event."""
    kind, value = _plain(event)
    return _ID.pack(kind) + orjson.dumps(value)


def decode(record: bytes) -> Event:
    """The event of a record. Raises StoreDamagedError."""
    try:
        (kind,) = _ID.unpack_from(record)
        return _READERS[EventType(kind)](orjson.loads(record[_ID.size :]))
    except (struct.error, ValueError, KeyError, TypeError) as error:
        raise StoreDamagedError(f"a controller event cannot be read: {error!r}") from error


def _plain(event: Event) -> tuple[EventType, dict[str, Any]]:
    if isinstance(event, SyncStateSetAltered):
        return EventType.ALTER_SYNC_STATE_SET, {"brokerName": event.name, "newSyncStateSet": event.members}
    if isinstance(event, BrokerIdApplied):
        return EventType.APPLY_BROKER_ID, {
            "clusterName": event.cluster,
            "brokerName": event.name,
            "brokerAddress": event.address,
            "newBrokerId": event.broker_id,
            "registerCheckCode": event.check_code,
        }
    if isinstance(event, MasterElected):
        return EventType.ELECT_MASTER, {
            "brokerName": event.name,
            "newMasterElected": event.master is not None,
            "newMasterBrokerId": event.master,
            "masterEpoch": event.epoch,
        }
    if isinstance(event, BrokerAddressUpdated):
        return EventType.UPDATE_BROKER_ADDRESS, {
            "brokerName": event.name,
            "brokerAddress": event.address,
            "brokerId": event.broker_id,
        }
    return EventType.CLEAN_BROKER_DATA, {"brokerName": event.name, "brokerIdSetToClean": event.ids}


def _applied(value: Any) -> BrokerIdApplied:
    broker_id = int(value["newBrokerId"])
    if broker_id < FIRST_ID:
        raise ValueError(f"broker id {broker_id}")
    return BrokerIdApplied(
        value["clusterName"], value["brokerName"], broker_id, value["brokerAddress"], value["registerCheckCode"]
    )


_READERS: dict[EventType, Callable[[Any], Event]] = {
    EventType.ALTER_SYNC_STATE_SET: lambda value: SyncStateSetAltered(
        value["brokerName"], tuple(value["newSyncStateSet"])
    ),
    EventType.APPLY_BROKER_ID: _applied,
    EventType.ELECT_MASTER: lambda value: MasterElected(
        value["brokerName"], value["newMasterBrokerId"], int(value["masterEpoch"])
    ),
    EventType.UPDATE_BROKER_ADDRESS: lambda value: BrokerAddressUpdated(
        value["brokerName"], int(value["brokerId"]), value["brokerAddress"]
    ),
    EventType.CLEAN_BROKER_DATA: lambda value: BrokersCleaned(
        value["brokerName"], None if value["brokerIdSetToClean"] is None else tuple(value["brokerIdSetToClean"])
    ),
}
