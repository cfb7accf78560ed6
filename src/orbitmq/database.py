"""Database dialects for the outbox and the idempotent consumer: PostgreSQL, MySQL, MariaDB and SQLite.

What differs between databases belongs here, and nothing about messages. Times are whole milliseconds since 1970 by
the clock of the database, because the clocks of its clients may differ.
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
    """What statements are executed with."""

_MIN_SQLALCHEMY = (2, 0, 28)
"""The first version with the row count of an insert."""

if tuple(map(int, re.findall(r"\d+", sa.__version__)[:3])) < _MIN_SQLALCHEMY:
    raise ImportError(f"SQLAlchemy {sa.__version__} is too old: pip install -U orbitmq[sql]")

_ISOLATION = {
    # Above this level MySQL takes gap locks, which block users' inserts.
    "postgresql": "READ COMMITTED",
    "mysql": "READ COMMITTED",
    "mariadb": "READ COMMITTED",
    # SQLite has no weaker level with transactions.
    "sqlite": "SERIALIZABLE",
}

MAX_DELETED_ROWS = 1000
"""Maximum of rows per delete, to keep transactions short."""


class UnsupportedDatabaseError(OrbitMQError):
    """The database is of an unsupported kind."""


class UnusableDatabaseError(OrbitMQError):
    """The database or a table is missing or unusable."""


def engine_for_url(url: str) -> Engine:
    """Create the engine for a URL. Raises UnusableDatabaseError."""
    try:
        return sa.create_engine(url)
    except (SQLAlchemyError, ImportError) as error:
        # Without the URL, which may contain a password.
        raise UnusableDatabaseError(f"invalid database URL: {error}") from error


@contextlib.contextmanager
def with_short_errors(what: str) -> Iterator[None]:
    """Raise UnusableDatabaseError with the database's message on one line, without the statement."""
    try:
        yield
    except SQLAlchemyError as error:
        message = getattr(error, "orig", None) or error
        raise UnusableDatabaseError(f"{what}: {' '.join(str(message).split())}") from error


def check_supported(dialect: str) -> None:
    """Raise UnsupportedDatabaseError."""
    if dialect not in _ISOLATION:
        raise UnsupportedDatabaseError(f"unsupported database {dialect}: use PostgreSQL, MySQL, MariaDB or SQLite")


def dialect_of(executor: Executor) -> str:
    """Name of the database's dialect. Raises UnsupportedDatabaseError."""
    bind = executor if isinstance(executor, sa.Connection) else executor.get_bind()
    check_supported(bind.dialect.name)
    return bind.dialect.name


def is_for_asyncio(database: object) -> bool:
    """True if an engine, connection or session of SQLAlchemy is asynchronous.

    Decided by the module of its class: importing that module fails without greenlet.
    """
    return any(kind.__module__.startswith("sqlalchemy.ext.asyncio") for kind in type(database).__mro__)


def for_short_transactions(engine: Engine) -> Engine:
    """The engine with the isolation level for claiming and updating rows."""
    check_supported(engine.dialect.name)
    return engine.execution_options(isolation_level=_ISOLATION[engine.dialect.name])


# Time


class DatabaseTime(FunctionElement[int]):
    """The time of the database when the statement began, in milliseconds since 1970."""

    type = sa.BigInteger()
    inherit_cache = True


@compiles(DatabaseTime)
def _time_unknown(*_: object, **__: object) -> str:
    raise CompileError("the database time is supported for PostgreSQL, MySQL, MariaDB and SQLite only")


@compiles(DatabaseTime, "postgresql")
def _time_postgresql(_: DatabaseTime, __: SQLCompiler, **___: Any) -> str:
    # Constant within a statement, so that comparisons can use an index.
    return "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000 AS BIGINT)"


@compiles(DatabaseTime, "mysql", "mariadb")
def _time_mysql(_: DatabaseTime, __: SQLCompiler, **___: Any) -> str:
    # UTC, because local times repeat once a year.
    return "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000)"


@compiles(DatabaseTime, "sqlite")
def _time_sqlite(_: DatabaseTime, __: SQLCompiler, **___: Any) -> str:
    return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)"


def database_time(later: float = 0.0) -> sa.ColumnElement[int]:
    """The time of the database, plus ``later`` seconds, which may be negative."""
    if not later:
        return DatabaseTime()
    return DatabaseTime() + sa.literal(round(later * 1000), sa.BigInteger)


# Columns


def number_key() -> sa.types.TypeEngine[int]:
    """A 64-bit auto-increment key. SQLite increments INTEGER only."""
    return sa.BigInteger().with_variant(sqlite.INTEGER(), "sqlite")


def large_bytes() -> sa.types.TypeEngine[bytes]:
    """Bytes of any length: MySQL's BLOB is limited to 64 KiB."""
    return sa.LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb")


def large_text() -> sa.types.TypeEngine[str]:
    return sa.Text().with_variant(mysql.MEDIUMTEXT(), "mysql", "mariadb")


# Statements


def rows_changed(executor: Executor, statement: sa.Insert | sa.Update | sa.Delete) -> int:
    """Execute a statement and return its row count. Raises UnusableDatabaseError if the driver has none."""
    # SQLAlchemy reads the row count of an insert only with this option.
    counted = statement.execution_options(preserve_rowcount=True)
    count = cast("sa.CursorResult[Any]", executor.execute(counted)).rowcount
    if count < 0:
        raise UnusableDatabaseError("the database driver returns no row count")
    return count


def insert_unless_there(dialect: str, table: sa.Table) -> sa.Insert:
    """An insert that does nothing if the key exists. The row count shows whether it inserted."""
    if dialect == "postgresql":
        return postgresql.insert(table).on_conflict_do_nothing()
    if dialect == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    return sa.insert(table).prefix_with("IGNORE")


def lock_for_writing(executor: Executor, table: sa.Table) -> None:
    """Take SQLite's write lock at the begin of a transaction: it has no row locks, and a read first would race."""
    if dialect_of(executor) == "sqlite":
        (key,) = table.primary_key
        executor.execute(sa.update(table).where(sa.false()).values({key: key}))


def delete_some(executor: Executor, table: sa.Table, condition: sa.ColumnElement[bool]) -> int:
    """Delete rows that match, at most MAX_DELETED_ROWS; returns how many."""
    (key,) = table.primary_key
    found = sa.select(key).where(condition).limit(MAX_DELETED_ROWS).with_for_update(skip_locked=True)
    keys = executor.scalars(found).all()
    if not keys:
        return 0
    return rows_changed(executor, sa.delete(table).where(key.in_(keys), condition))
