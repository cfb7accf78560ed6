"""Allocation of queues to the members of a group: RocketMQ's six strategies, with the results of the Java client.

Every member computes its own share, so all need the same sorted lists and the same strategy; nothing on the wire
checks that. If a strategy raises an exception, the member keeps its queues.
"""

from __future__ import annotations

import bisect
import hashlib
from typing import TYPE_CHECKING, Protocol, TypeVar

from orbitmq.client.errors import InvalidMessageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from orbitmq.protocol.bodies import MessageQueue

VIRTUAL_NODES = 10

Item = TypeVar("Item")


class Strategy(Protocol):
    """Strategy that allocates queues to members."""

    @property
    def name(self) -> str:
        """Name of the strategy in requests."""

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
    ) -> list[MessageQueue]:
        """The queues of one member. Both lists are sorted. Raises InvalidMessageError."""


class MachineRoomResolver(Protocol):
    """Machine rooms of brokers and clients, for ``AllocateMachineRoomNearby``."""

    def broker_deploy_in(self, queue: MessageQueue) -> str:
        """Room of a queue's broker."""

    def consumer_deploy_in(self, client_id: str) -> str:
        """Room of a client."""


class AllocateAveragely:
    """Neighbouring queues to each member. The first members get one more if the division leaves a rest."""

    name = "AVG"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not _is_member(group, client_id, queues, client_ids):
            return []
        index = client_ids.index(client_id)
        share, rest = divmod(len(queues), len(client_ids))
        start = index * share + min(index, rest)
        return list(queues[start : start + share + (index < rest)])


class AllocateAveragelyByCircle:
    """Queues to members round robin."""

    name = "AVG_BY_CIRCLE"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not _is_member(group, client_id, queues, client_ids):
            return []
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


class AllocateByConfig:
    """A fixed list of queues, whatever other members exist."""

    name = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self.queues = list(queues)

    def allocate(
        self,
        _group: str,
        _client_id: str,
        _queues: Sequence[MessageQueue],
        _client_ids: Sequence[str],
    ) -> list[MessageQueue]:
        return list(self.queues)


class AllocateByMachineRoom:
    """Only queues of brokers in the given rooms, whose names are ``room@broker``."""

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Iterable[str]) -> None:
        self.rooms = frozenset(rooms)

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not _is_member(group, client_id, queues, client_ids):
            return []
        wanted = [queue for queue in queues if self._is_in_rooms(queue.broker_name)]
        index = client_ids.index(client_id)
        share, rest = divmod(len(wanted), len(client_ids))
        mine = wanted[share * index : share * (index + 1)]
        if index < rest:
            # The rest comes from the end, unlike with AVG.
            mine.append(wanted[index + share * len(client_ids)])
        return mine

    def _is_in_rooms(self, broker_name: str) -> bool:
        # Java's split drops empty parts at the end.
        parts = broker_name.rstrip("@").split("@")
        return len(parts) == 2 and parts[0] in self.rooms


class AllocateMachineRoomNearby:
    """Queues to members in the same room. Queues of a room without members are shared by all."""

    def __init__(self, inner: Strategy, resolver: MachineRoomResolver) -> None:
        """``inner`` allocates the queues of each room."""
        self._inner = inner
        self._resolver = resolver

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self._inner.name}"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not _is_member(group, client_id, queues, client_ids):
            return []
        queues_of = _by_room(queues, self._resolver.broker_deploy_in)
        members_of = _by_room(client_ids, self._resolver.consumer_deploy_in)
        own_room = self._resolver.consumer_deploy_in(client_id)
        mine: list[MessageQueue] = []
        if own_room in queues_of:
            mine += self._inner.allocate(group, client_id, queues_of.pop(own_room), members_of[own_room])
        for room in sorted(queues_of, key=java_order):
            if room not in members_of:
                mine += self._inner.allocate(group, client_id, queues_of[room], client_ids)
        return mine


class AllocateConsistentHash:
    """Consistent hashing: few queues move when a member joins or leaves."""

    name = "CONSISTENT_HASH"

    def __init__(
        self, virtual_nodes: int = VIRTUAL_NODES, hash_function: Callable[[str], int] | None = None
    ) -> None:
        """``virtual_nodes`` is the number of positions per member on the ring."""
        if virtual_nodes < 0:
            raise InvalidMessageError(f"virtual_nodes must be 0 or more, not {virtual_nodes}")
        self._virtual_nodes = virtual_nodes
        self._hash = hash_function or md5_hash

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not _is_member(group, client_id, queues, client_ids):
            return []
        ring = self._ring(client_ids)
        if not ring:
            return []
        positions = sorted(ring)
        mine = []
        for queue in queues:
            index = bisect.bisect_left(positions, self._hash(_queue_text(queue)))
            if ring[positions[index % len(positions)]] == client_id:
                mine.append(queue)
        return mine

    def _ring(self, client_ids: Sequence[str]) -> dict[int, str]:
        ring: dict[int, str] = {}
        for client_id in client_ids:
            # The second positions of a duplicate id follow its first ones.
            taken = sum(owner == client_id for owner in ring.values()) if client_ids.count(client_id) > 1 else 0
            for number in range(taken, taken + self._virtual_nodes):
                ring[self._hash(f"{client_id}-{number}")] = client_id
        return ring


def md5_hash(text: str) -> int:
    """First four bytes of the MD5 of a text, as in the Java client."""
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def java_order(text: str) -> bytes:
    """Sort key for the order of Java strings, by UTF-16 units: all members of a group must sort alike."""
    return text.encode("utf-16-be", "surrogatepass")


def _queue_text(queue: MessageQueue) -> str:
    """Java's ``toString`` of a queue."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def _is_member(group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> bool:
    """True if a client is a known member. Other clients get no queues."""
    if not client_id:
        raise InvalidMessageError(f"empty client id in the group {group}")
    if not queues:
        raise InvalidMessageError(f"no queues to allocate in the group {group}")
    if not client_ids:
        raise InvalidMessageError(f"no members in the group {group}")
    return client_id in client_ids


def _by_room(items: Sequence[Item], room_of: Callable[[Item], str]) -> dict[str, list[Item]]:
    rooms: dict[str, list[Item]] = {}
    for item in items:
        room = room_of(item)
        if not room:
            raise InvalidMessageError(f"no machine room is known for {item}")
        rooms.setdefault(room, []).append(item)
    return rooms
