"""Responder to transaction checks of brokers, with limited concurrency and a limited queue."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import inspect
import logging
from typing import TYPE_CHECKING

from orbitmq.client.consumer.thread_pool import ConsumeThreads
from orbitmq.client.transaction.transaction import TransactionState, state_of
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.client.message import ReceivedMessage
    from orbitmq.client.transaction.transaction import Check
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection

log = logging.getLogger("orbitmq.client")

MAX_WAITING = 2000
"""Maximum of waiting checks, as in Java's clients. Further ones are dropped: the broker checks again."""


@dataclasses.dataclass(slots=True)
class TransactionCheck:
    """A check request, and the connection for its response."""

    connection: Connection
    message: ReceivedMessage
    fields: dict[str, str]


class CheckResponder:
    """Calls the application's check function: plain functions in threads, coroutine functions on the loop."""

    def __init__(
        self,
        name: str,
        check: Check,
        at_a_time: int,
        checked: Callable[[TransactionCheck, Command, TransactionState], None] | None = None,
    ) -> None:
        """``checked`` is called with the response before it is sent."""
        self._check_function = check
        self._checked = checked
        self._at_a_time = at_a_time
        self._threads = (
            None
            if inspect.iscoroutinefunction(check)
            else ConsumeThreads(name, at_a_time, "TransactionCheckThread")
        )
        self._waiting: collections.deque[tuple[TransactionCheck, Command]] = collections.deque()
        self._running: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def submit(self, check: TransactionCheck, answer: Command) -> None:
        """Queue a check. ``answer`` is the response to complete and send."""
        if self._is_closed or len(self._waiting) >= MAX_WAITING:
            log.warning("transaction check: dropped %s, too many are waiting", check.message.message_id)
            return
        self._waiting.append((check, answer))
        self._start_next()

    def _start_next(self) -> None:
        while self._waiting and len(self._running) < self._at_a_time and not self._is_closed:
            task = asyncio.get_running_loop().create_task(self._respond(*self._waiting.popleft()))
            self._running.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._start_next()

    async def _respond(self, check: TransactionCheck, answer: Command) -> None:
        message = check.message
        state = TransactionState.UNKNOWN
        try:
            state = state_of(await self._call_application(message))
        except Exception as error:
            log.exception("transaction check: check function failed for %s", message.message_id)
            answer.remark = f"checkLocalTransactionState Exception: {type(error).__name__}: {error}"
        answer.ext_fields["commitOrRollback"] = str(state.value)
        if self._checked is not None:
            self._checked(check, answer, state)
        try:
            check.connection.call_oneway(answer)
        except RemotingError as error:
            log.warning("transaction check: response for %s not sent: %s", message.message_id, error)

    async def _call_application(self, message: ReceivedMessage) -> object:
        if self._threads is not None:
            return await self._threads.call(self._check_function, message)
        state = self._check_function(message)
        return await state if inspect.isawaitable(state) else state

    async def close(self) -> None:
        """Stop responding. Brokers repeat open checks with other producers."""
        self._is_closed = True
        self._waiting.clear()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        if self._threads is not None:
            for name in self._threads.close():
                log.warning("transaction check: %s has not returned", name)
