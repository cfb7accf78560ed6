"""What is written down about messages that are or were consumed: new, in progress or done."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import sqlalchemy as sa

from orbitmq.idempotent.keys import digest
from orbitmq.idempotent.table import DEFAULT_NAME, KEY_LENGTH, consumed_table
from orbitmq.user_database import database_time, delete_some, dialect_of, insert_unless_there, rows_changed

if TYPE_CHECKING:
    from typing import Any

    from orbitmq.user_database import Executor


class State(enum.Enum):
    """What is known of a message."""

    NEW = "new"
    IN_PROGRESS = "in progress"
    DONE = "done"


class ConsumedMessages:
    """The table of consumed messages in a user's database. Every method works in its caller's transaction."""

    def __init__(self, table: sa.Table | str = DEFAULT_NAME, *, schema: str | None = None) -> None:
        """``table`` is one of ``consumed_table``, or the name of one."""
        self.table = consumed_table(sa.MetaData(), table, schema=schema) if isinstance(table, str) else table

    def create_table(self, bind: sa.Engine | sa.Connection) -> None:
        """Make the table if it is not there. With asyncio: ``await connection.run_sync(records.create_table)``."""
        self.table.create(bind, checkfirst=True)

    def state(self, connection: Executor, group: str, topic: str, key: str) -> State:
        """What is known of a message. One whose lease is over is in progress until somebody takes it."""
        found = sa.select(self.table.c.done_at).where(self.table.c.id == digest(group, topic, key))
        row = connection.execute(found).one_or_none()
        if row is None:
            return State.NEW
        return State.IN_PROGRESS if row.done_at is None else State.DONE

    def forget(self, connection: Executor, group: str, topic: str, key: str) -> bool:
        """Let a message be new again. False if it is."""
        return rows_changed(connection, sa.delete(self.table).where(self._is(group, topic, key))) > 0

    # What the decorators ask

    def begin_and_end(self, connection: Executor, group: str, topic: str, key: str, *, keep: float) -> State:
        """Write down that a message is done, in the transaction that does it. NEW: it was not done before.

        If another transaction is just doing it, this waits for what becomes of that one.
        """
        done = {"owner": None, "lease_until": None, "done_at": database_time(), "expires_at": database_time(keep)}
        return self._begin(connection, group, topic, key, done)

    def begin(
        self, connection: Executor, group: str, topic: str, key: str, *, owner: str, lease: float, keep: float
    ) -> State:
        """Write down that a message is in progress. NEW: it is the owner's, until the lease is over."""
        values = {
            "owner": owner,
            "lease_until": database_time(lease),
            "done_at": None,
            "expires_at": database_time(lease + keep),
        }
        return self._begin(connection, group, topic, key, values)

    def _begin(self, connection: Executor, group: str, topic: str, key: str, values: dict[str, Any]) -> State:
        shown = key.replace("\x00", "").encode("utf-8", "replace").decode()[:KEY_LENGTH]
        names = {"id": digest(group, topic, key), "consumer_group": group, "topic": topic, "message_key": shown}
        insert = insert_unless_there(dialect_of(connection), self.table).values({**names, **values})
        if rows_changed(connection, insert):
            return State.NEW
        # Looked at before it is changed: in MySQL all who have waited for the row share a lock on it by now, and of
        # two that want to change it one would be sent away.
        if self.state(connection, group, topic, key) is State.DONE:
            return State.DONE
        columns = self.table.c
        abandoned = sa.and_(columns.done_at.is_(None), columns.lease_until <= database_time())
        take_over = sa.update(self.table).where(self._is(group, topic, key), abandoned).values(values)
        # If who had it has failed or finished in between, the message comes again soon enough.
        return State.NEW if rows_changed(connection, take_over) else State.IN_PROGRESS

    def end(self, connection: Executor, group: str, topic: str, key: str, *, keep: float) -> bool:
        """Write down that a message in progress is done. False if nobody knows of it, or knows already."""
        # Whoever has it by now: done it is.
        chosen = sa.update(self.table).where(self._is(group, topic, key), self.table.c.done_at.is_(None))
        done = {"owner": None, "lease_until": None, "done_at": database_time(), "expires_at": database_time(keep)}
        return rows_changed(connection, chosen.values(done)) > 0

    def give_up(self, connection: Executor, group: str, topic: str, key: str, *, owner: str) -> bool:
        """Let a message be new again that its owner has failed to consume. False if it is not the owner's."""
        chosen = sa.delete(self.table).where(self._is(group, topic, key), self.table.c.owner == owner)
        return rows_changed(connection, chosen.where(self.table.c.done_at.is_(None))) > 0

    def _is(self, group: str, topic: str, key: str) -> sa.ColumnElement[bool]:
        return self.table.c.id == digest(group, topic, key)

    def clean(self, connection: Executor) -> int:
        """Delete rows whose time is over, some at a time; how many there were. The decorators do it at times."""
        return delete_some(connection, self.table, self.table.c.expires_at <= database_time())
