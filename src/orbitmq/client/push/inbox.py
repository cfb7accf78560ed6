"""Inbox: the messages of ``async for message in consumer``, in the place of a handler."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitmq.client.consumer.result import ConsumeResult
from orbitmq.client.errors import OrbitMQError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.client.message import ReceivedMessage


class NotTakenError(OrbitMQError):
    """The consumer was closed before the loop took the message: it stays where it is."""


class Inbox:
    """Hands messages to loops. Each counts as consumed when its loop asks for the next one."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[tuple[ReceivedMessage, asyncio.Future[ConsumeResult]] | None] = asyncio.Queue()
        self._is_closed = False

    async def handle(self, message: ReceivedMessage) -> ConsumeResult:
        """The handler: returns when a loop has consumed the message, or was left with it."""
        if self._is_closed:
            raise NotTakenError("the consumer is closed")
        consumed: asyncio.Future[ConsumeResult] = asyncio.get_running_loop().create_future()
        self._waiting.put_nowait((message, consumed))
        return await consumed

    async def messages(self) -> AsyncIterator[ReceivedMessage]:
        """The messages of one loop, until the consumer is closed."""
        while (entry := await self._waiting.get()) is not None:
            message, consumed = entry
            if consumed.done():
                # Its handler timed out, or its queue was released.
                continue
            try:
                yield message
            except BaseException:
                if not consumed.done():
                    consumed.set_result(ConsumeResult.LATER)
                raise
            if not consumed.done():
                consumed.set_result(ConsumeResult.SUCCESS)
        # For the other loops.
        self._waiting.put_nowait(None)

    def close(self) -> None:
        """End the loops, and leave the messages that none has taken."""
        self._is_closed = True
        while not self._waiting.empty():
            entry = self._waiting.get_nowait()
            if entry is not None and not entry[1].done():
                entry[1].set_exception(NotTakenError("the consumer is closed"))
        self._waiting.put_nowait(None)
