"""Schema of the table of consumed messages, the same in PostgreSQL, MySQL, MariaDB and SQLite."""

from __future__ import annotations

import sqlalchemy as sa

from orbitmq.protocol.names import MAX_GROUP_LENGTH, MAX_TOPIC_LENGTH

DEFAULT_NAME = "orbitmq_consumed"

KEY_LENGTH = 255
"""Maximum length of the readable key."""
OWNER_LENGTH = 32


def consumed_table(metadata: sa.MetaData, name: str = DEFAULT_NAME, *, schema: str | None = None) -> sa.Table:
    """The table, in an application's own metadata, so that its migrations create it.

    A message without a row is new. A row with ``done_at`` is done, one without it is in progress.
    """
    return sa.Table(
        name,
        metadata,
        # A digest of the next three columns, which are for readers.
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("consumer_group", sa.String(MAX_GROUP_LENGTH), nullable=False),
        sa.Column("topic", sa.String(MAX_TOPIC_LENGTH), nullable=False),
        sa.Column("message_key", sa.String(KEY_LENGTH), nullable=False),
        sa.Column("owner", sa.String(OWNER_LENGTH), nullable=True),
        sa.Column("lease_until", sa.BigInteger, nullable=True),
        sa.Column("done_at", sa.BigInteger, nullable=True),
        # When the row may be deleted.
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Index(f"ix_{name}_expires", "expires_at"),
        schema=schema,
    )
