"""Messages made ready to travel: compressed, with their id, their properties as they are written."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitmq.client.batching import properties_text
from orbitmq.client.producer_config import compression
from orbitmq.client.send_requests import filled, properties_json
from orbitmq.protocol import property_names as names
from orbitmq.protocol.batch import encode_batch
from orbitmq.protocol.compression import compress, compressed_flag
from orbitmq.protocol.flags import TRANSACTION_PREPARED

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orbitmq.client.messages import Message
    from orbitmq.client.producer_config import ProducerConfig
    from orbitmq.client.publishing import Target

COMPRESSED_APART = 32 << 10
"""Bodies from this size on are compressed in a thread: the loop would stand still for a millisecond and more."""


class Outgoing:
    """A message, or a batch of them, without anything that depends on where it goes."""

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
        """The frame that sends it to a queue."""
        template = target.batch_template if self.is_batch else target.template
        if target.is_special and not self.is_batch:
            template = self._special_template(target)
        return filled(template, self.sys_flag, born_ms, self.flag, self.properties, frame_flag, opaque, self.body)

    def _special_template(self, target: Target) -> bytes:
        properties = self.messages[0].properties
        if target.is_for_retries:
            most = properties.get(names.MAX_RECONSUME_TIMES)
            return target.retry_template(
                int(properties.get(names.RECONSUME_TIMES, 0)), None if most is None else int(most)
            )
        # A topic may be called like one of replies without being one.
        is_reply = properties.get(names.MESSAGE_TYPE) == names.MESSAGE_TYPE_REPLY
        return target.reply_template() if is_reply else target.template


class Preparing:
    """Makes messages ready with what a producer's options say."""

    __slots__ = ("_compress_level", "_compress_over", "_compress_type", "_more", "_unique_id")

    def __init__(self, config: ProducerConfig, namespace: str, unique_id: Callable[[], str]) -> None:
        self._compress_over = config.compress_msg_body_over_howmuch
        self._compress_level = config.compress_level
        self._compress_type = compression(config.compress_type)
        self._more = f"{names.INSTANCE_ID}\x01{namespace}\x02" if namespace else ""
        self._unique_id = unique_id

    def is_slow(self, message: Message) -> bool:
        """Whether it is better made ready apart from the loop."""
        size = len(message.body)
        return size >= COMPRESSED_APART and size >= self._compress_over

    async def one_apart(self, message: Message) -> Outgoing:
        """``one`` for a message that is slow to make ready."""
        body = message.body
        loop = asyncio.get_running_loop()
        packed = await loop.run_in_executor(None, compress, body, self._compress_type, self._compress_level)
        return self.one(message, packed)

    def one(self, message: Message, packed: bytes | None = None) -> Outgoing:
        """``packed`` is the compressed body, if it is there already."""
        properties = message.properties
        message_id = properties.get(names.UNIQUE_KEY)
        if message_id is None:
            # Kept in the message, so that one that is sent again after a failure is known by the same id.
            message_id = properties[names.UNIQUE_KEY] = self._unique_id()
        body = message.body
        sys_flag = 0
        if len(body) >= self._compress_over:
            body = packed or compress(body, self._compress_type, self._compress_level)
            sys_flag = compressed_flag(0, self._compress_type)
        if names.TRANSACTION_PREPARED in properties:
            sys_flag |= TRANSACTION_PREPARED
        text = properties_text(message, self._more)
        return Outgoing((message,), message_id, body, sys_flag, message.flag, properties_json(text))

    def item(self, message: Message) -> tuple[int, bytes, bytes]:
        """A message as an item of a batch, with its own id."""
        properties = message.properties
        if names.UNIQUE_KEY not in properties:
            properties[names.UNIQUE_KEY] = self._unique_id()
        return message.flag, message.body, properties_text(message, self._more).encode("utf-8", "replace")

    def batch(self, messages: Sequence[Message], items: Sequence[tuple[int, bytes, bytes]]) -> Outgoing:
        """Messages and the items that they are, as one request. Batches are never compressed."""
        wait = messages[0].properties.get(names.WAIT_STORE_OK, "true")
        text = f"{names.UNIQUE_KEY}\x01{self._unique_id()}\x02{names.WAIT_STORE_OK}\x01{wait}\x02{self._more}"
        ids = ",".join([message.properties[names.UNIQUE_KEY] for message in messages])
        return Outgoing(messages, ids, encode_batch(items), 0, 0, properties_json(text), is_batch=True)
