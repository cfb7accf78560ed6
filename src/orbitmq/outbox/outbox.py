"""Outbox for applications: adds messages in their transactions, and manages the backlog."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, cast, overload

import sqlalchemy as sa

from orbitmq.client.errors import InvalidMessageError
from orbitmq.database import database_time, dialect_of, is_for_asyncio, rows_changed
from orbitmq.outbox.rows import UnsentMessage, row_of
from orbitmq.outbox.table import DEFAULT_NAME, outbox_table

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Sequence

    from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession

    from orbitmq.client.message import Message
    from orbitmq.database import Executor

MAX_MESSAGE_SIZE = 4 << 20
"""Default limit of producers and brokers."""


@dataclasses.dataclass(frozen=True, slots=True)
class Backlog:
    """Unsent messages."""

    waiting: int
    failing: int
    """How many of them have failed at least once."""
    oldest: float
    """Age of the oldest in seconds."""


class Outbox:
    """A table of messages in a user's database.

    ::

        outbox = Outbox()
        outbox.create_table(engine)

        with engine.begin() as connection:
            connection.execute(insert(orders).values(id=42))
            outbox.add(connection, Message("orders", b"42"))

    A Relay sends the message if the transaction commits, and never if it rolls back.
    """

    def __init__(
        self,
        table: sa.Table | str = DEFAULT_NAME,
        *,
        schema: str | None = None,
        max_message_size: int = MAX_MESSAGE_SIZE,
    ) -> None:
        """``table`` is a table of ``outbox_table``, or a name. ``max_message_size`` is that of the producer."""
        named = outbox_table(sa.MetaData(), table, schema=schema) if isinstance(table, str) else table
        self.table = named
        self._max_bytes = max_message_size
        self._insert = sa.insert(named).values(
            created_at=database_time(), due_at=database_time(), failures=0, taken_by=None, sent_at=None
        )

    def create_table(self, bind: sa.Engine | sa.Connection) -> None:
        """Create the table if missing. With asyncio: ``await connection.run_sync(outbox.create_table)``."""
        self.table.create(bind, checkfirst=True)

    # Adding

    @overload
    def add(self, connection: Executor, message: Message) -> str: ...

    @overload
    def add(self, connection: AsyncConnection | AsyncSession, message: Message) -> Coroutine[Any, Any, str]: ...

    def add(
        self, connection: Executor | AsyncConnection | AsyncSession, message: Message
    ) -> str | Coroutine[Any, Any, str]:
        """Add a message in the transaction of a connection or session; with one of asyncio, this is awaited.

        Returns the ``message_id`` that consumers will see, the same for every resend. Raises InvalidMessageError
        for a message that cannot be sent.
        """
        if _is_awaited(connection):
            return cast("AsyncConnection", connection).run_sync(self.add, message)
        return self.add_all(cast("Executor", connection), [message])[0]

    @overload
    def add_all(self, connection: Executor, messages: Iterable[Message]) -> list[str]: ...

    @overload
    def add_all(
        self, connection: AsyncConnection | AsyncSession, messages: Iterable[Message]
    ) -> Coroutine[Any, Any, list[str]]: ...

    def add_all(
        self, connection: Executor | AsyncConnection | AsyncSession, messages: Iterable[Message]
    ) -> list[str] | Coroutine[Any, Any, list[str]]:
        """``add`` for many messages, in one statement."""
        if _is_awaited(connection):
            return cast("AsyncConnection", connection).run_sync(self.add_all, messages)
        executor = cast("Executor", connection)
        rows = [row_of(message, self._max_bytes) for message in messages]
        if rows:
            dialect_of(executor)
            executor.execute(self._insert, rows)
        return [row["message_id"] for row in rows]

    # Operations

    def backlog(self, connection: Executor) -> Backlog:
        """Number and age of unsent messages."""
        columns = self.table.c
        failing = sa.func.count(sa.case((columns.failures > 0, 1)))
        age = database_time() - sa.func.min(columns.created_at)
        found = sa.select(sa.func.count(), failing, age).where(columns.due_at.is_not(None))
        waiting, failures, oldest = connection.execute(found).one()
        return Backlog(waiting, failures, max(0, oldest or 0) / 1000)

    def failing(self, connection: Executor, *, failures: int = 1, limit: int = 100) -> Sequence[UnsentMessage]:
        """Messages with at least ``failures`` failures, oldest first."""
        columns = self.table.c
        names = ("id", "message_id", "topic", "failures", "last_error", "created_at")
        found = (
            sa.select(*(columns[name] for name in names))
            .where(columns.due_at.is_not(None), columns.failures >= failures)
            .order_by(columns.id)
            .limit(limit)
        )
        return [UnsentMessage.of(row) for row in connection.execute(found)]

    def send_soon(self, connection: Executor, id_: int) -> bool:
        """Retry a failed message at once. False if it does not exist or is claimed by a relay."""
        columns = self.table.c
        chosen = sa.update(self.table).where(columns.id == id_, columns.due_at.is_not(None))
        return rows_changed(connection, chosen.where(columns.taken_by.is_(None)).values(due_at=database_time())) > 0

    def discard(self, connection: Executor, id_: int) -> bool:
        """Delete an unsent message, which unblocks later ones of its ordering key. False if it does not exist."""
        columns = self.table.c
        chosen = sa.delete(self.table).where(columns.id == id_, columns.due_at.is_not(None))
        return rows_changed(connection, chosen) > 0


def _is_awaited(connection: object) -> bool:
    if isinstance(connection, sa.Engine) or not hasattr(connection, "execute"):
        raise InvalidMessageError(
            "give the outbox the connection or session of your own transaction, as in `with engine.begin() as "
            f"connection`, and not {type(connection).__name__}"
        )
    return is_for_asyncio(connection)
