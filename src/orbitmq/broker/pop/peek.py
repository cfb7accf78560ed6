"""PEEK_MESSAGE: the messages that a pop would return, without a pop."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.pop_receipt import pop_retry_topic
from orbitmq.remoting.processor import RequestRefusedError, fields_of, handler_of
from orbitmq.store import GetStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.metadata.topics import TopicTable
    from orbitmq.broker.pop.inflight import PopOffsets
    from orbitmq.broker.pop.validation import PopChecks
    from orbitmq.broker.runtime import BrokerRuntime
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, Handler

PEEK_SECONDS = 0.008
"""Time that a peek may hold the event loop, all queues together."""

MANY_QUEUES = 100
"""There is always time for so many."""

RETRIES_FIRST = 5
"""One peek in so many reads the retry topic before the topic."""


class PopPeeks:
    """The processor of PEEK_MESSAGE, which tools send."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        topics: TopicTable,
        checks: PopChecks,
        pop_offsets: PopOffsets,
    ) -> None:
        self._config = runtime.config
        self._store = runtime.store
        self._topics = topics
        self._checks = checks
        self._pop_offsets = pop_offsets
        self._stats = runtime.stats
        self.draw: Callable[[], int] = functools.partial(runtime.random.randrange, 100)
        """Chooses the first queue of a peek, and whether retries come first."""

    @property
    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.PEEK_MESSAGE: handler_of(self.peek)}

    def peek(self, request: Command, connection: Connection) -> Command:
        fields = fields_of(request)
        response_fields = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}
        topic, group, queue_id = fields["topic"], fields["consumerGroup"], fields["queueId"]
        try:
            self._checks.check_permission("peeking")
            config = self._checks.check(topic, group, queue_id, connection.remote_address)
        except RequestRefusedError as error:
            return request.response(error.code, ext_fields=response_fields, remark=str(error))
        end = time.monotonic() + PEEK_SECONDS
        draw = self.draw()
        queues = config.read_queue_nums
        if queues > MANY_QUEUES:
            # There is no time for all of them, so each must be the first one at times.
            draw += self.draw() * queues // MANY_QUEUES
        to_read = [(topic, (draw + at) % queues) for at in range(queues)] if queue_id < 0 else [(topic, queue_id)]
        retry_topic = pop_retry_topic(topic, group, v2=self._config.enable_retry_topic_v2)
        retry_config = self._topics.get(retry_topic)
        retries = [] if retry_config is None else [(retry_topic, at) for at in range(retry_config.read_queue_nums)]
        retries_first = draw % RETRIES_FIRST == 0
        if retries_first:
            to_read = retries + to_read
        found: list[memoryview] = []
        count, rest = self._read(to_read, group, fields["maxMsgNums"], found, end)
        if not retries_first and count < fields["maxMsgNums"]:
            more, rest_of_retries = self._read(retries, group, fields["maxMsgNums"] - count, found, end)
            count, rest = count + more, rest + rest_of_retries
        response_fields["restNum"] = str(rest)
        if not count:
            return request.response(
                ResponseCode.PULL_NOT_FOUND, ext_fields=response_fields, remark=GetStatus.NO_MESSAGE_IN_QUEUE.value
            )
        body = b"".join(found)
        self._stats.got(group, topic, max(queue_id, 0), count, len(body))
        return request.response(
            ResponseCode.SUCCESS, ext_fields=response_fields, remark=GetStatus.FOUND.value, body=body
        )

    def _read(
        self, to_read: list[tuple[str, int]], group: str, max_count: int, found: list[memoryview], end: float
    ) -> tuple[int, int]:
        """Add messages of these queues to ``found``; returns their number, and how many the group has there."""
        count = rest = 0
        for topic, queue_id in to_read:
            if time.monotonic() >= end:
                break
            offset = self._pop_offsets.peek(topic, group, queue_id)
            rest += max(self._store.max_offset(topic, queue_id) - offset, 0)
            if count >= max_count:
                continue
            result = self._store.get(topic, queue_id, offset, max_count - count)
            if result.status in {GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY}:
                result = self._store.get(topic, queue_id, result.next_begin_offset, max_count - count)
            found += result.slices
            count += result.count
        return count, rest
