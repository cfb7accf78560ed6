"""Schema of the outbox table, the same in PostgreSQL, MySQL, MariaDB and SQLite."""

from __future__ import annotations

import sqlalchemy as sa

from orbitmq.database import large_bytes, large_text, number_key
from orbitmq.protocol.names import MAX_TOPIC_LENGTH

DEFAULT_NAME = "orbitmq_outbox"

MESSAGE_ID_LENGTH = 56
"""Length of an id with an IPv6 address."""
RELAY_NAME_LENGTH = 120
ERROR_LENGTH = 500


def outbox_table(metadata: sa.MetaData, name: str = DEFAULT_NAME, *, schema: str | None = None) -> sa.Table:
    """The table, in an application's own metadata, so that its migrations create it.

    A row with ``due_at`` is unsent. That is when a relay may claim it next: at once, at the time of the retry, or
    when the lease of the current claim ends. Sent rows have neither ``due_at`` nor ``lane`` (the ordering key), so
    the indexes on them stay small however many sent rows are retained.
    """
    return sa.Table(
        name,
        metadata,
        # The order in which messages of one ordering key are sent.
        sa.Column("id", number_key(), primary_key=True, autoincrement=True),
        sa.Column("message_id", sa.String(MESSAGE_ID_LENGTH), nullable=False),
        sa.Column("topic", sa.String(MAX_TOPIC_LENGTH), nullable=False),
        sa.Column("body", large_bytes(), nullable=False),
        # All properties as JSON, with tags, keys, sharding key and delay among them.
        sa.Column("properties", large_text(), nullable=False),
        sa.Column("flag", sa.Integer, nullable=False),
        # The ordering key: a hash of topic and sharding key. A collision only delays messages.
        sa.Column("lane", sa.BigInteger, nullable=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=True),
        # The claim: name of the relay and number of its round.
        sa.Column("taken_by", sa.String(RELAY_NAME_LENGTH), nullable=True),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("last_error", sa.String(ERROR_LENGTH), nullable=True),
        sa.Column("sent_at", sa.BigInteger, nullable=True),
        sa.Index(f"ix_{name}_due", "due_at", "id"),
        sa.Index(f"ix_{name}_lane", "lane", "id"),
        sa.Index(f"ix_{name}_sent", "sent_at"),
        schema=schema,
        # Without it, SQLite reuses the id of a deleted newest row.
        sqlite_autoincrement=True,
    )
