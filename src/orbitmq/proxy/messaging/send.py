"""SendMessage and RecallMessage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.message_id import decode_offset_id
from orbitmq.protocol.message.recall_handle import decode_recall_handle
from orbitmq.protocol.names import AUTO_CREATE_TOPIC
from orbitmq.proxy.errors import SEND_CODES, StatusError, broker_status, ok
from orbitmq.proxy.messages.to_stored import outgoing, outgoing_batch
from orbitmq.proxy.messages.validation import check_message, check_topic
from orbitmq.proxy.messaging.transaction import HalfMessage
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.proto import service_pb2 as rpc
from orbitmq.proxy.routing.queues import queue_for_group, refuse_write

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.proxy.backend.base import Route
    from orbitmq.proxy.clients.client import Client
    from orbitmq.proxy.context import CallContext
    from orbitmq.proxy.messaging.runtime import Runtime
    from orbitmq.proxy.messaging.transaction import Transactions

MAX_BATCH = 4096
"""Messages of one call; what they may add up to is the broker's ``maxMessageSize``."""

_TYPE_NAMES = {pb.NORMAL: "NORMAL", pb.FIFO: "FIFO", pb.DELAY: "DELAY", pb.TRANSACTION: "TRANSACTION",
               pb.LITE: "LITE", pb.PRIORITY: "PRIORITY"}  # fmt: skip


class SendCalls:
    """Messages from producers."""

    def __init__(self, runtime: Runtime, transactions: Transactions) -> None:
        self._runtime = runtime
        self._config = runtime.config
        self._clock = runtime.clock
        self._backend = runtime.backend
        self._transactions = transactions
        self._turn = runtime.random.randrange(1 << 20)

    async def send_message(
        self, request: rpc.SendMessageRequest, client: Client, call: CallContext
    ) -> rpc.SendMessageResponse:
        messages = request.messages
        if not messages or len(messages) > MAX_BATCH:
            raise StatusError(pb.MESSAGE_CORRUPTED, f"no message to send, or more than {MAX_BATCH}")
        first = messages[0]
        topic = check_topic(first.topic)
        now = self._clock.now_ms()
        for message in messages:
            check_message(message, self._config, now)
            if message.topic != first.topic:
                raise StatusError(pb.MESSAGE_CORRUPTED, "different message topic")
        await self._check_type(topic, first)
        broker_name, queue_id = self._queue_of(await self._backend.route(topic), messages)
        born_host = call.remote_address
        is_batch = len(messages) > 1
        form = outgoing_batch(messages, born_host, now) if is_batch else outgoing(first, born_host, now)
        command = Command(
            RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2,
            ext_fields={
                "a": topic,
                "b": topic,
                "c": AUTO_CREATE_TOPIC,
                "d": "4",
                "e": str(queue_id),
                "f": str(form.sys_flag),
                "g": str(form.born_ms),
                "h": "0",
                "i": form.properties,
                "j": "0",
                "k": "false",
                "m": "true" if is_batch else "false",
                "n": broker_name,
            },
            body=form.body,
        )
        answer = await client.call(broker_name, command, call.timeout)
        return self._response(topic, broker_name, messages, answer)

    async def _check_type(self, topic: str, message: pb.Message) -> None:
        if not self._config.enable_topic_message_type_check:
            return
        allowed = await self._backend.message_type(topic)
        given = _type_of(message)
        if allowed not in {given, "MIXED"}:
            raise StatusError(
                pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"TopicMessageType validate failed, the expected type is {allowed}, but actual type is {given}",
            )

    def _queue_of(self, route: Route, messages: Sequence[pb.Message]) -> tuple[str, int]:
        queues = route.writable
        properties = messages[0].system_properties
        key = properties.message_group or properties.lite_topic
        if len(messages) == 1 and key:
            return queue_for_group(key, queues)
        self._turn += 1
        return queues[self._turn % len(queues)] if queues else refuse_write()

    def _response(
        self, topic: str, broker_name: str, messages: Sequence[pb.Message], answer: Command
    ) -> rpc.SendMessageResponse:
        code = answer.code
        if code in SEND_CODES:
            status = pb.Status(code=SEND_CODES[code], message=answer.remark or "")
            return rpc.SendMessageResponse(status=status, entries=[rpc.SendResultEntry(status=status)])
        if code != ResponseCode.SUCCESS:
            error = broker_status(answer)
            status = pb.Status(code=error.code, message=str(error))
            return rpc.SendMessageResponse(status=status, entries=[rpc.SendResultEntry(status=status)])
        fields = answer.ext_fields
        offset = int(fields["queueOffset"])
        handle = fields.get("recallHandle", "")
        response = rpc.SendMessageResponse(status=ok())
        for number, message in enumerate(messages):
            message_id = message.system_properties.message_id
            response.entries.add(
                status=ok(),
                message_id=message_id,
                transaction_id=message_id,
                offset=offset + number,
                recall_handle=handle,
            )
        properties = messages[0].system_properties
        if properties.message_type == pb.TRANSACTION:
            self._remember(topic, broker_name, properties.message_id, offset, fields["msgId"])
        return response

    def _remember(self, topic: str, broker_name: str, transaction_id: str, offset: int, offset_id: str) -> None:
        try:
            _, physical = decode_offset_id(offset_id)
        except ProtocolError:
            return
        self._transactions.add(topic, transaction_id, HalfMessage(broker_name, offset, physical))

    async def recall_message(
        self, request: rpc.RecallMessageRequest, client: Client, call: CallContext
    ) -> rpc.RecallMessageResponse:
        topic = check_topic(request.topic)
        if self._config.enable_topic_message_type_check:
            allowed = await self._backend.message_type(topic)
            if allowed not in {"DELAY", "MIXED"}:
                raise StatusError(
                    pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                    f"TopicMessageType validate failed, the expected type is {allowed}, but actual type is DELAY",
                )
        try:
            broker_name = decode_recall_handle(request.recall_handle).broker_name
        except ProtocolError as error:
            raise StatusError(pb.INTERNAL_SERVER_ERROR, str(error)) from None
        fields = {
            "producerGroup": topic,
            "topic": topic,
            "recallHandle": request.recall_handle,
            "bname": broker_name,
        }
        answer = await client.call(
            broker_name, Command(RequestCode.RECALL_MESSAGE, ext_fields=fields), call.timeout
        )
        if answer.code != ResponseCode.SUCCESS:
            raise StatusError(pb.INTERNAL_SERVER_ERROR, answer.remark or "recall failed")
        return rpc.RecallMessageResponse(status=ok(), message_id=answer.ext_fields.get("msgId", ""))


def _type_of(message: pb.Message) -> str:
    """The type that a message has by its properties. Only transactions are named by the request's own type."""
    properties = message.system_properties
    if properties.message_type == pb.TRANSACTION:
        return "TRANSACTION"
    if properties.HasField("delivery_timestamp"):
        return "DELAY"
    if properties.message_group:
        return "FIFO"
    if properties.lite_topic:
        return "LITE"
    return "PRIORITY" if properties.HasField("priority") else "NORMAL"
