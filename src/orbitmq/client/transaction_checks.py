"""Answers to brokers that ask what became of transactions: a few at a time, and never more than so many waiting."""

from __future__ import annotations

import asyncio
import collections
import dataclasses
import inspect
import logging
from typing import TYPE_CHECKING

from orbitmq.client.consume_threads import ConsumeThreads
from orbitmq.client.transaction import TransactionState, state_of
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.client.messages import ReceivedMessage
    from orbitmq.client.transaction import Check
    from orbitmq.protocol.command import Command
    from orbitmq.remoting import Connection

log = logging.getLogger("orbitmq.client")

MOST_WAITING = 2000
"""Questions, as in Java's clients. Further ones are not answered: the broker asks again."""


@dataclasses.dataclass(slots=True)
class Question:
    """What a broker wants to know, and over which connection."""

    connection: Connection
    message: ReceivedMessage
    fields: dict[str, str]


class TransactionChecks:
    """Calls the application's check. Plain functions are called in threads, coroutine functions on the loop."""

    def __init__(
        self,
        name: str,
        check: Check,
        at_a_time: int,
        checked: Callable[[Question, Command, TransactionState], None] | None = None,
    ) -> None:
        """``checked`` is told what is answered, before it is."""
        self._check = check
        self._checked = checked
        self._at_a_time = at_a_time
        self._threads = (
            None
            if inspect.iscoroutinefunction(check)
            else ConsumeThreads(name, at_a_time, "TransactionCheckThread")
        )
        self._waiting: collections.deque[tuple[Question, Command]] = collections.deque()
        self._running: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def ask(self, question: Question, answer: Command) -> None:
        """Have a question answered with this command, once what it says is known."""
        if self._is_closed or len(self._waiting) >= MOST_WAITING:
            log.warning("a question about the transaction %s is left: too many wait", question.message.message_id)
            return
        self._waiting.append((question, answer))
        self._go_on()

    def _go_on(self) -> None:
        while self._waiting and len(self._running) < self._at_a_time and not self._is_closed:
            task = asyncio.get_running_loop().create_task(self._answer(*self._waiting.popleft()))
            self._running.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._go_on()

    async def _answer(self, question: Question, answer: Command) -> None:
        message = question.message
        state = TransactionState.UNKNOWN
        try:
            state = state_of(await self._ask_application(message))
        except Exception as error:
            log.exception("what became of the transaction %s could not be checked", message.message_id)
            answer.remark = f"checkLocalTransactionState Exception: {type(error).__name__}: {error}"
        answer.ext_fields["commitOrRollback"] = str(state.value)
        if self._checked is not None:
            self._checked(question, answer, state)
        try:
            question.connection.call_oneway(answer)
        except RemotingError as error:
            log.warning("the broker was not told of the transaction %s: %s", message.message_id, error)

    async def _ask_application(self, message: ReceivedMessage) -> object:
        if self._threads is not None:
            return await self._threads.call(self._check, message)
        said = self._check(message)
        return await said if inspect.isawaitable(said) else said

    async def close(self) -> None:
        """Answer no more. What is being checked now, others are asked about later."""
        self._is_closed = True
        self._waiting.clear()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        if self._threads is not None:
            for name in self._threads.close():
                log.warning("%s goes on: its check has not returned", name)
