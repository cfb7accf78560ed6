"""Idempotent consumer: deduplicates redelivered messages with a table in the application's database.

The table of consumed messages and the decorators that use it belong here. Delivery and retries belong to
``client``. Needs SQLAlchemy: ``pip install orbitmq[sql]``.
"""

# First: its ImportError says what to install if SQLAlchemy is missing.
import orbitmq.database  # noqa: F401
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
