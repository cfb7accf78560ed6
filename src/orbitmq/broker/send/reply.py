"""SEND_REPLY_MESSAGE: the reply of a request-reply exchange, pushed at once to the client that sent the request.

The reply is pushed first, and stored like any message if ``storeReplyMessageEnable`` is set. The response to its
sender says whether the push succeeded.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.fast_decode import send_fields, send_v2_fields
from orbitmq.protocol.hosts import host_text
from orbitmq.protocol.java import decode_utf8
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.flags import COMPRESSED, COMPRESSION_MASK
from orbitmq.protocol.message.properties import find, with_property
from orbitmq.remoting import RemotingError
from orbitmq.remoting.errors import one_sentence
from orbitmq.remoting.processor import RequestRefusedError, handler_of
from orbitmq.store import AppendRefusedError, StoredMessage
from orbitmq.store.config import FlushDiskType

if TYPE_CHECKING:
    from orbitmq.broker.clients.registry import Clients
    from orbitmq.broker.runtime import BrokerRuntime
    from orbitmq.broker.send.flow_control import SendFlow
    from orbitmq.broker.send.processor import SendRequests
    from orbitmq.protocol.command.fast_decode import SendFields
    from orbitmq.remoting import Connection, Handler

log = logging.getLogger("orbitmq.broker")

PUSH_SECONDS = 10.0
"""Time-out of the push of a reply, as in RocketMQ."""

_REPLY_TO = names.REPLY_TO_CLIENT.encode()
_PUSHED_AT = names.PUSH_REPLY_TIME.encode()


class ReplyRequests:
    """SEND_REPLY_MESSAGE and SEND_REPLY_MESSAGE_V2."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        sends: SendRequests,
        clients: Clients,
        flow: SendFlow,
    ) -> None:
        self._config = config = runtime.config
        self._store = store = runtime.store
        self._sends = sends
        self._clients = clients
        self._stats = runtime.stats
        self._flow = flow
        self._clock = runtime.clock
        self._flushed = runtime.flushed
        self._is_sync_flush = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._fields = {
            names.TRACE_SWITCH: "true" if config.trace_on else "false",
            names.MESSAGE_REGION: config.region_id,
        }

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_REPLY_MESSAGE: handler_of(self.reply),
            RequestCode.SEND_REPLY_MESSAGE_V2: handler_of(self.reply),
        }

    async def reply(self, request: Command, connection: Connection) -> Command:
        """Push a reply to the client that waits for it, store it, and respond with the outcome."""
        is_short = request.code == RequestCode.SEND_REPLY_MESSAGE_V2
        fields = (send_v2_fields if is_short else send_fields)(request.ext_fields)
        try:
            queue_id = self._admitted(fields, connection)
        except RequestRefusedError as error:
            return request.response(error.code, ext_fields=dict(self._fields), remark=str(error))
        properties = self._properties(fields[8])
        problem = await self._push(fields, request.body or b"", properties, connection)
        answer_fields = dict(self._fields)
        if problem is None:
            answer_fields |= {"queueId": str(queue_id), "msgId": "0", "queueOffset": "0"}
        if self._config.store_reply_message_enable:
            answer_fields |= await self._put(fields, queue_id, request.body or b"", properties, connection)
        code = ResponseCode.SUCCESS if problem is None else ResponseCode.SYSTEM_ERROR
        return request.response(code, ext_fields=answer_fields, remark=problem)

    def _admitted(self, fields: SendFields, connection: Connection) -> int:
        """The queue that a reply is stored in. Raises RequestRefusedError as for a send."""
        refusal = self._flow.refusal
        # While the broker is busy, or its disk full, a client still waits for the reply.
        if refusal is not None and refusal[0] == ResponseCode.SYSTEM_ERROR:
            raise RequestRefusedError(refusal[1], refusal[0])
        _, topic, default_topic, default_queues, queue_id, *_ = fields
        config = self._sends.admitted(topic, default_topic, default_queues, unit_mode=fields[10])
        return self._sends.choose_queue(config, queue_id, connection)

    def _properties(self, text: str) -> bytes:
        """The properties as received, with those that this broker adds to every message."""
        properties = text.encode("utf-8", "replace")
        if properties and properties[-1] != 2:
            properties += b"\x02"
        for name in (names.MESSAGE_REGION, names.TRACE_SWITCH):
            properties = with_property(properties, name.encode(), self._fields[name].encode())
        return properties

    # Pushing

    async def _push(self, fields: SendFields, body: bytes, properties: bytes, connection: Connection) -> str | None:
        """Push a reply to the client that waits for it. None, or the remark of the failure."""
        client_name = find(properties, _REPLY_TO)
        if client_name is None:
            return f"reply message properties[{names.REPLY_TO_CLIENT}] is null"
        client_id = decode_utf8(client_name)
        client = self._clients.connection_of(client_id)
        if client is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        try:
            answer = await client.call(self._pushed(fields, body, properties, connection), PUSH_SECONDS)
        except RemotingError as error:
            log.warning("reply: push to %s failed: %s", client_id, one_sentence(error))
            return f"push reply message to {client_id}fail."
        if answer.code != ResponseCode.SUCCESS:
            log.warning("reply: push was refused by %s: %s", client_id, answer.remark)
            return f"push reply message to {client_id}fail."
        return None

    def _pushed(self, fields: SendFields, body: bytes, properties: bytes, connection: Connection) -> Command:
        (
            group, topic, default_topic, default_queues, queue_id, sys_flag, born, flag, _, reconsumed, unit_mode,
            *_,
        ) = fields  # fmt: skip
        now = self._clock.now_ms()
        pushed = with_property(properties, _PUSHED_AT, b"%d" % now)
        answer_fields = {
            "producerGroup": group,
            "topic": topic,
            "defaultTopic": default_topic,
            "defaultTopicQueueNums": str(default_queues),
            "queueId": str(queue_id),
            "sysFlag": str(sys_flag),
            "bornTimestamp": str(born),
            "flag": str(flag),
            "properties": decode_utf8(pushed),
            "reconsumeTimes": str(reconsumed),
            "unitMode": "true" if unit_mode else "false",
            "bornHost": connection.remote_address,
            "storeHost": host_text(self._store.log.store_host),
            "storeTimestamp": str(now),
        }
        return Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext_fields=answer_fields, body=body)

    # Storing

    async def _put(
        self, fields: SendFields, queue_id: int, body: bytes, properties: bytes, connection: Connection
    ) -> dict[str, str]:
        """Store a reply; returns its position. It has been pushed already, so a failure is only logged."""
        _, topic, _, _, _, sys_flag, born, flag, _, reconsumed, *_ = fields
        try:
            # Without the compression flag no reader could decode the body; RocketMQ leaves it out.
            compression = sys_flag & (COMPRESSED | COMPRESSION_MASK)
            appended = self._store.append(
                StoredMessage(
                    topic, queue_id, body, properties, flag, compression, born, connection.state, reconsumed
                )
            )
        except AppendRefusedError as error:
            self._stats.put_failed()
            log.warning("reply: append failed: %s", error)
            return {}
        self._stats.put(topic, queue_id, 1, appended.size)
        if self._is_sync_flush:
            try:
                async with asyncio.timeout(self._store.config.sync_flush_timeout / 1000):
                    await self._flushed(self._store.log.end)
            except TimeoutError:
                log.warning("reply: flush timed out, answered before it is on disk")
        return {
            "queueId": str(queue_id),
            "msgId": self._store.message_id(appended.offset),
            "queueOffset": str(appended.queue_offset),
        }
