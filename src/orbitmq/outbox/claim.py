"""Claims of outbox messages: no two relays claim the same message, nor two messages of one ordering key.

Messages of a topic with the same sharding key have one ordering key (column ``lane``). To claim any of them, a
relay has to lock the head, the first unsent one; it claims those behind it as well, up to the batch size. If the
head is locked, a relay skips the ordering key. So a relay sends a message only after all before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from orbitmq.database import database_time, lock_for_writing
from orbitmq.outbox.rows import ClaimedMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orbitmq.outbox.relay_config import RelayConfig

WINDOW = 1000
"""Number of the oldest due messages that are scanned first. If too few of them are heads, the whole table is
scanned, which is slow with a large backlog."""

SPARE = 4
"""Factor of candidates to claims, because other relays compete for the same ones."""


class _ClaimableRow(NamedTuple):
    """A row that may be claimed."""

    id: int
    lane: int | None
    size: int


class ClaimStatements:
    """Statements that claim messages."""

    def __init__(self, table: sa.Table, config: RelayConfig) -> None:
        self._table = table
        self._config = config
        columns = table.c
        self._is_due = columns.due_at <= database_time()
        self._rows = sa.select(columns.id, columns.lane, sa.func.length(columns.body).label("size"))

    def candidates(self, connection: sa.Connection) -> list[int]:
        """Ids of due heads of ordering keys. Nothing is locked."""
        wanted = SPARE * self._config.batch_size
        if not self._config.in_order:
            return list(connection.scalars(self.due_rows(wanted)))
        seen = connection.execute(self.first_rows(WINDOW)).all()
        heads = [row.id for row in seen if not row.is_behind]
        if len(heads) >= self._config.batch_size or len(seen) < WINDOW:
            return heads[:wanted]
        ordering_keys = {row.lane for row in seen if not row.is_behind}
        with_followers = len(heads) + sum(row.is_behind and row.lane in ordering_keys for row in seen)
        if with_followers >= self._config.batch_size:
            return heads
        return list(connection.scalars(self.all_heads(wanted)))

    def due_rows(self, most: int) -> sa.Select[int]:
        columns = self._table.c
        return sa.select(columns.id).where(self._is_due).order_by(columns.due_at, columns.id).limit(most)

    def first_rows(self, most: int) -> sa.Select[int, int | None, bool]:
        """The longest due rows, and whether others of their ordering keys come before them."""
        columns = self._table.c
        first = (
            sa.select(columns.id, columns.lane, columns.due_at)
            .where(self._is_due)
            .order_by(columns.due_at, columns.id)
            .limit(most)
            .subquery()
        )
        is_behind = self._is_behind(first).label("is_behind")
        return sa.select(first.c.id, first.c.lane, is_behind).order_by(first.c.due_at, first.c.id)

    def all_heads(self, most: int) -> sa.Select[int]:
        behind = self._is_behind(self._table)
        return self.due_rows(most).where(sa.or_(self._table.c.lane.is_(None), ~behind))

    def _is_behind(self, rows: sa.FromClause) -> sa.Exists:
        # Sent rows have no ordering key.
        earlier = self._table.alias("earlier")
        has_same_key = sa.and_(earlier.c.lane == rows.c.lane, earlier.c.id < rows.c.id)
        return sa.exists(sa.select(earlier.c.id).where(has_same_key).correlate(rows))

    def claim(self, connection: sa.Connection, candidates: Sequence[int], name: str) -> list[list[ClaimedMessage]]:
        """Claim candidates and those behind them, in a transaction that commits before anything is sent.

        Each list has one ordering key, in order. Candidates that another relay has claimed are left out.
        """
        config = self._config
        lock_for_writing(connection, self._table)
        heads = [
            _ClaimableRow(*row) for row in connection.execute(self.locked_heads(candidates, config.batch_size))
        ]
        room = config.batch_size - len(heads)
        ordering_keys = {head.lane for head in heads if head.lane is not None}
        behind: list[_ClaimableRow] = []
        if room and ordering_keys and config.in_order:
            known = connection.execute(self.rows_behind(ordering_keys, [head.id for head in heads], room)).all()
            mine = connection.execute(self.locked_behind([row.id for row in known], ordering_keys)) if known else ()
            behind = _unblocked(known, mine)
        ids = [place.id for place in _within_size([*heads, *behind], config.batch_bytes)]
        if not ids:
            return []
        connection.execute(
            sa.update(self._table)
            .where(self._table.c.id.in_(ids))
            .values(due_at=database_time(config.lease), taken_by=name)
        )
        whole = sa.select(self._table).where(self._table.c.id.in_(ids)).order_by(self._table.c.id)
        return self._by_ordering_key(map(ClaimedMessage.of, connection.execute(whole)))

    def locked_heads(self, candidates: Sequence[int], most: int) -> sa.Select[int, int | None, int]:
        # In the order of the primary key, so that MySQL locks no more rows than it returns.
        still_due = self._rows.where(self._table.c.id.in_(candidates), self._is_due)
        return still_due.order_by(self._table.c.id).limit(most).with_for_update(skip_locked=True)

    def rows_behind(
        self, ordering_keys: Iterable[int], heads: Sequence[int], most: int
    ) -> sa.Select[int, int | None]:
        """The next rows of ordering keys. Nothing is locked: MySQL may scan all rows, and would deadlock with other
        relays."""
        columns = self._table.c
        chosen = sa.select(columns.id, columns.lane).where(
            columns.lane.in_(ordering_keys), columns.id.not_in(heads)
        )
        return chosen.order_by(columns.id).limit(most)

    def locked_behind(self, rows: Sequence[int], ordering_keys: Iterable[int]) -> sa.Select[int, int | None, int]:
        """Those of the rows that are unsent, due and unclaimed, locked."""
        columns = self._table.c
        chosen = self._rows.where(columns.id.in_(rows), columns.lane.in_(ordering_keys), self._is_due)
        return chosen.order_by(columns.id).with_for_update(skip_locked=True)

    def _by_ordering_key(self, messages: Iterable[ClaimedMessage]) -> list[list[ClaimedMessage]]:
        alone: list[list[ClaimedMessage]] = []
        by_key: dict[int, list[ClaimedMessage]] = {}
        for message in messages:
            if message.ordering_key is None or not self._config.in_order:
                alone.append([message])
            else:
                by_key.setdefault(message.ordering_key, []).append(message)
        return [*by_key.values(), *alone]


def _unblocked(known: Iterable[Any], mine: Iterable[Any]) -> list[_ClaimableRow]:
    """Of each ordering key the rows before the first one that is claimed elsewhere or waits for a retry."""
    free = {row.id: _ClaimableRow(*row) for row in mine}
    held: set[int] = set()
    places = []
    for row in known:
        if row.id not in free:
            held.add(row.lane)
        elif row.lane not in held:
            places.append(free[row.id])
    return places


def _within_size(places: Sequence[_ClaimableRow], max_bytes: int) -> list[_ClaimableRow]:
    """Rows up to the size limit, at least one."""
    size = 0
    chosen: list[_ClaimableRow] = []
    for place in places:
        size += place.size
        if chosen and size > max_bytes:
            break
        chosen.append(place)
    return chosen
