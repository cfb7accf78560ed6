"""ReceiveMessage: a pop with long polling, whose messages are streamed to the consumer."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.filter import TAG, compile_subscription
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.java import decode_utf8
from orbitmq.protocol.message.properties import find
from orbitmq.proxy.clients.registration import filter_data
from orbitmq.proxy.clients.settings import LITE_CONSUMERS, max_attempts
from orbitmq.proxy.errors import NOT_FOUND, StatusError, broker_status, ok, status_of
from orbitmq.proxy.messages.from_stored import delivered, set_milliseconds
from orbitmq.proxy.messages.popped import Handle, popped, popped_lite
from orbitmq.proxy.messages.validation import check_group, check_topic, milliseconds
from orbitmq.proxy.messaging.renewal import Renewed
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.proto import service_pb2 as rpc
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.protocol.bodies import SubscriptionData, SubscriptionGroupConfig
    from orbitmq.protocol.message.record import Record
    from orbitmq.proxy.clients.client import Client
    from orbitmq.proxy.context import CallContext
    from orbitmq.proxy.messaging.ack import AckCalls
    from orbitmq.proxy.messaging.renewal import Renewals
    from orbitmq.proxy.messaging.runtime import Runtime

    Write = Callable[..., Awaitable[None]]

log = logging.getLogger("orbitmq.proxy")

GRACE_SECONDS = 3.0
"""Time for the response of a broker after the end of its long polling."""

SETTINGS_SECONDS = 1.0
"""Time for settings that a receive has overtaken; Apache's proxy answers with an error at once."""

WRITE_BYTES = 256 * 1024
"""Bodies that are written at once; then the client must have read them."""

MAX_LITE_RENEWED = 100
"""Unacknowledged messages of a lite consumer; ``maxLiteRenewNumPerChannel`` of Apache's proxy."""


class Wanted(NamedTuple):
    """A checked request."""

    topic: str
    group: SubscriptionGroupConfig
    filter: SubscriptionData
    batch: int
    polling_ms: int
    invisible_ms: int
    renews: bool
    is_lite: bool


class ReceiveCalls:
    """Messages for consumers."""

    def __init__(self, runtime: Runtime, acks: AckCalls, renewals: Renewals) -> None:
        self._runtime = runtime
        self._config = runtime.config
        self._clock = runtime.clock
        self._acks = acks
        self._renewals = renewals
        self._turn = 0
        self._returning: set[asyncio.Task[None]] = set()

    async def receive_message(
        self, request: rpc.ReceiveMessageRequest, client: Client, call: CallContext, write: Write
    ) -> None:
        """Stream a status, the messages, and the time of delivery."""
        try:
            wanted = await self._checked(request, client, call)
            found = await self._pop(request, client, wanted)
        except (StatusError, RemotingError, ProtocolError) as error:
            await write(rpc.ReceiveMessageResponse(status=status_of(error)), self._end())
            return
        messages = await self._deliverable(client, wanted, found)
        if not messages:
            status = pb.Status(code=pb.MESSAGE_NOT_FOUND, message="no match message" if found else "no new message")
            await write(rpc.ReceiveMessageResponse(status=status), self._end())
            return
        try:
            parts = [rpc.ReceiveMessageResponse(status=ok())]
            size = 0
            for record, handle in messages:
                parts.append(rpc.ReceiveMessageResponse(message=delivered(record, wanted.topic, str(handle))))
                size += len(record.body)
                if size > WRITE_BYTES:
                    await write(*parts)
                    parts, size = [], 0
            await write(*parts, self._end())
        except BaseException:
            # Consumers use what they got only when the stream ends.
            self._return_soon(client, wanted, [handle for _, handle in messages])
            raise
        if wanted.renews:
            for record, handle in messages:
                self._renewals.add(
                    client,
                    str(handle),
                    Renewed(
                        wanted.topic,
                        wanted.group.group_name,
                        handle,
                        handle.receipt.pop_time,
                        record.reconsume_times,
                    ),
                )

    def _end(self) -> rpc.ReceiveMessageResponse:
        response = rpc.ReceiveMessageResponse()
        set_milliseconds(response.delivery_timestamp, self._clock.now_ms())
        return response

    # Checks

    async def _checked(self, request: rpc.ReceiveMessageRequest, client: Client, call: CallContext) -> Wanted:
        topic, group_name = check_topic(request.message_queue.topic), check_group(request.group)
        if client.settings is None:
            await client.wait_for_settings(SETTINGS_SECONDS)
        settings = client.require_settings()
        polling_ms = self._polling_ms(request, settings, call)
        renews = request.auto_renew and self._config.enable_proxy_auto_renew
        if renews:
            invisible_ms = self._config.default_invisible_time_mills
        else:
            invisible_ms = milliseconds(request.invisible_duration)
            low, high = self._config.min_invisible_time_mills_for_recv, self._config.max_invisible_time_mills
            if not low <= invisible_ms <= high:
                raise StatusError(
                    pb.ILLEGAL_INVISIBLE_TIME,
                    f"the invisibleTime {invisible_ms} ms is not between {low} and {high} ms",
                )
        is_lite = settings.client_type in LITE_CONSUMERS
        if is_lite and self._renewals.count_of(client) > MAX_LITE_RENEWED:
            raise StatusError(
                pb.FORBIDDEN,
                f"{self._renewals.count_of(client)} messages are not acknowledged: acknowledge them first",
            )
        return Wanted(
            topic,
            await self._runtime.group(group_name),
            filter_data(topic, request.filter_expression, 0),
            min(max(request.batch_size, 1), 32),
            polling_ms,
            invisible_ms,
            renews,
            is_lite,
        )

    def _polling_ms(self, request: rpc.ReceiveMessageRequest, settings: pb.Settings, call: CallContext) -> int:
        if call.seconds is None:
            raise StatusError(pb.INTERNAL_SERVER_ERROR, "the call has no deadline: set one")
        left = int(call.seconds * 1000)
        low = self._config.grpc_client_consumer_min_long_polling_timeout_millis
        high = self._config.grpc_client_consumer_max_long_polling_timeout_millis
        if request.HasField("long_polling_timeout"):
            polling = milliseconds(request.long_polling_timeout)
        else:
            polling = left - milliseconds(settings.request_timeout) // 2
        polling = min(max(polling, low), high)
        if polling <= left:
            return polling
        if left >= low:
            return left
        code = pb.ILLEGAL_POLLING_TIME if call.client_version >= "5.0.3" else pb.BAD_REQUEST
        raise StatusError(
            code, f"the deadline time remaining is not enough for polling: {left} ms are left, {low} ms are needed"
        )

    # The pop

    async def _broker_of(self, request: rpc.ReceiveMessageRequest, topic: str) -> str:
        named = request.message_queue.broker.name
        if named.strip():
            return str(named)
        route = await self._runtime.backend.route(topic)
        names = sorted({data.broker_name for data in route.queues if data.perm & 4 and data.read_queue_nums})
        if not names:
            raise StatusError(pb.FORBIDDEN, "no readable queue")
        self._turn += 1
        return names[self._turn % len(names)]

    async def _pop(
        self, request: rpc.ReceiveMessageRequest, client: Client, wanted: Wanted
    ) -> list[tuple[Record, Handle]]:
        broker_name = await self._broker_of(request, wanted.topic)
        popping = asyncio.create_task(self._popped(request, client, wanted, broker_name))
        try:
            return await asyncio.shield(popping)
        except asyncio.CancelledError:
            # The broker may hand out messages all the same.
            self._in_background(self._return_popped(client, wanted, popping))
            raise

    async def _popped(
        self, request: rpc.ReceiveMessageRequest, client: Client, wanted: Wanted, broker_name: str
    ) -> list[tuple[Record, Handle]]:
        fields = {
            "consumerGroup": wanted.group.group_name,
            "topic": wanted.topic,
            "invisibleTime": str(wanted.invisible_ms),
            "pollTime": str(wanted.polling_ms),
            "bornTime": str(self._clock.now_ms()),
            "bname": broker_name,
        }
        if request.HasField("attempt_id"):
            fields["attemptId"] = request.attempt_id
        if wanted.is_lite:
            code = RequestCode.POP_LITE_MESSAGE
            fields |= {"clientId": client.client_id, "maxMsgNum": str(wanted.batch)}
        else:
            code = RequestCode.POP_MESSAGE
            fields |= {
                "queueId": "-1",
                "maxMsgNums": str(wanted.batch),
                "initMode": "1",
                "expType": wanted.filter.expression_type,
                "exp": wanted.filter.sub_string,
                "order": "true" if wanted.group.consume_message_orderly else "false",
            }
        answer = await client.call(
            broker_name, Command(code, ext_fields=fields), wanted.polling_ms / 1000 + GRACE_SECONDS
        )
        if answer.code == ResponseCode.SUCCESS:
            if wanted.is_lite:
                return popped_lite(answer, wanted.topic, broker_name)
            return popped(answer, broker_name)
        if answer.code in NOT_FOUND:
            return []
        if answer.code == ResponseCode.POLLING_FULL:
            raise StatusError(pb.TOO_MANY_REQUESTS, "polling full")
        error = broker_status(answer)
        known = {pb.CONSUMER_GROUP_NOT_FOUND, pb.TOPIC_NOT_FOUND, pb.NOT_IMPLEMENTED}
        raise error if error.code in known else StatusError(pb.INTERNAL_SERVER_ERROR, str(error))

    async def _deliverable(
        self, client: Client, wanted: Wanted, found: list[tuple[Record, Handle]]
    ) -> list[tuple[Record, Handle]]:
        """The messages that the consumer gets. Others are acknowledged or dead-lettered here."""
        matcher = compile_subscription(wanted.filter.expression_type, wanted.filter.sub_string)
        # Brokers compare hashes of tags.
        is_exact = wanted.filter.expression_type != TAG or matcher.matches_all
        limit = max_attempts(wanted.group)
        kept = []
        for record, handle in found:
            if not is_exact and not matcher.matches_properties(record.properties):
                await self._dispose(client, wanted, record, handle, is_dead=False)
            elif record.reconsume_times >= limit:
                await self._dispose(client, wanted, record, handle, is_dead=True)
            else:
                kept.append((record, handle))
        return kept

    async def _dispose(
        self, client: Client, wanted: Wanted, record: Record, handle: Handle, *, is_dead: bool
    ) -> None:
        group = wanted.group.group_name
        try:
            if is_dead:
                message_id = decode_utf8(find(record.properties, b"UNIQ_KEY") or b"")
                await self._acks.dead_letter(client, wanted.topic, group, handle, message_id, GRACE_SECONDS)
            else:
                command = Command(RequestCode.ACK_MESSAGE, ext_fields=handle.fields(wanted.topic, group))
                await client.call(handle.receipt.broker_name, command, GRACE_SECONDS)
        except (StatusError, RemotingError) as error:
            log.warning("consumer: message of group %s stays invisible until its time: %s", group, error)

    # Returning messages

    def _return_soon(self, client: Client, wanted: Wanted, handles: list[Handle]) -> None:
        self._in_background(self._return(client, wanted, handles))

    async def _return(self, client: Client, wanted: Wanted, handles: list[Handle]) -> None:
        for handle in handles:
            await self._acks.give_back(client, wanted.topic, wanted.group.group_name, handle)

    async def _return_popped(
        self, client: Client, wanted: Wanted, popping: asyncio.Task[list[tuple[Record, Handle]]]
    ) -> None:
        try:
            found = await popping
        except (StatusError, RemotingError, ProtocolError):
            return
        await self._return(client, wanted, [handle for _, handle in found])

    def _in_background(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._returning.add(task)
        task.add_done_callback(self._returning.discard)

    async def stop(self) -> None:
        """Wait until the messages of cancelled calls are returned, or their brokers gone."""
        if self._returning:
            await asyncio.wait(self._returning, timeout=GRACE_SECONDS)
