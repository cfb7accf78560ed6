"""Batches: which messages may be sent in one request, where to split at the size limit, and sending the parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.client.errors import InvalidMessageError, OrbitMQError, SendError
from orbitmq.client.producer.wire import member_receipts
from orbitmq.client.serialization.serializer import AUTO
from orbitmq.client.validation import check_message, check_properties_size, check_topic_to_send
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.batch import ITEM_SIZE
from orbitmq.protocol.names import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orbitmq.client.message import Message, Receipt
    from orbitmq.client.producer.backpressure import InFlight
    from orbitmq.client.producer.message_encoder import MessageEncoder
    from orbitmq.client.producer.send import Sender
    from orbitmq.client.serialization.serializer import Serializer
    from orbitmq.protocol.bodies import MessageQueue

_NOT_IN_BATCHES = (
    names.DELAY_LEVEL,
    names.TIMER_DELAY_SEC,
    names.TIMER_DELAY_MS,
    names.TIMER_DELIVER_MS,
    names.TRANSACTION_PREPARED,
    names.MESSAGE_TYPE,
)
"""Messages with these properties are processed one by one in the broker."""

_has_none = frozenset(_NOT_IN_BATCHES).isdisjoint


class PartlySentError(SendError):
    """Some messages of a batch were not sent: ``receipts`` are those of the sent ones, ``unsent`` are the others.

    The broker may have stored the first unsent one nevertheless. ``__cause__`` is the error.
    """

    def __init__(self, receipts: Sequence[Receipt], unsent: Sequence[Message], cause: Exception) -> None:
        super().__init__(f"{len(receipts)} messages were sent, and the other {len(unsent)} were not: {cause}")
        self.receipts = receipts
        self.unsent = unsent


MAX_BATCH_MESSAGES = 4000
"""Messages in one request. Its response has an id of 32 characters (IPv6: 56) of each in the header, which has
256 KiB at most; beyond that the connection would be closed, and the batch sent, and stored, again."""


def check_batch(messages: Sequence[Message], max_bytes: int, serializer: Serializer = AUTO) -> None:
    """Raise InvalidMessageError for messages that cannot be in one batch."""
    if not messages:
        raise InvalidMessageError("a batch needs at least one message")
    for message in messages:
        check_message(message, max_bytes, serializer)
        reason = why_not_in_batches(message)
        if reason:
            raise InvalidMessageError(reason)
    topic, wait = messages[0].topic, messages[0].properties.get(names.WAIT_STORE_OK)
    for message in messages:
        if message.topic != topic:
            raise InvalidMessageError(
                f"the messages of a batch must have one topic: {topic!r} and {message.topic!r} are two"
            )
        if message.properties.get(names.WAIT_STORE_OK) != wait:
            raise InvalidMessageError("the messages of a batch must have the same wait_store_ok")


def why_not_in_batches(message: Message) -> str:
    """The reason why a message cannot be in a batch; empty if it can."""
    if message.topic.startswith(RETRY_PREFIX):
        return f"messages of a retry topic cannot be in a batch: {message.topic}"
    if _has_none(message.properties):
        return ""
    for name in _NOT_IN_BATCHES:
        if name in message.properties:
            return f"replies, delayed and transactional messages cannot be in a batch: this one has {name}"
    return ""


def properties_text(message: Message, more: str = "") -> str:
    """The properties of a message as sent, with ``more`` at the end. Raises InvalidMessageError."""
    text = "".join([f"{name}\x01{value}\x02" for name, value in message.properties.items()]) + more
    # A character has up to four bytes.
    if len(text) > 8191:
        check_properties_size(len(text.encode("utf-8", "replace")))
    return text


def item_size(item: tuple[int, bytes, bytes]) -> int:
    """Encoded size of a batch item."""
    return ITEM_SIZE + len(item[1]) + len(item[2])


def cut(items: Sequence[tuple[int, bytes, bytes]], max_bytes: int) -> Iterator[tuple[int, int]]:
    """Begin and end of each part of a batch. Raises InvalidMessageError for an item over the limit."""
    begin = size = 0
    for index, item in enumerate(items):
        needed = item_size(item)
        if needed > max_bytes:
            raise InvalidMessageError(
                f"a message takes {needed} bytes of a batch, and at most {max_bytes} are allowed "
                "(max_message_size): send it alone"
            )
        if size + needed > max_bytes or index - begin == MAX_BATCH_MESSAGES:
            yield begin, index
            begin, size = index, 0
        size += needed
    yield begin, len(items)


class BatchSend:
    """Sends batches of one producer."""

    def __init__(
        self, sender: Sender, encoder: MessageEncoder, in_flight: InFlight, max_bytes: int, serializer: Serializer
    ) -> None:
        self._sender = sender
        self._encoder = encoder
        self._in_flight = in_flight
        self._max_bytes = max_bytes
        self._serializer = serializer

    async def send(self, messages: Sequence[Message], queue: MessageQueue | None, seconds: float) -> list[Receipt]:
        """Send messages of one topic, in as few requests as the size limit allows."""
        check_batch(messages, self._max_bytes, self._serializer)
        check_topic_to_send(messages[0].topic)
        items = [self._encoder.item(message) for message in messages]
        receipts: list[Receipt] = []
        for begin, end in tuple(cut(items, self._max_bytes)):
            try:
                receipts += await self._send_part(messages[begin:end], items[begin:end], queue, seconds)
            except OrbitMQError as error:
                if not receipts:
                    raise
                raise PartlySentError(receipts, messages[begin:], error) from error
        return receipts

    async def _send_part(
        self,
        messages: Sequence[Message],
        items: Sequence[tuple[int, bytes, bytes]],
        queue: MessageQueue | None,
        seconds: float,
    ) -> list[Receipt]:
        sender = self._sender
        began = sender.time()
        deadline = began + seconds
        outgoing = self._encoder.batch(messages, items)
        size = len(outgoing.body)
        await self._in_flight.enter_later(size, seconds)
        try:
            topic = messages[0].topic
            publish_info = sender.ready(topic) or await sender.find(topic, deadline)
            fixed = None if queue is None else publish_info.target_of(queue)
            receipt = await sender.send(outgoing, publish_info, fixed, began, deadline)
        finally:
            self._in_flight.leave(size)
        return member_receipts(receipt, outgoing.message_id.split(","))
