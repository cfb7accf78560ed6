"""Replies: handed on at once to the client that asked, and kept like any message if the operator wants that.

A reply is for one client and of no use to anybody else. It is pushed to that client first; whoever sent it hears
whether it arrived, for only then is the request answered.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.protocol import property_names as names
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.flags import COMPRESSED, COMPRESSION_MASK
from orbitmq.protocol.hosts import host_text
from orbitmq.protocol.hot import send_fields, send_v2_fields
from orbitmq.protocol.java import decode_utf8
from orbitmq.protocol.properties import find, with_property
from orbitmq.remoting import RemotingError
from orbitmq.remoting.errors import one_sentence
from orbitmq.remoting.processing import RequestRefusedError, handler_of
from orbitmq.store import AppendRefusedError
from orbitmq.store.config import FlushDiskType

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.broker.clients import Clients
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.flow import SendFlow
    from orbitmq.broker.send import SendRequests
    from orbitmq.broker.stats import BrokerStats
    from orbitmq.protocol.hot import SendFields
    from orbitmq.remoting import Connection, Handler
    from orbitmq.store import Clock, MessageStore

log = logging.getLogger("orbitmq.broker")

PUSH_SECONDS = 10.0
"""How long a client has to say that a reply has arrived, as with RocketMQ."""

_REPLY_TO = names.REPLY_TO_CLIENT.encode()
_PUSHED_AT = names.PUSH_REPLY_TIME.encode()


class ReplyRequests:
    """SEND_REPLY_MESSAGE and SEND_REPLY_MESSAGE_V2."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        sends: SendRequests,
        clients: Clients,
        stats: BrokerStats,
        flow: SendFlow,
        clock: Clock,
        flushed: Callable[[int], Awaitable[None]],
    ) -> None:
        self._config = config
        self._store = store
        self._sends = sends
        self._clients = clients
        self._stats = stats
        self._flow = flow
        self._clock = clock
        self._flushed = flushed
        self._waits = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._told = {
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
        """Push a reply to the client that waits for it, keep it, and say what became of it."""
        is_short = request.code == RequestCode.SEND_REPLY_MESSAGE_V2
        fields = (send_v2_fields if is_short else send_fields)(request.ext_fields)
        try:
            queue_id = self._admitted(fields, connection)
        except RequestRefusedError as error:
            return request.response(error.code, ext_fields=dict(self._told), remark=str(error))
        properties = self._properties(fields[8])
        problem = await self._push(fields, request.body or b"", properties, connection)
        told = dict(self._told)
        if problem is None:
            told |= {"queueId": str(queue_id), "msgId": "0", "queueOffset": "0"}
        if self._config.store_reply_message_enable:
            told |= await self._keep(fields, queue_id, request.body or b"", properties, connection)
        code = ResponseCode.SUCCESS if problem is None else ResponseCode.SYSTEM_ERROR
        return request.response(code, ext_fields=told, remark=problem)

    def _admitted(self, fields: SendFields, connection: Connection) -> int:
        """The queue that a reply is kept in. Raises RequestRefusedError for what cannot be sent either."""
        refusal = self._flow.refusal
        # While the broker is busy, or its disk full, a reply still has somebody who waits for it.
        if refusal is not None and refusal[0] == ResponseCode.SYSTEM_ERROR:
            raise RequestRefusedError(refusal[1], refusal[0])
        _, topic, default_topic, default_queues, queue_id, *_ = fields
        config = self._sends.admitted(topic, default_topic, default_queues, unit_mode=fields[10])
        return self._sends.choose_queue(config, queue_id, connection)

    def _properties(self, text: str) -> bytes:
        """What is kept: the properties as they came, with what this broker says of every message."""
        properties = text.encode("utf-8", "replace")
        if properties and properties[-1] != 2:
            properties += b"\x02"
        for name in (names.MESSAGE_REGION, names.TRACE_SWITCH):
            properties = with_property(properties, name.encode(), self._told[name].encode())
        return properties

    # Pushing

    async def _push(self, fields: SendFields, body: bytes, properties: bytes, connection: Connection) -> str | None:
        """Hand a reply to whoever waits for it. None, or why that was not possible."""
        wanted_by = find(properties, _REPLY_TO)
        if wanted_by is None:
            return f"reply message properties[{names.REPLY_TO_CLIENT}] is null"
        client_id = decode_utf8(wanted_by)
        client = self._clients.connection_of(client_id)
        if client is None:
            return f"push reply message fail, channel of <{client_id}> not found."
        try:
            answer = await client.call(self._pushed(fields, body, properties, connection), PUSH_SECONDS)
        except RemotingError as error:
            log.warning("a reply did not get to %s: %s", client_id, one_sentence(error))
            return f"push reply message to {client_id}fail."
        if answer.code != ResponseCode.SUCCESS:
            log.warning("a reply was refused by %s: %s", client_id, answer.remark)
            return f"push reply message to {client_id}fail."
        return None

    def _pushed(self, fields: SendFields, body: bytes, properties: bytes, connection: Connection) -> Command:
        (
            group, topic, default_topic, default_queues, queue_id, sys_flag, born, flag, _, reconsumed, unit_mode,
            *_,
        ) = fields  # fmt: skip
        now = self._clock.now_ms()
        pushed = with_property(properties, _PUSHED_AT, b"%d" % now)
        told = {
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
        return Command(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext_fields=told, body=body)

    # Keeping

    async def _keep(
        self, fields: SendFields, queue_id: int, body: bytes, properties: bytes, connection: Connection
    ) -> dict[str, str]:
        """Store a reply, and say where. It has been pushed by now, so that this may fail."""
        _, topic, _, _, _, sys_flag, born, flag, _, reconsumed, *_ = fields
        try:
            # Without the flag that says how its body is compressed nobody could read it; RocketMQ leaves that out.
            appended = self._store.append(
                topic, queue_id, body, properties, flag=flag, sys_flag=sys_flag & (COMPRESSED | COMPRESSION_MASK),
                born_timestamp=born, born_host=connection.state, reconsume_times=reconsumed,
            )  # fmt: skip
        except AppendRefusedError as error:
            self._stats.put_failed()
            log.warning("a reply was not kept: %s", error)
            return {}
        self._stats.put(topic, queue_id, 1, appended.size)
        if self._waits:
            try:
                async with asyncio.timeout(self._store.config.sync_flush_timeout / 1000):
                    await self._flushed(self._store.log.end)
            except TimeoutError:
                log.warning("a reply is not on the disk yet, and is answered all the same")
        return {
            "queueId": str(queue_id),
            "msgId": self._store.message_id(appended.offset),
            "queueOffset": str(appended.queue_offset),
        }
