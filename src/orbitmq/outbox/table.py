"""The table of messages that are to be sent, as it is in PostgreSQL, MySQL, MariaDB and SQLite alike."""

from __future__ import annotations

import sqlalchemy as sa

from orbitmq.protocol.names import MAX_TOPIC_LENGTH
from orbitmq.user_database import large_bytes, large_text, number_key

DEFAULT_NAME = "orbitmq_outbox"

MESSAGE_ID_LENGTH = 56
"""What an id has that is made from an IPv6 address."""
RELAY_NAME_LENGTH = 120
ERROR_LENGTH = 500


def outbox_table(metadata: sa.MetaData, name: str = DEFAULT_NAME, *, schema: str | None = None) -> sa.Table:
    """The table, as part of an application's own metadata, so that its migrations make it.

    A row waits to be sent as long as it has a ``due_at``. That is when a relay may take it next: at once, when the
    time to try again has come, or when the relay that has it should have finished long ago. What was sent has
    neither ``due_at`` nor ``lane``, so the indexes on them are small however many sent rows are kept.
    """
    return sa.Table(
        name,
        metadata,
        # In the order of which messages of one lane are sent.
        sa.Column("id", number_key(), primary_key=True, autoincrement=True),
        sa.Column("message_id", sa.String(MESSAGE_ID_LENGTH), nullable=False),
        sa.Column("topic", sa.String(MAX_TOPIC_LENGTH), nullable=False),
        sa.Column("body", large_bytes(), nullable=False),
        # All properties as JSON, with tags, keys, sharding key and delay among them.
        sa.Column("properties", large_text(), nullable=False),
        sa.Column("flag", sa.Integer, nullable=False),
        # A hash of the topic and the sharding key. Two keys with one hash wait for each other in vain, no more.
        sa.Column("lane", sa.BigInteger, nullable=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("due_at", sa.BigInteger, nullable=True),
        # Which relay has it, by a name that is another one each time.
        sa.Column("taken_by", sa.String(RELAY_NAME_LENGTH), nullable=True),
        sa.Column("failures", sa.Integer, nullable=False),
        sa.Column("last_error", sa.String(ERROR_LENGTH), nullable=True),
        sa.Column("sent_at", sa.BigInteger, nullable=True),
        sa.Index(f"ix_{name}_due", "due_at", "id"),
        sa.Index(f"ix_{name}_lane", "lane", "id"),
        sa.Index(f"ix_{name}_sent", "sent_at"),
        schema=schema,
        # Or an id would be given to another row once the newest one is deleted.
        sqlite_autoincrement=True,
    )
