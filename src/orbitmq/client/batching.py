"""Many messages in one request: which may travel together, and where a batch is cut to stay inside the limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.client.errors import InvalidMessageError, SendError
from orbitmq.client.validation import check_message, check_properties_size
from orbitmq.protocol import property_names as names
from orbitmq.protocol.batch import ITEM_SIZE
from orbitmq.protocol.names import RETRY_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orbitmq.client.messages import Message, Receipt

_NOT_IN_BATCHES = (
    names.DELAY_LEVEL,
    names.TIMER_DELAY_SEC,
    names.TIMER_DELAY_MS,
    names.TIMER_DELIVER_MS,
    names.TRANSACTION_PREPARED,
    names.MESSAGE_TYPE,
)
"""Messages with these take another way through the broker, which a batch cannot take as a whole."""


class PartlySentError(SendError):
    """Some of many messages were not sent. ``receipts`` are those of the first ones, ``unsent`` are the others.

    The first of the others may have been stored all the same; ``__cause__`` tells what happened.
    """

    def __init__(self, receipts: Sequence[Receipt], unsent: Sequence[Message], cause: Exception) -> None:
        super().__init__(f"{len(receipts)} messages were sent, and the other {len(unsent)} were not: {cause}")
        self.receipts = receipts
        self.unsent = unsent


def check_batch(messages: Sequence[Message], most_bytes: int) -> None:
    """Raise InvalidMessageError for messages that cannot travel together."""
    if not messages:
        raise InvalidMessageError("a batch needs at least one message")
    for message in messages:
        check_message(message, most_bytes)
        complaint = why_not_in_batches(message)
        if complaint:
            raise InvalidMessageError(complaint)
    first = messages[0]
    for message in messages[1:]:
        if message.topic != first.topic:
            raise InvalidMessageError(
                f"the messages of a batch must have one topic: {first.topic!r} and {message.topic!r} are two"
            )
        if message.properties.get(names.WAIT_STORE_OK) != first.properties.get(names.WAIT_STORE_OK):
            raise InvalidMessageError("the messages of a batch must all wait for being stored, or none of them")


def why_not_in_batches(message: Message) -> str:
    """Why a message has to be sent alone; nothing if it need not."""
    if message.topic.startswith(RETRY_PREFIX):
        return f"messages to a retry topic are not for batches: {message.topic}"
    for name in _NOT_IN_BATCHES:
        if name in message.properties:
            return f"replies and messages with a delay or of a transaction are not for batches: this has {name}"
    return ""


def properties_text(message: Message, more: str = "") -> str:
    """The properties of a message as they travel, with some more at the end. Raises InvalidMessageError."""
    text = "".join([f"{name}\x01{value}\x02" for name, value in message.properties.items()]) + more
    # Four bytes are the most that a character takes.
    if len(text) > 8191:
        check_properties_size(len(text.encode("utf-8", "replace")))
    return text


def item_size(item: tuple[int, bytes, bytes]) -> int:
    """How many bytes an item takes of a batch."""
    return ITEM_SIZE + len(item[1]) + len(item[2])


def cut(items: Sequence[tuple[int, bytes, bytes]], most_bytes: int) -> Iterator[tuple[int, int]]:
    """Where each part of a long batch begins and ends. Raises InvalidMessageError for an item that fits none."""
    begin = size = 0
    for place, item in enumerate(items):
        needed = item_size(item)
        if needed > most_bytes:
            raise InvalidMessageError(
                f"a message takes {needed} bytes of a batch, and at most {most_bytes} are allowed "
                "(max_message_size): send it alone"
            )
        if size + needed > most_bytes:
            yield begin, place
            begin, size = place, 0
        size += needed
    yield begin, len(items)
