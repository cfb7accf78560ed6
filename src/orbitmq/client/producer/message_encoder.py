"""Message encoder: compression, message id and serialized properties."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitmq.client.producer.batch import properties_text
from orbitmq.client.producer.config import compression
from orbitmq.client.producer.wire import fill_template, properties_json
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.batch import encode_batch
from orbitmq.protocol.message.compression import compress, compressed_flag
from orbitmq.protocol.message.flags import TRANSACTION_PREPARED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orbitmq.client.message import Message
    from orbitmq.client.producer.config import ProducerConfig
    from orbitmq.client.producer.topic_publish_info import Target

COMPRESS_IN_THREAD_SIZE = 32 << 10
"""Bodies from this size on are compressed in a thread: on the loop it would block for a millisecond or more."""


class EncodedMessage:
    """An encoded message or batch, independent of its target queue."""

    __slots__ = ("body", "flag", "is_batch", "message_id", "messages", "properties", "sys_flag")

    def __init__(
        self,
        messages: Sequence[Message],
        message_id: str,
        body: bytes,
        sys_flag: int,
        flag: int,
        properties: bytes,
        is_batch: bool = False,
    ) -> None:
        self.messages = messages
        self.message_id = message_id
        self.body = body
        self.sys_flag = sys_flag
        self.flag = flag
        self.properties = properties
        self.is_batch = is_batch

    def request(self, target: Target, opaque: int, born_ms: int, frame_flag: int = 0) -> bytes:
        """The request frame for a queue."""
        template = target.batch_template if self.is_batch else target.template
        if target.is_special and not self.is_batch:
            template = self._special_template(target)
        return fill_template(
            template, self.sys_flag, born_ms, self.flag, self.properties, frame_flag, opaque, self.body
        )

    def _special_template(self, target: Target) -> bytes:
        properties = self.messages[0].properties
        if target.is_for_retries:
            most = properties.get(names.MAX_RECONSUME_TIMES)
            return target.retry_template(
                int(properties.get(names.RECONSUME_TIMES, 0)), None if most is None else int(most)
            )
        # Ordinary topics may have the name suffix of reply topics.
        is_reply = properties.get(names.MESSAGE_TYPE) == names.MESSAGE_TYPE_REPLY
        return target.reply_template() if is_reply else target.template


class MessageEncoder:
    """Encodes messages by the options of a producer."""

    __slots__ = ("_compress_level", "_compress_over", "_compress_type", "_more", "_unique_id")

    def __init__(self, config: ProducerConfig, namespace: str, unique_id: Callable[[], str]) -> None:
        self._compress_over = config.compress_msg_body_over_howmuch
        self._compress_level = config.compress_level
        self._compress_type = compression(config.compress_type)
        self._more = f"{names.INSTANCE_ID}\x01{namespace}\x02" if namespace else ""
        self._unique_id = unique_id

    def is_slow(self, message: Message) -> bool:
        """True if encoding should run in a thread, because it compresses a large body."""
        size = len(message.body)
        return size >= COMPRESS_IN_THREAD_SIZE and size >= self._compress_over

    async def encode_in_thread(self, message: Message) -> EncodedMessage:
        """``encode`` with the compression in a thread."""
        body = message.body
        loop = asyncio.get_running_loop()
        packed = await loop.run_in_executor(None, compress, body, self._compress_type, self._compress_level)
        return self.encode(message, packed)

    def encode(self, message: Message, packed: bytes | None = None) -> EncodedMessage:
        """Encode a message. ``packed`` is its compressed body, if known."""
        properties = message.properties
        message_id = properties.get(names.UNIQUE_KEY)
        if message_id is None:
            # Stored in the message, so that a resend after a failure has the same id.
            message_id = properties[names.UNIQUE_KEY] = self._unique_id()
        body = message.body
        sys_flag = 0
        if len(body) >= self._compress_over:
            body = packed or compress(body, self._compress_type, self._compress_level)
            sys_flag = compressed_flag(0, self._compress_type)
        if names.TRANSACTION_PREPARED in properties:
            sys_flag |= TRANSACTION_PREPARED
        text = properties_text(message, self._more)
        return EncodedMessage((message,), message_id, body, sys_flag, message.flag, properties_json(text))

    def encode_properties(self, outgoing: EncodedMessage) -> None:
        """Encode the properties of an encoded message or batch again, after a hook has changed them."""
        if outgoing.is_batch:
            outgoing.body = encode_batch([self.item(message) for message in outgoing.messages])
            return
        outgoing.properties = properties_json(properties_text(outgoing.messages[0], self._more))

    def item(self, message: Message) -> tuple[int, bytes, bytes]:
        """Encode a message as batch item with its own id."""
        properties = message.properties
        if names.UNIQUE_KEY not in properties:
            properties[names.UNIQUE_KEY] = self._unique_id()
        return message.flag, message.body, properties_text(message, self._more).encode("utf-8", "replace")

    def batch(self, messages: Sequence[Message], items: Sequence[tuple[int, bytes, bytes]]) -> EncodedMessage:
        """Encode messages with their items as one batch request. Batches are never compressed."""
        wait = messages[0].properties.get(names.WAIT_STORE_OK, "true")
        text = f"{names.UNIQUE_KEY}\x01{self._unique_id()}\x02{names.WAIT_STORE_OK}\x01{wait}\x02{self._more}"
        ids = ",".join([message.properties[names.UNIQUE_KEY] for message in messages])
        return EncodedMessage(messages, ids, encode_batch(items), 0, 0, properties_json(text), is_batch=True)
