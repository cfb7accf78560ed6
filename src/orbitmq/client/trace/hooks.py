"""Hooks of producers and consumers that write trace records."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.client.config import unique_ids_for
from orbitmq.client.message import SendStatus
from orbitmq.client.namespace import unwrap
from orbitmq.client.producer.hooks import MessageType
from orbitmq.client.trace.encoding import (
    NOTHING,
    ConsumeBegun,
    ConsumeEnded,
    ConsumeOutcome,
    MessageKind,
    Published,
    TransactionEnded,
)
from orbitmq.protocol.message import property_names as names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.client.config import ClientConfig
    from orbitmq.client.consumer.hooks import ConsumeContext
    from orbitmq.client.message import Message, ReceivedMessage
    from orbitmq.client.producer.hooks import SendContext
    from orbitmq.client.trace.dispatcher import TraceDispatcher

DEFAULT_REGION = "DefaultRegion"

_KINDS = {
    MessageType.NORMAL: MessageKind.NORMAL,
    MessageType.TRANSACTION_HALF: MessageKind.TRANSACTION_HALF,
    MessageType.DELAY: MessageKind.DELAY,
}
_BEGAN = "trace.began"
_CALL = "trace.call"


class SendTracing:
    """Hook of a producer. As in Java, one-way sends are not traced, because their result is unknown."""

    def __init__(self, dispatcher: TraceDispatcher) -> None:
        self.dispatcher = dispatcher

    def before_send(self, context: SendContext) -> None:
        context.notes[_BEGAN] = self.dispatcher.clock.now_ms()

    def after_send(self, context: SendContext) -> None:
        receipt, messages = context.receipt, context.messages
        topic = messages[0].topic
        if receipt is None or not receipt.trace_on or not self.dispatcher.traces(topic):
            return
        ids = receipt.message_id.split(",")
        offset_ids = receipt.offset_message_id.split(",")
        if len(offset_ids) != len(messages):
            # A batch that is stored as one record has one id.
            offset_ids = offset_ids[:1] * len(messages)
        began = context.notes[_BEGAN]
        cost = self.dispatcher.clock.now_ms() - began
        records = [
            Published(
                timestamp=began,
                region=receipt.region_id,
                group=context.producer_group,
                topic=topic,
                message_id=message_id,
                tags=message.tags,
                keys=message.properties.get(names.KEYS),
                store_host=context.broker_address,
                body_length=len(message.body),
                cost_ms=cost,
                kind=_KINDS[context.message_type],
                offset_message_id=offset_id,
                succeeded=receipt.status is SendStatus.SEND_OK,
            )
            for message, message_id, offset_id in zip(messages, ids, offset_ids, strict=True)
        ]
        self.dispatcher.add(topic, records)

    def transaction_ended(
        self,
        message: Message | ReceivedMessage,
        *,
        group: str,
        broker_address: str,
        message_id: str,
        transaction_id: str,
        state: str,
        from_check: bool,
    ) -> None:
        """Record the end of a transaction."""
        if not self.dispatcher.traces(message.topic):
            return
        properties = message.properties
        record = TransactionEnded(
            timestamp=self.dispatcher.clock.now_ms(),
            region=properties.get(names.MESSAGE_REGION, DEFAULT_REGION),
            group=group,
            topic=message.topic,
            message_id=message_id,
            tags=message.tags,
            keys=properties.get(names.KEYS),
            store_host=broker_address,
            kind=MessageKind.TRANSACTION_END,
            transaction_id=transaction_id,
            state=state,
            from_check=from_check,
        )
        self.dispatcher.add(message.topic, [record])


@dataclasses.dataclass(frozen=True, slots=True)
class _Call:
    """A traced handler call."""

    request_id: str
    began: int
    topic: str
    messages: Sequence[tuple[str, str | None]]
    """Ids and keys."""


class ConsumeTracing:
    """Hook of a consumer."""

    def __init__(self, dispatcher: TraceDispatcher, config: ClientConfig) -> None:
        self.dispatcher = dispatcher
        self._namespace = config.namespace
        self._unique_id = unique_ids_for(config)

    def before_consume(self, context: ConsumeContext) -> None:
        traced = [message for message in context.messages if self._is_traced(message)]
        if not traced:
            return
        ids = [(message.message_id, message.properties.get(names.KEYS)) for message in traced]
        call = _Call(self._unique_id(), self.dispatcher.clock.now_ms(), traced[0].topic, ids)
        context.notes[_CALL] = call
        records = [
            ConsumeBegun(
                timestamp=call.began,
                region=message.properties.get(names.MESSAGE_REGION, NOTHING),
                group=unwrap(self._namespace, context.group),
                request_id=call.request_id,
                message_id=message_id,
                retry_times=message.reconsume_times,
                keys=keys,
            )
            for message, (message_id, keys) in zip(traced, ids, strict=True)
        ]
        self.dispatcher.add(call.topic, records)

    def after_consume(self, context: ConsumeContext) -> None:
        call: _Call | None = context.notes.get(_CALL)
        if call is None:
            return
        now = self.dispatcher.clock.now_ms()
        cost = (now - call.began) // len(context.messages)
        records = [
            ConsumeEnded(
                request_id=call.request_id,
                message_id=message_id,
                cost_ms=cost,
                succeeded=context.succeeded,
                keys=keys,
                outcome=ConsumeOutcome.FAILED if context.outcome is None else context.outcome,
                timestamp=now,
                group=unwrap(self._namespace, context.group),
            )
            for message_id, keys in call.messages
        ]
        self.dispatcher.add(call.topic, records)

    def _is_traced(self, message: ReceivedMessage) -> bool:
        return self.dispatcher.traces(message.topic) and message.properties.get(names.TRACE_SWITCH) != "false"
