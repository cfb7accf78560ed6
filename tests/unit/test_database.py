"""The statements for each kind of database, read and not run: what MySQL is told is in no other test."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import CompileError
from sqlalchemy.schema import CreateIndex, CreateTable, ExecutableDDLElement

from orbitmq import Message
from orbitmq.database import (
    UnusableDatabaseError,
    database_time,
    engine_for_url,
    insert_unless_there,
    with_short_errors,
)
from orbitmq.idempotent import ConsumedMessages
from orbitmq.outbox import Outbox, RelayConfig
from orbitmq.outbox.claim import ClaimStatements
from orbitmq.outbox.outcomes import Failure, OutcomeStatements
from orbitmq.outbox.rows import ClaimedMessage

if TYPE_CHECKING:
    from sqlalchemy import ClauseElement, Dialect

DRIVERS = {
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mariadb+pymysql",
    "sqlite": "sqlite",
    "oracle": "oracle+oracledb",
}
DIALECTS: dict[str, Dialect] = {kind: sa.make_url(f"{name}://").get_dialect()() for kind, name in DRIVERS.items()}
SQL_KINDS = pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb", "sqlite"])
NOT_SQLITE = pytest.mark.parametrize("kind", ["postgresql", "mysql", "mariadb"])

taking = ClaimStatements(Outbox().table, RelayConfig())
settling = OutcomeStatements(Outbox().table, RelayConfig())


def sql(kind: str, statement: ClauseElement) -> str:
    compiled = statement.compile(dialect=DIALECTS[kind], compile_kwargs={"render_postcompile": True})
    return " ".join(str(compiled).split())


def table_text(kind: str, table: sa.Table) -> str:
    parts: list[ExecutableDDLElement] = [
        CreateTable(table),
        *(CreateIndex(index) for index in sorted(table.indexes, key=str)),
    ]
    return " ".join(" ".join(str(part.compile(dialect=DIALECTS[kind])).split()) for part in parts)


def test_mysql_has_room_for_bodies_and_properties() -> None:
    for kind in ("mysql", "mariadb"):
        text = table_text(kind, Outbox().table)
        assert "id BIGINT NOT NULL AUTO_INCREMENT" in text
        text = text.replace("`", "")
        assert "body LONGBLOB NOT NULL" in text
        assert "properties MEDIUMTEXT NOT NULL" in text


@SQL_KINDS
def test_tables_can_be_made(kind: str) -> None:
    text = table_text(kind, Outbox().table)
    for index, columns in (("due", "due_at, id"), ("lane", "lane, id"), ("sent", "sent_at")):
        assert f"CREATE INDEX ix_orbitmq_outbox_{index} ON orbitmq_outbox ({columns})" in text
    assert "CREATE INDEX ix_orbitmq_consumed_expires ON orbitmq_consumed (expires_at)" in table_text(
        kind, ConsumedMessages().table
    )


@NOT_SQLITE
def test_heads_are_locked_and_locked_ones_are_skipped(kind: str) -> None:
    text = sql(kind, taking.locked_heads([1, 2], 5))
    assert text.endswith("FOR UPDATE SKIP LOCKED")
    assert " ORDER BY orbitmq_outbox.id" in text
    assert sql(kind, taking.locked_behind([1], [1])).endswith("FOR UPDATE SKIP LOCKED")
    assert "FOR UPDATE" not in sql(kind, taking.rows_behind([1], [1], 5))


@SQL_KINDS
def test_no_statement_changes_rows_that_a_subquery_of_it_reads(kind: str) -> None:
    # MySQL refuses those, and limits inside of IN.
    taken = ClaimedMessage(1, None, 0, 0, "id", Message("orders", b"1"))
    for change in (settling.sent([1]), settling.held([1], "me"), settling.failed(Failure(taken, "no"), "me")):
        assert "SELECT" not in sql(kind, change)


@SQL_KINDS
def test_what_is_read_can_be_written_in_each(kind: str) -> None:
    for read in (taking.due_rows(5), taking.first_rows(5), taking.all_heads(5)):
        assert sql(kind, read).startswith("SELECT ")


def test_an_insert_does_nothing_if_the_row_is_there() -> None:
    table = ConsumedMessages().table
    for kind, words in (
        ("postgresql", "ON CONFLICT DO NOTHING"),
        ("sqlite", "ON CONFLICT DO NOTHING"),
        ("mysql", "INSERT IGNORE INTO"),
        ("mariadb", "INSERT IGNORE INTO"),
    ):
        assert words in sql(kind, insert_unless_there(kind, table).values(id="x"))


@SQL_KINDS
def test_the_time_is_asked_of_the_database(kind: str) -> None:
    words = {"postgresql": "statement_timestamp()", "sqlite": "julianday('now')"}
    assert words.get(kind, "UTC_TIMESTAMP(3)") in sql(kind, sa.select(database_time()))


def test_databases_whose_time_nobody_knows_are_refused() -> None:
    with pytest.raises(CompileError, match="PostgreSQL, MySQL, MariaDB and SQLite"):
        sa.select(database_time()).compile(dialect=DIALECTS["oracle"])


def test_the_time_is_milliseconds_since_1970() -> None:
    engine = sa.create_engine("sqlite://")
    with engine.connect() as connection:
        before = time.time_ns() // 1_000_000
        now, later, earlier = connection.execute(
            sa.select(database_time(), database_time(60), database_time(-60))
        ).one()
        after = time.time_ns() // 1_000_000
    engine.dispose()
    # Two clocks of one machine may round differently.
    assert before - 1000 <= now <= after + 1000
    assert (later - now, now - earlier) == (60_000, 60_000)


def test_what_a_database_says_is_told_in_a_sentence() -> None:
    engine = sa.create_engine("sqlite://")
    said = r"^the outbox cannot be used: no such table: orbitmq_outbox$"
    with (
        engine.connect() as connection,
        pytest.raises(UnusableDatabaseError, match=said),
        with_short_errors("the outbox cannot be used"),
    ):
        Outbox().backlog(connection)
    engine.dispose()
    for url in ("nonsense", "sqlite+nothing://", "postgresql+not_there://user:secret@host/db"):
        with pytest.raises(UnusableDatabaseError, match="invalid database URL") as told:
            engine_for_url(url)
        assert "secret" not in str(told.value)
