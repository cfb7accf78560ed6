"""Stored messages of a topic, read once: the last ones, or those of a time range, in the order of storing."""

import heapq
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.cli.messages.queue_choice import QueueChoice
from orbitmq.cli.messages.topic_queues import BEGINNING, END

if TYPE_CHECKING:
    from orbitmq.client.instance.instance import ClientInstance
    from orbitmq.client.message import ReceivedMessage
    from orbitmq.client.query.queue_offsets import Bounds
    from orbitmq.client.query.range_reader import RangeReader
    from orbitmq.protocol.bodies import MessageQueue


class Wanted(NamedTuple):
    """Which messages of a topic."""

    topic: str
    queues: QueueChoice
    begin: str | float
    """``beginning``, ``end``, or seconds since 1970."""
    last: int | None
    """The last ones, in the place of ``begin``."""
    tags: str | None
    matches: Callable[[bytes], bool] | None
    """The filter, on the stored properties."""


class Stored:
    """Messages that were stored when the reading began."""

    def __init__(self, instance: "ClientInstance", wanted: Wanted) -> None:
        self._instance = instance
        self._wanted = wanted
        self.ends: dict[MessageQueue, int] = {}
        """Where to go on: the offset behind each queue."""

    async def messages(self) -> AsyncIterator["ReceivedMessage"]:
        """The messages, oldest first. Raises OrbitMQError, RemotingError."""
        from orbitmq.client.query.queue_offsets import bounds  # noqa: PLC0415
        from orbitmq.client.query.range_reader import QueueRange, RangeReader  # noqa: PLC0415

        wanted = self._wanted
        found = await bounds(self._instance, wanted.topic)
        chosen = wanted.queues.of(found)
        self.ends = {queue: found[queue].max for queue in chosen}
        reader = RangeReader(self._instance, expression=wanted.tags or "*")
        sources = [
            self._of_queue(reader, QueueRange(queue, await self._begin(queue, found[queue]), self.ends[queue]))
            for queue in sorted(chosen)
        ]
        merged = _merged(sources)
        if wanted.last is None:
            async for message in merged:
                yield message
            return
        newest: list[tuple[int, int, int, ReceivedMessage]] = []
        number = 0
        async for message in merged:
            number += 1
            keep = heapq.heappush if len(newest) < wanted.last else heapq.heappushpop
            keep(newest, (*_stored(message), number, message))
        for entry in sorted(newest, key=lambda entry: entry[:3]):
            yield entry[3]

    async def _begin(self, queue: "MessageQueue", ends: "Bounds") -> int:
        from orbitmq.client.query.queue_offsets import offset_at  # noqa: PLC0415

        wanted = self._wanted
        if wanted.last is not None:
            # With a filter, the last matching ones may be anywhere.
            return ends.min if wanted.matches is not None else max(ends.min, ends.max - wanted.last)
        if wanted.begin == BEGINNING:
            return ends.min
        if wanted.begin == END:
            return ends.max
        return min(await offset_at(self._instance, queue, round(float(wanted.begin) * 1000)), ends.max)

    async def _of_queue(self, reader: "RangeReader", of: object) -> AsyncIterator["ReceivedMessage"]:
        from orbitmq.client.message import ReceivedMessage  # noqa: PLC0415
        from orbitmq.client.query.range_reader import QueueRange  # noqa: PLC0415
        from orbitmq.protocol.message.record import iter_records  # noqa: PLC0415

        assert isinstance(of, QueueRange)
        matches = self._wanted.matches
        if of.start >= of.end:
            return
        async for chunk in reader.chunks(of):
            for record in iter_records(chunk.body):
                if chunk.first <= record.queue_offset < chunk.last and (
                    matches is None or matches(record.properties)
                ):
                    yield ReceivedMessage(record, of.queue.broker_name)


def _stored(message: "ReceivedMessage") -> tuple[int, int]:
    """Sort key: the time of storing and, for those of one millisecond, the position in the log."""
    return message.store_timestamp, message.record.physical_offset


async def _merged(sources: list[AsyncIterator["ReceivedMessage"]]) -> AsyncIterator["ReceivedMessage"]:
    """The messages of all sources by the time of storing; within a source, in its order."""
    heads: list[tuple[int, int, int, ReceivedMessage]] = []
    for number, source in enumerate(sources):
        if (message := await anext(source, None)) is not None:
            heapq.heappush(heads, (*_stored(message), number, message))
    while heads:
        *_, number, message = heapq.heappop(heads)
        yield message
        if (following := await anext(sources[number], None)) is not None:
            heapq.heappush(heads, (*_stored(following), number, following))
