"""Taking messages from the outbox so that no two relays have the same one, nor two of one lane.

A lane is the messages of a topic that have the same sharding key. To take any of a lane, a relay has to take its
head, the first one that is not sent, which it locks; with it come those behind it, as many as there is room for.
Whoever finds the head taken leaves the lane alone. So a message is sent only by who has seen to all before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from orbitmq.outbox.rows import TakenMessage
from orbitmq.user_database import database_time, lock_for_writing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orbitmq.outbox.relay_config import RelayConfig

WINDOW = 1000
"""How many of the messages that have waited longest are looked at first. If too few of them are heads of lanes, all
there are are looked at, which takes long if they are many."""

SPARE = 4
"""How many times more candidates are looked for than are taken, for other relays look at the same ones."""


class _Place(NamedTuple):
    """A row that may be taken."""

    id: int
    lane: int | None
    size: int


class Taking:
    """What a relay asks of its table to get messages."""

    def __init__(self, table: sa.Table, config: RelayConfig) -> None:
        self._table = table
        self._config = config
        columns = table.c
        self._is_due = columns.due_at <= database_time()
        self._places = sa.select(columns.id, columns.lane, sa.func.length(columns.body).label("size"))

    def candidates(self, connection: sa.Connection) -> list[int]:
        """Messages that might be taken: due, and the heads of their lanes. Nothing is locked."""
        wanted = SPARE * self._config.batch_size
        if not self._config.in_order:
            return list(connection.scalars(self.due_rows(wanted)))
        seen = connection.execute(self.first_rows(WINDOW)).all()
        heads = [row.id for row in seen if not row.is_behind]
        if len(heads) >= self._config.batch_size or len(seen) < WINDOW:
            return heads[:wanted]
        lanes = {row.lane for row in seen if not row.is_behind}
        with_followers = len(heads) + sum(row.is_behind and row.lane in lanes for row in seen)
        if with_followers >= self._config.batch_size:
            return heads
        return list(connection.scalars(self.all_heads(wanted)))

    def due_rows(self, most: int) -> sa.Select[int]:
        columns = self._table.c
        return sa.select(columns.id).where(self._is_due).order_by(columns.due_at, columns.id).limit(most)

    def first_rows(self, most: int) -> sa.Select[int, int | None, bool]:
        """The rows that have been due for longest, and whether others of their lanes come first."""
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
        # What was sent has no lane.
        earlier = self._table.alias("earlier")
        same_lane = sa.and_(earlier.c.lane == rows.c.lane, earlier.c.id < rows.c.id)
        return sa.exists(sa.select(earlier.c.id).where(same_lane).correlate(rows))

    def take(self, connection: sa.Connection, candidates: Sequence[int], name: str) -> list[list[TakenMessage]]:
        """Take candidates and those behind them, in a transaction that is committed before anything is sent.

        Each list is of one lane, in order. Candidates that another relay has taken meanwhile are left out.
        """
        config = self._config
        lock_for_writing(connection, self._table)
        heads = [_Place(*row) for row in connection.execute(self.locked_heads(candidates, config.batch_size))]
        room = config.batch_size - len(heads)
        lanes = {head.lane for head in heads if head.lane is not None}
        behind: list[_Place] = []
        if room and lanes and config.in_order:
            known = connection.execute(self.rows_behind(lanes, [head.id for head in heads], room)).all()
            mine = connection.execute(self.locked_behind([row.id for row in known], lanes)) if known else ()
            behind = _those_in_turn(known, mine)
        ids = [place.id for place in _those_that_fit([*heads, *behind], config.batch_bytes)]
        if not ids:
            return []
        connection.execute(
            sa.update(self._table)
            .where(self._table.c.id.in_(ids))
            .values(due_at=database_time(config.lease), taken_by=name)
        )
        whole = sa.select(self._table).where(self._table.c.id.in_(ids)).order_by(self._table.c.id)
        return self._by_lane(map(TakenMessage.of, connection.execute(whole)))

    def locked_heads(self, candidates: Sequence[int], most: int) -> sa.Select[int, int | None, int]:
        # In the order of the primary key, so that MySQL locks no more rows than it returns.
        still_due = self._places.where(self._table.c.id.in_(candidates), self._is_due)
        return still_due.order_by(self._table.c.id).limit(most).with_for_update(skip_locked=True)

    def rows_behind(self, lanes: Iterable[int], heads: Sequence[int], most: int) -> sa.Select[int, int | None]:
        """The next rows of lanes. Nothing is locked: MySQL, which may look through all rows for it, would wait for
        those of other relays, and they for these."""
        columns = self._table.c
        chosen = sa.select(columns.id, columns.lane).where(columns.lane.in_(lanes), columns.id.not_in(heads))
        return chosen.order_by(columns.id).limit(most)

    def locked_behind(self, rows: Sequence[int], lanes: Iterable[int]) -> sa.Select[int, int | None, int]:
        """Those of the rows that are still to be sent, due, and nobody's."""
        columns = self._table.c
        chosen = self._places.where(columns.id.in_(rows), columns.lane.in_(lanes), self._is_due)
        return chosen.order_by(columns.id).with_for_update(skip_locked=True)

    def _by_lane(self, messages: Iterable[TakenMessage]) -> list[list[TakenMessage]]:
        alone: list[list[TakenMessage]] = []
        lanes: dict[int, list[TakenMessage]] = {}
        for message in messages:
            if message.lane is None or not self._config.in_order:
                alone.append([message])
            else:
                lanes.setdefault(message.lane, []).append(message)
        return [*lanes.values(), *alone]


def _those_in_turn(known: Iterable[Any], mine: Iterable[Any]) -> list[_Place]:
    """Of each lane the rows up to one that somebody else has, or that waits to be tried again."""
    free = {row.id: _Place(*row) for row in mine}
    held: set[int] = set()
    places = []
    for row in known:
        if row.id not in free:
            held.add(row.lane)
        elif row.lane not in held:
            places.append(free[row.id])
    return places


def _those_that_fit(places: Sequence[_Place], most_bytes: int) -> list[_Place]:
    """As many as fit, and at least one. A row whose lane did not fit before it does not either."""
    size = 0
    chosen: list[_Place] = []
    for place in places:
        size += place.size
        if chosen and size > most_bytes:
            break
        chosen.append(place)
    return chosen
