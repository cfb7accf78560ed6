"""Consuming a message once, however often it comes: what was consumed is written down in a user's database.

Here belongs the table of consumed messages and the decorators that ask it. When and how often a message comes
belongs to ``client``. Needs SQLAlchemy: ``pip install orbitmq[sql]``.
"""

# First, for it says what to install where SQLAlchemy is missing.
import orbitmq.user_database  # noqa: F401
from orbitmq.idempotent.decorators import idempotent, idempotent_with_lease
from orbitmq.idempotent.keys import by_keys, by_message_id
from orbitmq.idempotent.records import ConsumedMessages, State
from orbitmq.idempotent.table import consumed_table

__all__ = [
    "ConsumedMessages",
    "State",
    "by_keys",
    "by_message_id",
    "consumed_table",
    "idempotent",
    "idempotent_with_lease",
]
