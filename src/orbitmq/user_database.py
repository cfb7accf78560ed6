"""What the outbox and the idempotent consumer ask of a user's database, in the words of each kind of database.

Here belongs what differs between PostgreSQL, MySQL, MariaDB and SQLite, and nothing about messages. Times are whole
milliseconds since 1970 by the clock of the database: the machines that use it may disagree about the time.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from orbitmq.client.errors import OrbitMQError

try:
    import sqlalchemy as sa
except ImportError as error:
    raise ImportError("SQLAlchemy 2 is not installed: pip install orbitmq[sql]") from error

from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import CompileError, SQLAlchemyError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy.engine import Connection, Engine
    from sqlalchemy.orm import Session, scoped_session
    from sqlalchemy.sql.compiler import SQLCompiler

    Executor: TypeAlias = Connection | Session | scoped_session[Any]
    """Whatever a user runs statements with."""

_OLDEST_SQLALCHEMY = (2, 0, 28)
"""The first that tells how many rows an insert was about."""

if tuple(map(int, re.findall(r"\d+", sa.__version__)[:3])) < _OLDEST_SQLALCHEMY:
    raise ImportError(f"SQLAlchemy {sa.__version__} is too old: pip install -U orbitmq[sql]")

_ISOLATION = {
    # Gap locks, which MySQL takes above this level, would make users' inserts wait.
    "postgresql": "READ COMMITTED",
    "mysql": "READ COMMITTED",
    "mariadb": "READ COMMITTED",
    # It knows nothing between this and no transactions at all.
    "sqlite": "SERIALIZABLE",
}

MOST_AT_ONCE = 1000
"""How many rows are deleted in one go, so that no transaction lasts long."""


class UnsupportedDatabaseError(OrbitMQError):
    """A database of a kind that this was not written for."""


class UnusableDatabaseError(OrbitMQError):
    """A database, or a table in it, is not there or not to be used."""


def engine_of(url: str) -> Engine:
    """The engine for an address. Raises UnusableDatabaseError."""
    try:
        return sa.create_engine(url)
    except (SQLAlchemyError, ImportError) as error:
        # The address itself is left out: it may have a password in it.
        raise UnusableDatabaseError(f"the address of the database cannot be used: {error}") from error


@contextlib.contextmanager
def in_a_sentence(what: str) -> Iterator[None]:
    """Say what a database said in one sentence, without the statement that it said it to."""
    try:
        yield
    except SQLAlchemyError as error:
        said = getattr(error, "orig", None) or error
        raise UnusableDatabaseError(f"{what}: {' '.join(str(said).split())}") from error


def check_supported(dialect: str) -> None:
    """Raise UnsupportedDatabaseError."""
    if dialect not in _ISOLATION:
        raise UnsupportedDatabaseError(f"this works in PostgreSQL, MySQL, MariaDB and SQLite, not in {dialect}")


def dialect_of(executor: Executor) -> str:
    """Which kind of database is behind it. Raises UnsupportedDatabaseError."""
    bind = executor if isinstance(executor, sa.Connection) else executor.get_bind()
    check_supported(bind.dialect.name)
    return bind.dialect.name


def is_for_asyncio(database: object) -> bool:
    """Whether an engine, connection or session of SQLAlchemy is one whose verbs are awaited.

    By where its class comes from: that module cannot be imported where greenlet is missing.
    """
    return any(kind.__module__.startswith("sqlalchemy.ext.asyncio") for kind in type(database).__mro__)


def for_short_transactions(engine: Engine) -> Engine:
    """The engine with an isolation that suits taking and marking rows, whatever its user has chosen."""
    check_supported(engine.dialect.name)
    return engine.execution_options(isolation_level=_ISOLATION[engine.dialect.name])


# Time


class DatabaseTime(FunctionElement[int]):
    """The time of the database when the statement began, in milliseconds since 1970."""

    type = sa.BigInteger()
    inherit_cache = True


@compiles(DatabaseTime)
def _time_unknown(*_: object, **__: object) -> str:
    raise CompileError("the time is asked of PostgreSQL, MySQL, MariaDB and SQLite only")


@compiles(DatabaseTime, "postgresql")
def _time_postgresql(_: DatabaseTime, __: SQLCompiler, **___: Any) -> str:
    # Constant during the statement, or no index would be used to compare with it.
    return "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT)"


@compiles(DatabaseTime, "mysql", "mariadb")
def _time_mysql(_: DatabaseTime, __: SQLCompiler, **___: Any) -> str:
    # From UTC, for a local time may come twice a year.
    return "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000)"


@compiles(DatabaseTime, "sqlite")
def _time_sqlite(_: DatabaseTime, __: SQLCompiler, **___: Any) -> str:
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"


def database_time(later: float = 0.0) -> sa.ColumnElement[int]:
    """The time of the database, or so many seconds later or, if negative, earlier."""
    if not later:
        return DatabaseTime()
    return DatabaseTime() + sa.literal(round(later * 1000), sa.BigInteger)


# Columns


def number_key() -> sa.types.TypeEngine[int]:
    """A 64-bit number that the database counts up. SQLite counts only what it calls INTEGER."""
    return sa.BigInteger().with_variant(sqlite.INTEGER(), "sqlite")


def large_bytes() -> sa.types.TypeEngine[bytes]:
    """Bytes of any length; what MySQL calls a BLOB ends at 64 KiB."""
    return sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")


def large_text() -> sa.types.TypeEngine[str]:
    return sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")


# Statements


def rows_changed(executor: Executor, statement: sa.Insert | sa.Update | sa.Delete) -> int:
    """Execute something, and say how many rows it was about. Raises UnusableDatabaseError if nobody knows."""
    # Without this, SQLAlchemy does not ask the driver after an insert.
    asked = statement.execution_options(preserve_rowcount=True)
    count = cast("sa.CursorResult[Any]", executor.execute(asked)).rowcount
    if count < 0:
        raise UnusableDatabaseError("the driver of the database does not tell how many rows were changed")
    return count


def insert_unless_there(dialect: str, table: sa.Table) -> sa.Insert:
    """An insert that does nothing if there is a row with the same key; its row count says which it was."""
    if dialect == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    if dialect == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    return sa.insert(table).prefix_with("IGNORE")


def lock_for_writing(executor: Executor, table: sa.Table) -> None:
    """Begin a transaction of SQLite as its only writer: it knows no locks on rows, and reads first would race."""
    if dialect_of(executor) == "sqlite":
        (key,) = table.primary_key
        executor.execute(sa.update(table).where(sa.false()).values({key: key}))


def delete_some(executor: Executor, table: sa.Table, condition: sa.ColumnElement[bool]) -> int:
    """Delete rows for which something holds, at most MOST_AT_ONCE; how many there were."""
    (key,) = table.primary_key
    found = sa.select(key).where(condition).limit(MOST_AT_ONCE).with_for_update(skip_locked=True)
    keys = executor.scalars(found).all()
    if not keys:
        return 0
    return rows_changed(executor, sa.delete(table).where(key.in_(keys), condition))
