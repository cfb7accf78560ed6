"""Contents of brokers for assertions: messages, dead letters, offsets, and the unconsumed messages of a group.

Read from the brokers' own tables and stores, not over the network, and without changing them. Only the members of a
group are queried for their offsets, since they commit every few seconds only.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING

from orbitmq.broker.clients.callbacks import client_status
from orbitmq.client.message import ReceivedMessage
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.batch import split_record
from orbitmq.protocol.message.properties import find
from orbitmq.protocol.message.record import iter_records
from orbitmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, SCHEDULE_TOPIC
from orbitmq.remoting.processor import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from orbitmq.broker import Broker
    from orbitmq.protocol.message.record import Record

LOOK_SECONDS = 0.01
"""How often the tables are looked at while something is waited for."""

ASK_SECONDS = 1.0
"""How long a member may take to say how far it is. One that is busy has not consumed everything anyway."""

MAX_LISTED = 5
"""Queues that are named when a wait was in vain."""

_REAL_TOPIC = names.REAL_TOPIC.encode()


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Unconsumed:
    """Messages that a group has yet to consume."""

    queue: MessageQueue
    offset: int
    """How far the group is in the queue."""
    count: int

    def __str__(self) -> str:
        queue = self.queue
        if queue.topic == SCHEDULE_TOPIC:
            return f"{self.count} wait for another attempt"
        return (
            f"{self.count} in queue {queue.queue_id} of {queue.topic} on {queue.broker_name} from {self.offset} on"
        )


# Messages


def messages(brokers: Sequence[Broker], topic: str) -> list[ReceivedMessage]:
    """All messages of a topic in the order in which they were stored; none if there is no such topic."""
    found = [
        ReceivedMessage(record, broker.settings.broker.broker_name)
        for broker in brokers
        for queue_id in broker.store.queues.queue_ids(topic)
        for record in _records(broker, topic, queue_id)
    ]
    found.sort(key=_stored)
    return found


def dead_letters(brokers: Sequence[Broker], group: str) -> list[ReceivedMessage]:
    """The messages that a group has given up, under the topics that they were sent to."""
    found = messages(brokers, DLQ_PREFIX + group)
    for message in found:
        message.topic = message.properties.get(names.RETRY_TOPIC, message.topic)
    return found


def stored_messages(broker: Broker, topic: str, queue_id: int) -> Iterator[ReceivedMessage]:
    """The messages of one queue, in its order."""
    for record in _records(broker, topic, queue_id):
        yield ReceivedMessage(record, broker.settings.broker.broker_name)


def _stored(message: ReceivedMessage) -> tuple[int, str, int, int]:
    record = message.record
    return record.store_timestamp, message.broker_name, record.physical_offset, record.queue_offset


def _records(broker: Broker, topic: str, queue_id: int, offset: int = 0) -> Iterator[Record]:
    """The messages of a queue from an offset on."""
    store = broker.store
    offset = max(offset, store.min_offset(topic, queue_id))
    while offset < store.max_offset(topic, queue_id):
        found = store.get(topic, queue_id, offset)
        for part in found.slices:
            for record in iter_records(part):
                for message in split_record(record):
                    if message.queue_offset >= offset:
                        yield message
        offset = max(found.next_begin_offset, offset + 1)


# Groups


def consumer_offsets(brokers: Sequence[Broker], group: str) -> dict[MessageQueue, int]:
    """By queue, what a group has committed: the offset of the first message that it has not consumed."""
    return {
        MessageQueue(topic, broker.settings.broker.broker_name, queue_id): offset
        for broker in brokers
        for topic in sorted(broker.offsets.topics_of(group))
        for queue_id, offset in sorted(broker.offsets.of_group(group, topic).items())
    }


def unconsumed(
    brokers: Sequence[Broker], group: str, reported: Mapping[MessageQueue, int] | None = None
) -> list[Unconsumed]:
    """The unconsumed messages of a group in its topics, retries that are not due yet included.

    ``reported`` has the offsets of its members. Messages that do not match its filter do not count.
    """
    return sorted(left for broker in brokers for left in _unconsumed_of(broker, group, reported or {}))


def _unconsumed_of(broker: Broker, group: str, reported: Mapping[MessageQueue, int]) -> Iterator[Unconsumed]:
    name = broker.settings.broker.broker_name
    members = broker.clients.consumers.get(group)
    for topic in _topics_of(broker, group):
        wanted = None if members is None else members.filter_of(topic)
        for queue_id in broker.store.queues.queue_ids(topic):
            queue = MessageQueue(topic, name, queue_id)
            offset = max(broker.offsets.query(group, topic, queue_id), reported.get(queue, -1))
            left = _records(broker, topic, queue_id, offset)
            if wanted is not None and not wanted.matches_all:
                left = _matching(left, wanted.matches_properties)
            if count := sum(1 for _ in left):
                yield Unconsumed(queue, offset, count)
    retries = (RETRY_PREFIX + group).encode()
    for level in broker.schedule.levels.values():
        deferred = _records(broker, SCHEDULE_TOPIC, level.number - 1, level.offset)
        if count := sum(find(record.properties, _REAL_TOPIC) == retries for record in deferred):
            yield Unconsumed(MessageQueue(SCHEDULE_TOPIC, name, level.number - 1), level.offset, count)


def _matching(records: Iterator[Record], matches: Callable[[bytes], bool]) -> Iterator[Record]:
    return (record for record in records if matches(record.properties))


def _topics_of(broker: Broker, group: str) -> list[str]:
    members = broker.clients.consumers.get(group)
    subscribed = set() if members is None else set(members.subscriptions)
    return sorted(subscribed | broker.offsets.topics_of(group))


async def wait_until_consumed(brokers: Callable[[], Sequence[Broker]], group: str, seconds: float) -> None:
    """Wait until nothing is left for a group. Raises TimeoutError, which says what is.

    ``brokers`` gives those that run, which may change meanwhile.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    asking: asyncio.Task[dict[MessageQueue, int]] | None = None
    reported: dict[MessageQueue, int] = {}
    try:
        while True:
            if asking is not None and asking.done():
                reported, asking = asking.result(), None
            is_known = any(_topics_of(broker, group) for broker in brokers())
            left = unconsumed(brokers(), group, reported)
            if is_known and not left:
                return
            if asyncio.get_running_loop().time() >= deadline:
                raise TimeoutError(
                    f"the group {group!r} has not consumed everything in {seconds:g} s: {_why(left, is_known)}"
                )
            if asking is None:
                # Not waited for: a member may be slow to answer, and commit meanwhile.
                asking = asyncio.create_task(_offsets_of_members(brokers(), group))
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        if asking is not None:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)


def _why(left: list[Unconsumed], is_known: bool) -> str:
    if not is_known:
        return "no consumer of it was ever there"
    more = [f"and {len(left) - MAX_LISTED} more queues"] if len(left) > MAX_LISTED else []
    return ", ".join([*map(str, left[:MAX_LISTED]), *more])


async def _offsets_of_members(brokers: Sequence[Broker], group: str) -> dict[MessageQueue, int]:
    """The offsets that the members of a group report; those of the slowest if each reads everything."""
    reported: dict[MessageQueue, int] = {}
    for broker in brokers:
        members = broker.clients.consumers.get(group)
        if members is None:
            continue
        choose = min if members.is_broadcasting else max
        for topic in tuple(members.subscriptions):
            # A member that does not know the request, or is too busy to answer, commits by itself.
            with contextlib.suppress(RequestRefusedError, TimeoutError):
                async with asyncio.timeout(ASK_SECONDS):
                    status = await client_status(broker.clients, group, topic)
                tables = list(status.consumer_table.values())
                for queue in {queue for table in tables for queue in table}:
                    reported[queue] = choose(table.get(queue, -1) for table in tables)
    return reported
