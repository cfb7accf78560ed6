"""Accumulator (``auto_batch``): collects single sends into batches while an earlier batch is in flight.

A message without company leaves at once. Further ones gather until the response, as with Nagle's algorithm, so that
batches form only where sends are concurrent, and their size follows the latency of the broker.
"""

from __future__ import annotations

import asyncio
import collections
from typing import TYPE_CHECKING, TypeAlias

from orbitmq.client.producer.batch import PartlySentError, why_not_in_batches
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.batch import ITEM_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from orbitmq.client.message import Message, Receipt
    from orbitmq.protocol.bodies import MessageQueue

    SendMany: TypeAlias = Callable[[Sequence[Message], MessageQueue | None], Coroutine[None, None, list[Receipt]]]

_Key: TypeAlias = "tuple[str, MessageQueue | None, str | None, str | None]"


MAX_BATCHES_IN_FLIGHT = 32
"""Batches in flight before ``room`` makes senders wait: one megabyte at the default batch size."""


class _PendingBatch:
    """Messages that wait to be sent together."""

    __slots__ = ("bytes", "futures", "messages", "timer")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.futures: list[asyncio.Future[Receipt]] = []
        self.bytes = 0
        self.timer: asyncio.Handle | None = None


class Accumulator:
    """Collects messages of one topic, queue, tag and WAIT property, until the batch before them has its response,
    ``max_delay`` has passed or ``max_bytes`` are there."""

    def __init__(self, send: SendMany, *, max_delay: float, max_bytes: int, total_max_bytes: int) -> None:
        self._send = send
        self._max_delay = max_delay
        self._max_bytes = max_bytes
        self._total_max_bytes = total_max_bytes
        self._total = 0
        self._loop = asyncio.get_running_loop()
        self._pending: dict[_Key, _PendingBatch] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._in_flight: collections.Counter[_Key] = collections.Counter()

    def accepts(self, message: Message) -> bool:
        """True if a message may be batched; otherwise it is sent alone and at once."""
        return (
            self._total < self._total_max_bytes
            and len(message.body) <= self._max_bytes
            and names.PRODUCER_GROUP not in message.properties
            and names.SHARDING_KEY not in message.properties
            and not why_not_in_batches(message)
        )

    def add(self, message: Message, queue: MessageQueue | None) -> asyncio.Future[Receipt]:
        """Add a message to its batch. The future has its receipt."""
        properties = message.properties
        key: _Key = (message.topic, queue, properties.get(names.WAIT_STORE_OK), properties.get(names.TAGS))
        batch = self._pending.get(key)
        if batch is None:
            batch = self._pending[key] = _PendingBatch()
            if self._in_flight[key]:
                batch.timer = self._loop.call_later(self._max_delay, self._flush, key)
            else:
                # In the next iteration: sends of this one go with it.
                batch.timer = self._loop.call_soon(self._flush, key)
        future: asyncio.Future[Receipt] = self._loop.create_future()
        size = ITEM_SIZE + len(message.body)
        batch.messages.append(message)
        batch.futures.append(future)
        batch.bytes += size
        self._total += size
        if batch.bytes > self._max_bytes:
            self._flush(key)
        return future

    async def room(self) -> None:
        """Wait while too many batches are in flight: back-pressure on the sender."""
        while len(self._sending) >= MAX_BATCHES_IN_FLIGHT:
            await asyncio.wait(self._sending, return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Send all pending batches and wait for them."""
        for key in tuple(self._pending):
            self._flush(key)
        while self._sending:
            await asyncio.wait(self._sending)

    def _flush(self, key: _Key) -> None:
        batch = self._pending.pop(key)
        if batch.timer is not None:
            batch.timer.cancel()
        task = self._loop.create_task(self._send_batch(batch, key[1]))
        self._sending.add(task)
        self._in_flight[key] += 1
        task.add_done_callback(lambda done: self._sent(key, done))

    def _sent(self, key: _Key, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        self._in_flight[key] -= 1
        if not self._in_flight[key]:
            del self._in_flight[key]
            if key in self._pending:
                self._flush(key)

    async def _send_batch(self, batch: _PendingBatch, queue: MessageQueue | None) -> None:
        futures = batch.futures
        receipts: Sequence[Receipt] = ()
        try:
            receipts = await self._send(batch.messages, queue)
        except Exception as error:
            if isinstance(error, PartlySentError):
                receipts = error.receipts
            for future in futures[len(receipts) :]:
                if not future.done():
                    future.set_exception(error)
        finally:
            for future, receipt in zip(futures, receipts, strict=False):
                if not future.done():
                    future.set_result(receipt)
            self._total -= batch.bytes
            for future in futures:
                # Only pending if this task was cancelled.
                future.cancel()
