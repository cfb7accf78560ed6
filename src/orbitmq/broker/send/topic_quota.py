"""Topic quota: sends per second to one topic (``maxSendsPerSecondOfTopic``), which RocketMQ does not have."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from orbitmq.auth.quotas.quota import Quota
from orbitmq.platform.limit_counts import Limit, count_refusal
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.header import EXT_FIELDS
from orbitmq.remoting.error_responses import remark_response

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.platform.clock import Clock
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Answer, Connection, Handler

_TOPIC_FIELDS = {
    int(RequestCode.SEND_MESSAGE): "topic",
    int(RequestCode.SEND_MESSAGE_V2): "b",
    int(RequestCode.SEND_BATCH_MESSAGE): "b",
}


def with_topic_quota(
    handlers: Mapping[int, Handler], config: BrokerConfig, topics: Container[str], clock: Clock
) -> dict[int, Handler]:
    """The handlers, those of sends behind the quota. A batch counts as one.

    Only existing ``topics`` are counted: the names of others are the sender's, and creating them has its own limit.
    """
    if not config.max_sends_per_second_of_topic:
        return dict(handlers)
    quota = Quota(lambda: config.max_sends_per_second_of_topic, clock.now_ms)

    def limited(handler: Handler, field: str) -> Handler:
        @functools.wraps(handler)
        def handle(connection: Connection, header: Header, body: bytes, serialize_type: int) -> Answer:
            topic = header[EXT_FIELDS].get(field, "")
            if topic in topics and not quota.admits(topic):
                count_refusal(Limit.SENDS_OF_TOPIC)
                remark = (
                    f"[FLOW CONTROL] topic {topic} got more than {config.max_sends_per_second_of_topic} sends in a "
                    "second (maxSendsPerSecondOfTopic): broker busy, send again later"
                )
                return remark_response(header, serialize_type, ResponseCode.SYSTEM_BUSY, remark)
            return handler(connection, header, body, serialize_type)

        return handle

    return {
        code: limited(handler, _TOPIC_FIELDS[code]) if code in _TOPIC_FIELDS else handler
        for code, handler in handlers.items()
    }
