"""Messages that wait for each other for a moment, to travel in one batch."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeAlias

from orbitmq.client.batching import PartlySentError, why_not_in_batches
from orbitmq.protocol import property_names as names
from orbitmq.protocol.batch import ITEM_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from orbitmq.client.messages import Message, Receipt
    from orbitmq.protocol.bodies import MessageQueue

    SendMany: TypeAlias = Callable[[Sequence[Message], MessageQueue | None], Coroutine[None, None, list[Receipt]]]

_Key: TypeAlias = "tuple[str, MessageQueue | None, str | None, str | None]"


MOST_SENDING = 32
"""Batches on their way at a time before ``room`` makes their sender wait: a megabyte of usual ones."""


class _Gathering:
    """Messages of one kind that wait."""

    __slots__ = ("bytes", "futures", "messages", "timer")

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.futures: list[asyncio.Future[Receipt]] = []
        self.bytes = 0
        self.timer: asyncio.TimerHandle | None = None


class Accumulator:
    """Gathers messages of the same topic, queue, tags and wish to be stored, by time and by size."""

    def __init__(self, send: SendMany, *, max_delay: float, max_bytes: int, total_max_bytes: int) -> None:
        self._send = send
        self._max_delay = max_delay
        self._max_bytes = max_bytes
        self._total_max_bytes = total_max_bytes
        self._total = 0
        self._loop = asyncio.get_running_loop()
        self._gathering: dict[_Key, _Gathering] = {}
        self._sending: set[asyncio.Task[None]] = set()

    def takes(self, message: Message) -> bool:
        """Whether a message may wait here; if not, it is sent at once and alone."""
        return (
            self._total < self._total_max_bytes
            and len(message.body) <= self._max_bytes
            and names.PRODUCER_GROUP not in message.properties
            and names.SHARDING_KEY not in message.properties
            and not why_not_in_batches(message)
        )

    def add(self, message: Message, queue: MessageQueue | None) -> asyncio.Future[Receipt]:
        """What will become of the message."""
        properties = message.properties
        key: _Key = (message.topic, queue, properties.get(names.WAIT_STORE_OK), properties.get(names.TAGS))
        gathering = self._gathering.get(key)
        if gathering is None:
            gathering = self._gathering[key] = _Gathering()
            gathering.timer = self._loop.call_later(self._max_delay, self._flush, key)
        future: asyncio.Future[Receipt] = self._loop.create_future()
        size = ITEM_SIZE + len(message.body)
        gathering.messages.append(message)
        gathering.futures.append(future)
        gathering.bytes += size
        self._total += size
        if gathering.bytes > self._max_bytes:
            self._flush(key)
        return future

    async def room(self) -> None:
        """Wait until not too many batches are on their way, so that whoever fills them cannot run ahead of them."""
        while len(self._sending) >= MOST_SENDING:
            await asyncio.wait(self._sending, return_when=asyncio.FIRST_COMPLETED)

    async def close(self) -> None:
        """Send what waits, and wait until it is sent."""
        for key in tuple(self._gathering):
            self._flush(key)
        while self._sending:
            await asyncio.wait(self._sending)

    def _flush(self, key: _Key) -> None:
        gathering = self._gathering.pop(key)
        if gathering.timer is not None:
            gathering.timer.cancel()
        task = self._loop.create_task(self._send_gathered(gathering, key[1]))
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _send_gathered(self, gathering: _Gathering, queue: MessageQueue | None) -> None:
        futures = gathering.futures
        receipts: Sequence[Receipt] = ()
        try:
            receipts = await self._send(gathering.messages, queue)
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
            self._total -= gathering.bytes
            for future in futures:
                # Only where this task was cancelled is any of them still waiting.
                future.cancel()
