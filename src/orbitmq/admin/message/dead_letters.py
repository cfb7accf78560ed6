"""Dead letters: messages that groups have given up, listed, read and sent again."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.admin.errors import AdminError, NotFoundError
from orbitmq.admin.group.model import dead_letter_topic
from orbitmq.admin.message.delivery import original_topic
from orbitmq.admin.topic.model import TopicKind
from orbitmq.protocol.names import DLQ_PREFIX

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.admin.message.delivery import Delivery
    from orbitmq.admin.message.messages import Messages
    from orbitmq.admin.session import AdminSession
    from orbitmq.admin.topic.topics import Topics
    from orbitmq.client.message import ReceivedMessage


MAX_COUNTED = 10_000


@dataclasses.dataclass(frozen=True, slots=True)
class DeadLetterQueue:
    """The dead letter topic of a group."""

    group: str
    messages: int
    last_update_ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class Resent:
    """The result of sending one dead letter again: the new id, or the error."""

    offset_message_id: str
    topic: str
    message_id: str = ""
    error: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class DeadLetterFilter:
    """Which dead letters are wanted: those of one topic, one tag, one number of retries; without any, all.

    RocketMQ stores no other reason with them.
    """

    origin: str = ""
    """The topic that they were sent to."""
    tag: str | None = None
    """Empty for messages without a tag."""
    retries: int | None = None

    def matches(self, message: ReceivedMessage) -> bool:
        return (
            self.origin in {"", original_topic(message)}
            and self.tag in {None, message.tags or ""}
            and self.retries in {None, message.reconsume_times}
        )


ALL = DeadLetterFilter()


@dataclasses.dataclass(slots=True)
class DeadLetterKind:
    """Dead letters of the same topic and tag that were given up after the same number of retries."""

    origin: str
    tag: str
    retries: int
    count: int = 0
    first_ms: int = 0
    last_ms: int = 0


class DeadLetters:
    """Dead letter topics of groups."""

    def __init__(self, session: AdminSession, topics: Topics, messages: Messages, delivery: Delivery) -> None:
        self._session = session
        self._topics = topics
        self._messages = messages
        self._delivery = delivery

    async def all(self, *, cluster: str = "") -> list[DeadLetterQueue]:
        """All dead letter topics with their number of messages: one request per topic and broker."""
        names = await self._topics.names(cluster=cluster, kinds=(TopicKind.DEAD_LETTER,))

        async def count(topic: str) -> DeadLetterQueue:
            ends = (await self._topics.stats(topic)).offset_table.values()
            return DeadLetterQueue(
                topic.removeprefix(DLQ_PREFIX),
                sum(one.max_offset - one.min_offset for one in ends),
                max((one.last_update_timestamp for one in ends), default=0),
            )

        found = await self._session.from_all(names, count)
        return [found[name] for name in names]

    async def read(
        self,
        group: str,
        *,
        begin_ms: int | None = None,
        end_ms: int | None = None,
        limit: int | None = None,
        which: DeadLetterFilter = ALL,
    ) -> AsyncIterator[ReceivedMessage]:
        """The dead letters of a group. Raises NotFoundError if it never had any."""
        left = limit
        try:
            async for message in self._messages.read(dead_letter_topic(group), begin_ms=begin_ms, end_ms=end_ms):
                if not which.matches(message):
                    continue
                yield message
                if left is not None:
                    left -= 1
                    if not left:
                        return
        except NotFoundError as error:
            raise NotFoundError("dead letter topic of the group", group, "it has given up no message") from error

    async def kinds(
        self, group: str, *, begin_ms: int | None = None, end_ms: int | None = None, limit: int = MAX_COUNTED
    ) -> list[DeadLetterKind]:
        """Kinds of dead letters of a group, the most frequent first, of ``limit`` of them."""
        found: dict[tuple[str, str, int], DeadLetterKind] = {}
        async for message in self.read(group, begin_ms=begin_ms, end_ms=end_ms, limit=limit):
            key = (original_topic(message), message.tags or "", message.reconsume_times)
            kind = found.setdefault(key, DeadLetterKind(*key))
            stored = message.store_timestamp
            kind.count += 1
            kind.first_ms = min(kind.first_ms or stored, stored)
            kind.last_ms = max(kind.last_ms, stored)
        return sorted(found.values(), key=lambda kind: (-kind.count, kind.origin, kind.tag, kind.retries))

    async def resend(
        self,
        group: str,
        *,
        message_id: str = "",
        topic: str = "",
        begin_ms: int | None = None,
        end_ms: int | None = None,
        limit: int | None = None,
        which: DeadLetterFilter = ALL,
        dry_run: bool = False,
    ) -> list[Resent]:
        """Send dead letters again, to their original topic or to another: all, those of a time, or one.

        The dead letters stay where they are. A failure does not stop the others.
        """
        return [
            one
            async for one in self.resend_each(
                group,
                message_id=message_id,
                topic=topic,
                begin_ms=begin_ms,
                end_ms=end_ms,
                limit=limit,
                which=which,
                dry_run=dry_run,
            )
        ]

    async def resend_each(
        self,
        group: str,
        *,
        message_id: str = "",
        topic: str = "",
        begin_ms: int | None = None,
        end_ms: int | None = None,
        limit: int | None = None,
        which: DeadLetterFilter = ALL,
        dry_run: bool = False,
    ) -> AsyncIterator[Resent]:
        """The same, with each result when it is there."""
        count = 0
        async for message in self.read(group, begin_ms=begin_ms, end_ms=end_ms, which=which):
            if message_id and message_id not in _ids_of(message):
                continue
            yield await self._resend_one(message, topic, dry_run=dry_run)
            count += 1
            if limit is not None and count >= limit:
                return
        if message_id and not count:
            raise NotFoundError("dead letter", message_id, f"the group {group} has none with this id")

    async def _resend_one(self, message: ReceivedMessage, topic: str, *, dry_run: bool) -> Resent:
        target = topic or original_topic(message)
        if dry_run:
            return Resent(message.offset_message_id, target)
        try:
            receipt = await self._delivery.resend(message, topic=target)
        except AdminError as error:
            return Resent(message.offset_message_id, target, error=str(error))
        return Resent(message.offset_message_id, target, receipt.message_id)


def _ids_of(message: ReceivedMessage) -> set[str]:
    found = {message.message_id, message.offset_message_id}
    found.update(message.properties.get(name, "") for name in ("DLQ_ORIGIN_MESSAGE_ID", "ORIGIN_MESSAGE_ID"))
    return found
