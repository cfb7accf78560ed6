"""The table of consumed messages, as it is in PostgreSQL, MySQL, MariaDB and SQLite alike."""

from __future__ import annotations

import sqlalchemy as sa

from orbitmq.protocol.names import MAX_GROUP_LENGTH, MAX_TOPIC_LENGTH

DEFAULT_NAME = "orbitmq_consumed"

KEY_LENGTH = 255
"""How much of a key is kept for people to read."""
OWNER_LENGTH = 32


def consumed_table(metadata: sa.MetaData, name: str = DEFAULT_NAME, *, schema: str | None = None) -> sa.Table:
    """The table, as part of an application's own metadata, so that its migrations make it.

    A message without a row is new. One with ``done_at`` is done, one without it is in progress.
    """
    return sa.Table(
        name,
        metadata,
        # A digest of the next three, which are there for people.
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("consumer_group", sa.String(MAX_GROUP_LENGTH), nullable=False),
        sa.Column("topic", sa.String(MAX_TOPIC_LENGTH), nullable=False),
        sa.Column("message_key", sa.String(KEY_LENGTH), nullable=False),
        sa.Column("owner", sa.String(OWNER_LENGTH), nullable=True),
        sa.Column("lease_until", sa.BigInteger, nullable=True),
        sa.Column("done_at", sa.BigInteger, nullable=True),
        # From when on nobody needs to know any more.
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Index(f"ix_{name}_expires", "expires_at"),
        schema=schema,
    )
