"""Clients and events of a cluster, for pages and REST."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.admin.errors import AdminError, InvalidRequestError, UnsupportedError
from orbitmq.admin.group.model import Member
from orbitmq.admin.session import decode
from orbitmq.protocol.broker_events import GET_BROKER_EVENTS, MAX_EVENTS, BrokerEvents, EventKind
from orbitmq.protocol.versions import version_name

if TYPE_CHECKING:
    from orbitmq.dashboard.clusters import ManagedCluster


@dataclasses.dataclass(frozen=True, slots=True)
class Event:
    """One event of one broker."""

    timestamp_ms: int
    broker_name: str
    address: str
    sequence: int
    kind: str
    subject: str
    detail: str


@dataclasses.dataclass(frozen=True, slots=True)
class Events:
    """Events of all brokers, newest first, and the brokers that keep none."""

    events: list[Event]
    without: list[str]


async def producers(cluster: ManagedCluster) -> dict[str, list[Member]]:
    """The members of all producer groups."""
    return await cluster.cache.get("producers", 5.0, cluster.admin.members.all_producers)


async def events(cluster: ManagedCluster, *, since_ms: int = 0, kinds: str = "", limit: int = 200) -> Events:
    """The newest events of all brokers. Raises InvalidRequestError; brokers of Apache keep no history."""
    wanted = [kind.strip().upper() for kind in kinds.split(",") if kind.strip()]
    unknown = [kind for kind in wanted if kind not in list(EventKind)]
    if unknown:
        raise InvalidRequestError(f"unknown kind of event {unknown[0]!r}: there are {', '.join(sorted(EventKind))}")
    fields = {"since": since_ms, "afterSequence": 0, "kinds": ",".join(wanted), "limit": min(limit, MAX_EVENTS)}
    brokers = {status.broker.address: status.broker.broker_name for status in await cluster.brokers()}

    async def fetch(address: str) -> BrokerEvents:
        return decode(BrokerEvents, await cluster.admin.session.call(address, GET_BROKER_EVENTS, fields), address)

    done, failed = await cluster.admin.session.gather(brokers, fetch)
    found = [
        Event(one.timestamp, brokers[address], address, one.sequence, one.kind, one.subject, one.detail)
        for address, answer in done.items()
        for one in answer.events
    ]
    found.sort(key=lambda one: (one.timestamp_ms, one.sequence), reverse=True)
    return Events(found[:limit], [_without(brokers[address], error) for address, error in failed.items()])


def _without(broker_name: str, error: AdminError) -> str:
    if isinstance(error, UnsupportedError):
        return f"{broker_name} keeps no history: it is not a broker of OrbitMQ"
    return f"{broker_name}: {error}"


MAX_GROUPS = 3000
"""Groups whose members are read for the list of consumers: one request per group and broker."""
CONSUMERS_SECONDS = 15.0


async def connected_consumers(cluster: ManagedCluster) -> dict[str, list[Member]]:
    """The members of all consumer groups that have some."""
    return await cluster.cache.get("consumers", CONSUMERS_SECONDS, lambda: _read_consumers(cluster))


async def _read_consumers(cluster: ManagedCluster) -> dict[str, list[Member]]:
    """One request per group and broker, within the session's limit of concurrent requests."""
    addresses = [status.broker.address for status in await cluster.brokers() if status.runtime is not None]
    groups = [group.name for group in await cluster.groups()][:MAX_GROUPS]
    pairs = [(group, address) for group in groups for address in addresses]
    done, _ = await cluster.admin.session.gather(
        pairs, lambda pair: cluster.admin.members.consumer_table(pair[1], pair[0])
    )
    found: dict[str, dict[str, Member]] = {}
    for (group, _address), table in done.items():
        for one in table.connection_set:
            member = Member(one.client_id, one.client_addr, one.language or "", version_name(max(one.version, 0)))
            found.setdefault(group, {})[member.client_id] = member
    return {group: sorted(members.values()) for group, members in sorted(found.items())}
