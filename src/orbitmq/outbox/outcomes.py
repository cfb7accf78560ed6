"""Outcomes of claimed messages, and the statements that record them in the table."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import sqlalchemy as sa

from orbitmq.database import database_time, delete_some
from orbitmq.outbox.table import ERROR_LENGTH

if TYPE_CHECKING:
    from orbitmq.client.errors import NotRunningError
    from orbitmq.outbox.relay_config import RelayConfig
    from orbitmq.outbox.rows import ClaimedMessage


@dataclasses.dataclass(slots=True)
class Failure:
    """A failed send."""

    taken: ClaimedMessage
    error: BaseException | str

    @property
    def failures(self) -> int:
        """Number of failures, including this one."""
        return self.taken.failures + 1

    @property
    def text(self) -> str:
        text = self.error if isinstance(self.error, str) else f"{type(self.error).__name__}: {self.error}"
        # PostgreSQL cannot store the character 0.
        return text.replace("\x00", "")[:ERROR_LENGTH]


@dataclasses.dataclass(slots=True)
class Outcome:
    """Outcomes of one claim."""

    sent: list[ClaimedMessage] = dataclasses.field(default_factory=list)
    failed: list[Failure] = dataclasses.field(default_factory=list)
    held: list[ClaimedMessage] = dataclasses.field(default_factory=list)
    """Released without an attempt: an earlier one of their ordering key failed, or the time was up."""
    closed: NotRunningError | None = None
    """The producer is closed."""


class OutcomeStatements:
    """Statements that record outcomes."""

    def __init__(self, table: sa.Table, config: RelayConfig) -> None:
        self._table = table
        self._config = config

    def record(self, connection: sa.Connection, outcome: Outcome, name: str) -> None:
        """Record an outcome. ``name`` is the name of the claim."""
        if outcome.sent:
            connection.execute(self.sent([taken.id for taken in outcome.sent]))
        if outcome.held:
            connection.execute(self.held([taken.id for taken in outcome.held], name))
        for failure in outcome.failed:
            connection.execute(self.failed(failure, name))

    def sent(self, ids: list[int]) -> sa.Update:
        # Also if the lease is over and another relay has claimed it: it was sent.
        chosen = sa.update(self._table).where(self._table.c.id.in_(ids), self._table.c.due_at.is_not(None))
        return chosen.values(due_at=None, lane=None, taken_by=None, last_error=None, sent_at=database_time())

    def held(self, ids: list[int], name: str) -> sa.Update:
        columns = self._table.c
        chosen = sa.update(self._table).where(columns.id.in_(ids), columns.taken_by == name)
        return chosen.values(due_at=database_time(), taken_by=None)

    def failed(self, failure: Failure, name: str) -> sa.Update:
        columns = self._table.c
        chosen = sa.update(self._table).where(columns.id == failure.taken.id, columns.taken_by == name)
        return chosen.values(
            due_at=database_time(self._config.retry_after(failure.failures)),
            taken_by=None,
            failures=failure.failures,
            last_error=failure.text,
        )

    def clean(self, connection: sa.Connection) -> int:
        """Delete some messages whose retention is over; returns how many."""
        if self._config.keep_sent is None:
            return 0
        return delete_some(connection, self._table, self._table.c.sent_at <= database_time(-self._config.keep_sent))
