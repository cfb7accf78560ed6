"""Decorators that make handlers idempotent."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeAlias

from orbitmq.client.errors import InvalidMessageError
from orbitmq.client.validation import check_group
from orbitmq.database import is_for_asyncio
from orbitmq.idempotent.keys import by_message_id
from orbitmq.idempotent.once import Once, OnceForAsyncio

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine, async_sessionmaker
    from sqlalchemy.orm import sessionmaker

    from orbitmq.client.message import ReceivedMessage
    from orbitmq.idempotent.records import ConsumedMessages

    Database: TypeAlias = Engine | sessionmaker[Any] | AsyncEngine | async_sessionmaker[Any]
    Decorated: TypeAlias = Callable[[ReceivedMessage], Any]

DAY = 86400.0
KEEP = 7 * DAY
"""Longer than the default retention of brokers and the time of all retries."""
LEASE = 60.0


def idempotent(
    database: Database,
    *,
    group: str,
    key: Callable[[ReceivedMessage], str] = by_message_id,
    keep: float = KEEP,
    records: ConsumedMessages | None = None,
) -> Callable[[Callable[[ReceivedMessage, Any], Any]], Decorated]:
    """Run a handler in one transaction with the record that its message was consumed.

    ::

        @consumer.on("orders")
        @idempotent(engine, group="billing")
        def handle(message, connection):
            connection.execute(...)

    ``database`` is an engine, which gives the handler a connection, or a sessionmaker, which gives it a session. A
    coroutine function takes those of ``sqlalchemy.ext.asyncio``. If the handler raises, or returns a ConsumeResult
    of failure, its work is rolled back. ``key`` is the deduplication key of a message, ``group`` the consumer
    group, and the record is retained for ``keep`` seconds.
    """

    def decorate(handler: Callable[[ReceivedMessage, Any], Any]) -> Decorated:
        if inspect.iscoroutinefunction(handler):
            if not is_for_asyncio(database):
                raise InvalidMessageError(
                    f"{handler.__name__} is a coroutine function: give it an engine of "
                    "sqlalchemy.ext.asyncio.create_async_engine, or make it a plain function"
                )
            awaited = OnceForAsyncio(database, group, key, keep, records)

            @functools.wraps(handler)
            async def handle_async(message: ReceivedMessage) -> Any:
                return await awaited.in_transaction(message, handler)

            return handle_async
        _check_plain(database, handler)
        once = Once(database, group, key, keep, records)

        @functools.wraps(handler)
        def handle(message: ReceivedMessage) -> Any:
            return once.in_transaction(message, handler)

        return handle

    _check(group, keep=keep)
    return decorate


def idempotent_with_lease(
    database: Database,
    *,
    group: str,
    lease: float = LEASE,
    key: Callable[[ReceivedMessage], str] = by_message_id,
    keep: float = KEEP,
    records: ConsumedMessages | None = None,
) -> Callable[[Callable[[ReceivedMessage], Any]], Decorated]:
    """Make a handler, whose work is not in the database, do it once unless its process ends in the middle.

    ::

        @consumer.on("orders")
        @idempotent_with_lease(engine, group="mail", lease=60)
        def handle(message):
            send_mail(...)

    That it is in progress is written down first, and at the end that it is done. Should the message come again in
    between, it is put off. ``lease`` is longer than the handler ever takes: after it, the message is taken for
    abandoned and the work is done again. If the handler raises, or returns a ConsumeResult of failure, the message
    is new again. The rest is as for ``idempotent``, but a coroutine function may have a plain engine as well.
    """

    def decorate(handler: Callable[[ReceivedMessage], Any]) -> Decorated:
        if inspect.iscoroutinefunction(handler):
            awaited = OnceForAsyncio(database, group, key, keep, records)

            @functools.wraps(handler)
            async def handle_async(message: ReceivedMessage) -> Any:
                return await awaited.with_lease(message, handler, lease)

            return handle_async
        _check_plain(database, handler)
        once = Once(database, group, key, keep, records)

        @functools.wraps(handler)
        def handle(message: ReceivedMessage) -> Any:
            return once.with_lease(message, handler, lease)

        return handle

    _check(group, keep=keep, lease=lease)
    return decorate


def _check(group: str, **seconds: float) -> None:
    check_group(group)
    for name, value in seconds.items():
        if not value > 0:
            raise InvalidMessageError(f"{name} must be more than 0 seconds, not {value}")


def _check_plain(database: Database, handler: Callable[..., Any]) -> None:
    if is_for_asyncio(database):
        name = getattr(handler, "__name__", repr(handler))
        raise InvalidMessageError(
            f"{name} is a plain function: give it an engine of sqlalchemy.create_engine, or make it a coroutine "
            "function"
        )
