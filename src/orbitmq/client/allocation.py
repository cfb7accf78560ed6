"""Who in a group gets which queues: RocketMQ's six strategies, with the answers of the Java client.

Every member of a group works its share out for itself, so all must see the same sorted lists and use the same
strategy; nothing on the wire checks that. An exception from a strategy means that nothing changes this time.
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
    """How queues are shared out."""

    @property
    def name(self) -> str:
        """What the strategy is called in requests."""

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str], /
    ) -> list[MessageQueue]:
        """The queues of one member. Both lists are sorted. Raises InvalidMessageError."""


class MachineRoomResolver(Protocol):
    """Says where things are, for ``AllocateMachineRoomNearby``."""

    def broker_deploy_in(self, queue: MessageQueue) -> str:
        """The room of a queue's broker."""

    def consumer_deploy_in(self, client_id: str) -> str:
        """The room of a client."""


class AllocateAveragely:
    """Neighbouring queues to each member; the first members get one more where it does not come out even."""

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
    """Queues are dealt out like cards."""

    name = "AVG_BY_CIRCLE"

    def allocate(
        self, group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]
    ) -> list[MessageQueue]:
        if not _is_member(group, client_id, queues, client_ids):
            return []
        return list(queues[client_ids.index(client_id) :: len(client_ids)])


class AllocateByConfig:
    """Always the queues that were given, whoever else there is."""

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
            # What is left over comes from the end, unlike with AVG.
            mine.append(wanted[index + share * len(client_ids)])
        return mine

    def _is_in_rooms(self, broker_name: str) -> bool:
        # Java's split forgets empty parts at the end.
        parts = broker_name.rstrip("@").split("@")
        return len(parts) == 2 and parts[0] in self.rooms


class AllocateMachineRoomNearby:
    """Queues go to members in their own room; those of a room without members, to all."""

    def __init__(self, inner: Strategy, resolver: MachineRoomResolver) -> None:
        """``inner`` shares out the queues of each room."""
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
    """Few queues move when a member comes or goes: each belongs to the next member on a ring of hashes."""

    name = "CONSISTENT_HASH"

    def __init__(
        self, virtual_nodes: int = VIRTUAL_NODES, hash_function: Callable[[str], int] | None = None
    ) -> None:
        """``virtual_nodes`` is how many places a member has on the ring."""
        if virtual_nodes < 0:
            raise InvalidMessageError(f"a member cannot have {virtual_nodes} places on the ring")
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
        places = sorted(ring)
        mine = []
        for queue in queues:
            place = bisect.bisect_left(places, self._hash(_queue_text(queue)))
            if ring[places[place % len(places)]] == client_id:
                mine.append(queue)
        return mine

    def _ring(self, client_ids: Sequence[str]) -> dict[int, str]:
        ring: dict[int, str] = {}
        for client_id in client_ids:
            # Where an id is there twice, its second places follow on its first ones.
            taken = sum(owner == client_id for owner in ring.values()) if client_ids.count(client_id) > 1 else 0
            for number in range(taken, taken + self._virtual_nodes):
                ring[self._hash(f"{client_id}-{number}")] = client_id
        return ring


def md5_hash(text: str) -> int:
    """The first four bytes of the MD5 of a text, as the ring of the Java client has them."""
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


def java_order(text: str) -> bytes:
    """A key that sorts texts as Java does: by UTF-16 units. All members of a group have to sort alike."""
    return text.encode("utf-16-be", "surrogatepass")


def _queue_text(queue: MessageQueue) -> str:
    """How Java writes a queue."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def _is_member(group: str, client_id: str, queues: Sequence[MessageQueue], client_ids: Sequence[str]) -> bool:
    """Whether a client is one of those that share. One that is not yet known as a member gets nothing."""
    if not client_id:
        raise InvalidMessageError(f"a member of {group} has no client id")
    if not queues:
        raise InvalidMessageError(f"there is no queue to share out in {group}")
    if not client_ids:
        raise InvalidMessageError(f"there is nobody in {group} to share queues")
    return client_id in client_ids


def _by_room(items: Sequence[Item], room_of: Callable[[Item], str]) -> dict[str, list[Item]]:
    rooms: dict[str, list[Item]] = {}
    for item in items:
        room = room_of(item)
        if not room:
            raise InvalidMessageError(f"the machine room of {item} is not known")
        rooms.setdefault(room, []).append(item)
    return rooms
