"""Processing a message once: in one transaction with the work, or with a lease around it."""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
import uuid
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy.exc import SQLAlchemyError

from orbitmq.client.consumer.result import ConsumeResult, result_of
from orbitmq.client.errors import InvalidMessageError
from orbitmq.client.message import ReceivedMessage
from orbitmq.database import is_for_asyncio
from orbitmq.idempotent.records import ConsumedMessages, State

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.database import Executor

T = TypeVar("T")

log = logging.getLogger("orbitmq.idempotent")

CLEAN_INTERVAL = 60.0


class _NotDoneError(Exception):
    """Rolls back the transaction of a handler that returned a failure."""

    def __init__(self, result: ConsumeResult) -> None:
        super().__init__(result)
        self.result = result


class _ConsumptionRecord:
    """The record of one message, as functions to run in a transaction."""

    def __init__(self, records: ConsumedMessages, group: str, topic: str, key: str, keep: float) -> None:
        self._records = records
        self._names = group, topic, key
        self._keep = keep
        self._owner = uuid.uuid4().hex

    def begin_and_end(self, connection: Executor) -> State:
        return self._records.begin_and_end(connection, *self._names, keep=self._keep)

    def begin(self, connection: Executor, lease: float) -> State:
        return self._records.begin(connection, *self._names, owner=self._owner, lease=lease, keep=self._keep)

    def end(self, connection: Executor) -> None:
        if not self._records.end(connection, *self._names, keep=self._keep):
            log.warning("idempotent: %s exceeded its lease and may have been consumed twice", self._names)

    def give_up(self, connection: Executor) -> None:
        self._records.give_up(connection, *self._names, owner=self._owner)


class _IdempotentHandler:
    """Common part of blocking and asyncio handlers."""

    def __init__(
        self,
        database: Any,
        group: str,
        key: Callable[[ReceivedMessage], str],
        keep: float,
        records: ConsumedMessages | None,
    ) -> None:
        self._database = database
        self._group = group
        self._key = key
        self._keep = keep
        self._records = ConsumedMessages() if records is None else records
        self._next_clean = time.monotonic() + CLEAN_INTERVAL

    def _record_of(self, message: ReceivedMessage) -> _ConsumptionRecord:
        if not isinstance(message, ReceivedMessage):
            raise InvalidMessageError(
                "an idempotent handler takes one message at a time: subscribe it with batch=False, or leave "
                "consume_message_batch_max_size at 1"
            )
        key: object = self._key(message)
        if not isinstance(key, str) or not key:
            raise InvalidMessageError(f"the key of a message must be a non-empty text, not {key!r}")
        return _ConsumptionRecord(self._records, self._group, message.topic, key, self._keep)

    def _is_clean_due(self) -> bool:
        now = time.monotonic()
        if now < self._next_clean:
            return False
        self._next_clean = now + CLEAN_INTERVAL
        return True


class Once(_IdempotentHandler):
    """Handlers that are plain functions."""

    def in_transaction(self, message: ReceivedMessage, handler: Callable[[ReceivedMessage, Any], Any]) -> Any:
        record = self._record_of(message)
        try:
            with self._database.begin() as connection:
                state = record.begin_and_end(connection)
                if state is not State.NEW:
                    return _answer(state)
                returned = _checked(handler(message, connection))
        except _NotDoneError as not_done:
            return not_done.result
        self._clean()
        return returned

    def with_lease(self, message: ReceivedMessage, handler: Callable[[ReceivedMessage], Any], lease: float) -> Any:
        record = self._record_of(message)
        state = self._do(lambda connection: record.begin(connection, lease))
        if state is not State.NEW:
            return _answer(state)
        try:
            returned = _checked(handler(message))
        except _NotDoneError as not_done:
            self._do(record.give_up)
            return not_done.result
        except BaseException:
            self._do(record.give_up)
            raise
        self._do(record.end)
        self._clean()
        return returned

    def _do(self, work: Callable[[Executor], T]) -> T:
        with self._database.begin() as connection:
            return work(connection)

    def _clean(self) -> None:
        if self._is_clean_due():
            try:
                self._do(self._records.clean)
            except SQLAlchemyError as error:
                log.warning("idempotent: deleting expired records failed, will retry: %s", error)


class OnceForAsyncio(_IdempotentHandler):
    """Handlers that are coroutine functions."""

    async def in_transaction(
        self, message: ReceivedMessage, handler: Callable[[ReceivedMessage, Any], Awaitable[Any]]
    ) -> Any:
        record = self._record_of(message)
        try:
            async with self._database.begin() as connection:
                state = await connection.run_sync(record.begin_and_end)
                if state is not State.NEW:
                    return _answer(state)
                returned = _checked(await handler(message, connection))
        except _NotDoneError as not_done:
            return not_done.result
        await self._clean()
        return returned

    async def with_lease(
        self, message: ReceivedMessage, handler: Callable[[ReceivedMessage], Awaitable[Any]], lease: float
    ) -> Any:
        record = self._record_of(message)
        state = await self._do(lambda connection: record.begin(connection, lease))
        if state is not State.NEW:
            return _answer(state)
        try:
            returned = _checked(await handler(message))
        except _NotDoneError as not_done:
            await self._do(record.give_up)
            return not_done.result
        except BaseException:
            await self._do(record.give_up)
            raise
        await self._do(record.end)
        await self._clean()
        return returned

    async def _do(self, work: Callable[[Executor], T]) -> T:
        if not is_for_asyncio(self._database):
            return await asyncio.to_thread(self._do_here, work)
        async with self._database.begin() as connection:
            done: T = await connection.run_sync(work)
            return done

    def _do_here(self, work: Callable[[Executor], T]) -> T:
        with self._database.begin() as connection:
            return work(connection)

    async def _clean(self) -> None:
        if self._is_clean_due():
            try:
                await self._do(self._records.clean)
            except SQLAlchemyError as error:
                log.warning("idempotent: deleting expired records failed, will retry: %s", error)


def _answer(state: State) -> ConsumeResult:
    """The consume result of a message that is not new."""
    return ConsumeResult.SUCCESS if state is State.DONE else ConsumeResult.LATER


def _checked(returned: Any) -> Any:
    """The return value of a handler if it means success. Raises _NotDoneError."""
    if inspect.isawaitable(returned):
        if inspect.iscoroutine(returned):
            returned.close()
        raise InvalidMessageError("the handler returned an awaitable: make it a coroutine function")
    result = result_of(returned)
    if not result.done_of(1):
        raise _NotDoneError(result)
    return returned
