"""Planted errors, of the kinds that brokers and clients have had: the simulation has to find each of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any
from unittest import mock

from orbitmq.broker.pop.revive import ReviveService
from orbitmq.broker.transaction.half_state import COMMITTED
from orbitmq.broker.transaction.processor import Transactions
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.consumer.send_back import SendBack
from orbitmq.store.background.service import StoreService

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    Plant = Callable[[], AbstractContextManager[Any]]


def acknowledge_before_the_flush() -> AbstractContextManager[Any]:
    """Under SYNC_FLUSH, the answer leaves while the message is in the page cache only."""

    def flushed(_: StoreService, __: int) -> asyncio.Future[None]:
        future = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    return mock.patch.object(StoreService, "flushed", flushed)


def commit_offsets_of_messages_in_hand() -> AbstractContextManager[Any]:
    """A consumer commits what it has pulled, and not what was consumed."""
    return mock.patch.object(ProcessQueue, "consumed_to", property(lambda queue: queue.next_offset))


def forget_what_was_not_acknowledged() -> AbstractContextManager[Any]:
    """Popped messages are not redelivered."""
    return mock.patch.object(ReviveService, "_redeliver", return_value=None)


def deliver_what_was_rolled_back() -> AbstractContextManager[Any]:
    """The broker takes every end of a transaction for a commit."""
    end = Transactions._end
    return mock.patch.object(Transactions, "_end", lambda self, _, fields: end(self, COMMITTED, fields))


def lose_retries() -> AbstractContextManager[Any]:
    """A consumer believes that a failed message has gone back to the broker."""

    async def send_back(*_: object) -> None:
        """Nothing is sent."""

    return mock.patch.object(SendBack, "send_back", send_back)


PLANTED = [
    acknowledge_before_the_flush,
    commit_offsets_of_messages_in_hand,
    forget_what_was_not_acknowledged,
    deliver_what_was_rolled_back,
    lose_retries,
]
