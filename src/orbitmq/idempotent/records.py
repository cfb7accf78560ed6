"""Records of consumed messages: new, in progress or done."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

import sqlalchemy as sa

from orbitmq.database import database_time, delete_some, dialect_of, insert_unless_there, rows_changed
from orbitmq.idempotent.keys import digest
from orbitmq.idempotent.table import DEFAULT_NAME, KEY_LENGTH, consumed_table

if TYPE_CHECKING:
    from typing import Any

    from orbitmq.database import Executor


class State(enum.Enum):
    """State of a message."""

    NEW = "new"
    IN_PROGRESS = "in progress"
    DONE = "done"


class ConsumedMessages:
    """The table of consumed messages. Every method runs in its caller's transaction."""

    def __init__(self, table: sa.Table | str = DEFAULT_NAME, *, schema: str | None = None) -> None:
        """``table`` is a table of ``consumed_table``, or a name."""
        self.table = consumed_table(sa.MetaData(), table, schema=schema) if isinstance(table, str) else table

    def create_table(self, bind: sa.Engine | sa.Connection) -> None:
        """Create the table if missing. With asyncio: ``await connection.run_sync(records.create_table)``."""
        self.table.create(bind, checkfirst=True)

    def state(self, connection: Executor, group: str, topic: str, key: str) -> State:
        """The state of a message. One with an expired lease is in progress until it is claimed again."""
        found = sa.select(self.table.c.done_at).where(self.table.c.id == digest(group, topic, key))
        row = connection.execute(found).one_or_none()
        if row is None:
            return State.NEW
        return State.IN_PROGRESS if row.done_at is None else State.DONE

    def forget(self, connection: Executor, group: str, topic: str, key: str) -> bool:
        """Delete the record of a message, so that it is new. False if it has none."""
        return rows_changed(connection, sa.delete(self.table).where(self._is(group, topic, key))) > 0

    # For the decorators

    def begin_and_end(self, connection: Executor, group: str, topic: str, key: str, *, keep: float) -> State:
        """Record a message as done, in the transaction that processes it. Returns NEW if it was not done before.

        Waits for the end of a concurrent transaction with the same message.
        """
        done = {"owner": None, "lease_until": None, "done_at": database_time(), "expires_at": database_time(keep)}
        return self._begin(connection, group, topic, key, done)

    def begin(
        self, connection: Executor, group: str, topic: str, key: str, *, owner: str, lease: float, keep: float
    ) -> State:
        """Record a message as in progress. Returns NEW if the owner has it until the lease expires."""
        values = {
            "owner": owner,
            "lease_until": database_time(lease),
            "done_at": None,
            "expires_at": database_time(lease + keep),
        }
        return self._begin(connection, group, topic, key, values)

    def _begin(self, connection: Executor, group: str, topic: str, key: str, values: dict[str, Any]) -> State:
        readable = key.replace("\x00", "").encode("utf-8", "replace").decode()[:KEY_LENGTH]
        names = {"id": digest(group, topic, key), "consumer_group": group, "topic": topic, "message_key": readable}
        insert = insert_unless_there(dialect_of(connection), self.table).values({**names, **values})
        if rows_changed(connection, insert):
            return State.NEW
        # Read before the update: in MySQL all transactions that waited for the row share a lock on it, and two
        # updates would deadlock.
        if self.state(connection, group, topic, key) is State.DONE:
            return State.DONE
        columns = self.table.c
        abandoned = sa.and_(columns.done_at.is_(None), columns.lease_until <= database_time())
        take_over = sa.update(self.table).where(self._is(group, topic, key), abandoned).values(values)
        # If the owner has failed or finished meanwhile, the redelivery resolves it.
        return State.NEW if rows_changed(connection, take_over) else State.IN_PROGRESS

    def end(self, connection: Executor, group: str, topic: str, key: str, *, keep: float) -> bool:
        """Record a message in progress as done. False if it has no record or is done already."""
        # Whatever the owner is now: the work is done.
        chosen = sa.update(self.table).where(self._is(group, topic, key), self.table.c.done_at.is_(None))
        done = {"owner": None, "lease_until": None, "done_at": database_time(), "expires_at": database_time(keep)}
        return rows_changed(connection, chosen.values(done)) > 0

    def give_up(self, connection: Executor, group: str, topic: str, key: str, *, owner: str) -> bool:
        """Delete the record after the owner's failure. False if it belongs to another owner."""
        chosen = sa.delete(self.table).where(self._is(group, topic, key), self.table.c.owner == owner)
        return rows_changed(connection, chosen.where(self.table.c.done_at.is_(None))) > 0

    def _is(self, group: str, topic: str, key: str) -> sa.ColumnElement[bool]:
        return self.table.c.id == digest(group, topic, key)

    def clean(self, connection: Executor) -> int:
        """Delete some expired rows; returns how many. The decorators call it periodically."""
        return delete_some(connection, self.table, self.table.c.expires_at <= database_time())
