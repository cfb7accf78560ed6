"""Liveness table: the last heartbeat of each broker, and which of them have stopped.

Each controller has its own, from the heartbeats that brokers send to all controllers; it is not shared or stored.
Time is an argument: milliseconds of a monotonic clock.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Hashable

    from orbitmq.controller.machine.election import Report

DEFAULT_TIMEOUT_MS = 10_000
"""Heartbeat timeout of brokers that announce none, as in RocketMQ."""

STALL_MS = 2000
"""A scan that is later than this shows that the controller itself was stopped, and heartbeats waited unread."""


class Member(NamedTuple):
    """Key of a broker: the id is the controller's."""

    cluster: str
    name: str
    id: int


@dataclasses.dataclass(slots=True)
class Heartbeat:
    """A broker that is alive."""

    address: str
    connection: Hashable
    at_ms: int
    timeout_ms: int
    report: Report

    @property
    def expires_ms(self) -> int:
        return self.at_ms + self.timeout_ms


class Liveness:
    """The table of one controller."""

    def __init__(self, max_brokers: int, now_ms: int) -> None:
        """``now_ms`` is the start: brokers get one timeout to be heard of before they count as gone."""
        self._max_brokers = max_brokers
        self._started_ms = self._scanned_ms = now_ms
        self._members: dict[Member, Heartbeat] = {}
        self._lost: dict[Member, Heartbeat] = {}
        """Last heartbeats of members that were alive and stopped, oldest first."""
        self._connections: dict[Hashable, set[Member]] = {}

    def __len__(self) -> int:
        return len(self._members)

    def heartbeat(self, member: Member, heartbeat: Heartbeat) -> bool:
        """Note a heartbeat; False if the table is full."""
        before = self._members.get(member)
        if before is None and len(self._members) >= self._max_brokers:
            return False
        if before is not None and before.connection is not heartbeat.connection:
            self._disconnect(member, before)
        self._members[member] = heartbeat
        self._connections.setdefault(heartbeat.connection, set()).add(member)
        self._lost.pop(member, None)
        return True

    def counts(self) -> dict[tuple[str, str], int]:
        """Living brokers by cluster and name."""
        return collections.Counter((member.cluster, member.name) for member in self._members)

    def of(self, member: Member) -> Heartbeat | None:
        """The last heartbeat of a broker that is alive."""
        return self._members.get(member)

    def last_of(self, member: Member) -> Heartbeat | None:
        """The last heartbeat of a broker, dead or alive."""
        return self._members.get(member) or self._lost.get(member)

    def is_gone(self, member: Member, now_ms: int) -> bool:
        """True for a broker that stopped, or that was not heard of in the first timeout."""
        if member in self._members:
            return False
        return member in self._lost or now_ms - self._started_ms >= DEFAULT_TIMEOUT_MS

    def disconnected(self, connection: Hashable) -> list[Member]:
        """The brokers whose last heartbeat came over a connection that is closed; they are gone."""
        lost = sorted(self._connections.get(connection, ()))
        for member in lost:
            self._remove(member)
        return lost

    def scan(self, now_ms: int, interval_ms: int) -> list[tuple[Member, Heartbeat]]:
        """The brokers past their timeout; they are gone.

        A scan that comes too late proves that the controller was stopped and no broker: the time that it missed is
        given to all of them.
        """
        missed = now_ms - self._scanned_ms - interval_ms
        self._scanned_ms = now_ms
        if missed > STALL_MS:
            self._started_ms += missed
            for heartbeat in self._members.values():
                heartbeat.at_ms += missed
        expired = sorted(
            (member for member, one in self._members.items() if one.expires_ms < now_ms),
        )
        return [(member, self._remove(member)) for member in expired]

    def _remove(self, member: Member) -> Heartbeat:
        heartbeat = self._members.pop(member)
        self._disconnect(member, heartbeat)
        self._lost[member] = heartbeat
        if len(self._lost) > self._max_brokers:
            del self._lost[next(iter(self._lost))]
        return heartbeat

    def _disconnect(self, member: Member, heartbeat: Heartbeat) -> None:
        members = self._connections[heartbeat.connection]
        members.discard(member)
        if not members:
            del self._connections[heartbeat.connection]


@dataclasses.dataclass(frozen=True, slots=True)
class GroupLiveness:
    """The part of the table that concerns one group, at one moment: what the state machine decides with."""

    liveness: Liveness
    cluster: str
    name: str
    now_ms: int

    def report(self, broker_id: int) -> Report | None:
        found = self.heartbeat(broker_id)
        return None if found is None else found.report

    def is_gone(self, broker_id: int) -> bool:
        return self.liveness.is_gone(Member(self.cluster, self.name, broker_id), self.now_ms)

    def last_heartbeat(self, broker_id: int) -> Heartbeat | None:
        """The last heartbeat of a replica, dead or alive."""
        return self.liveness.last_of(Member(self.cluster, self.name, broker_id))

    def heartbeat(self, broker_id: int) -> Heartbeat | None:
        """The last heartbeat of a replica that is alive."""
        return self.liveness.of(Member(self.cluster, self.name, broker_id))
