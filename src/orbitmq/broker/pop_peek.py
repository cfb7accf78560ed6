"""PEEK_MESSAGE: what a group would get by a pop, without getting it."""

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.pop import pop_retry_topic
from orbitmq.remoting.processing import RequestRefusedError, fields_of, handler_of
from orbitmq.store import GetStatus

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.pop_checks import PopChecks
    from orbitmq.broker.pop_offsets import PopOffsets
    from orbitmq.broker.stats import BrokerStats
    from orbitmq.broker.topics import TopicTable
    from orbitmq.protocol.command import Command
    from orbitmq.remoting import Connection, Handler
    from orbitmq.store import MessageStore

RETRIES_FIRST = 5
"""One in so many looks at messages that came again before it looks at the topic."""


class PopPeeks:
    """Tools look."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        checks: PopChecks,
        places: PopOffsets,
        stats: BrokerStats,
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._checks = checks
        self._places = places
        self._stats = stats
        self.draw: Callable[[], int] = functools.partial(random.randrange, 100)
        """Decides with which queue a look begins, and whether with messages that came again."""

    @property
    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.PEEK_MESSAGE: handler_of(self.peek)}

    def peek(self, request: Command, connection: Connection) -> Command:
        fields = fields_of(request)
        said = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}
        topic, group, queue_id = fields["topic"], fields["consumerGroup"], fields["queueId"]
        try:
            self._checks.check_permission("peeking")
            config = self._checks.check(topic, group, queue_id, connection.remote_address)
        except RequestRefusedError as error:
            return request.response(error.code, ext_fields=said, remark=str(error))
        draw = self.draw()
        queues = config.read_queue_nums
        places = [(topic, (draw + at) % queues) for at in range(queues)] if queue_id < 0 else [(topic, queue_id)]
        retry_topic = pop_retry_topic(topic, group, v2=self._config.enable_retry_topic_v2)
        retry_config = self._topics.get(retry_topic)
        retries = [] if retry_config is None else [(retry_topic, at) for at in range(retry_config.read_queue_nums)]
        is_first = draw % RETRIES_FIRST == 0
        if is_first:
            places = retries + places
        found: list[memoryview] = []
        count, rest = self._look(places, group, fields["maxMsgNums"], found)
        if not is_first and count < fields["maxMsgNums"]:
            more, rest_of_retries = self._look(retries, group, fields["maxMsgNums"] - count, found)
            count, rest = count + more, rest + rest_of_retries
        said["restNum"] = str(rest)
        if not count:
            return request.response(
                ResponseCode.PULL_NOT_FOUND, ext_fields=said, remark=GetStatus.NO_MESSAGE_IN_QUEUE.value
            )
        body = b"".join(found)
        self._stats.got(group, topic, max(queue_id, 0), count, len(body))
        return request.response(ResponseCode.SUCCESS, ext_fields=said, remark=GetStatus.FOUND.value, body=body)

    def _look(
        self, places: list[tuple[str, int]], group: str, most: int, found: list[memoryview]
    ) -> tuple[int, int]:
        """Add messages of these queues; how many they are, and how many the queues have for the group."""
        count = rest = 0
        for topic, queue_id in places:
            offset = self._places.look_at(topic, group, queue_id)
            rest += max(self._store.max_offset(topic, queue_id) - offset, 0)
            if count >= most:
                continue
            result = self._store.get(topic, queue_id, offset, most - count)
            if result.status in {GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY}:
                result = self._store.get(topic, queue_id, result.next_begin_offset, most - count)
            found += result.slices
            count += result.count
        return count, rest
