"""Transactional outbox: messages are written to a table in the application's transaction, and sent from there.

The table, adding to it, and the relay that sends its messages through a producer belong here. Deduplication on the
consumer's side belongs to ``idempotent``. Needs SQLAlchemy: ``pip install orbitmq[sql]``.
"""

# First: its ImportError says what to install if SQLAlchemy is missing.
import orbitmq.database  # noqa: F401
from orbitmq.outbox.command import backlog_of, run_relay
from orbitmq.outbox.outbox import Backlog, Outbox
from orbitmq.outbox.relay import Relay, Round
from orbitmq.outbox.relay_config import RelayConfig, RelayOptions
from orbitmq.outbox.rows import OUTBOX_ID, UnsentMessage
from orbitmq.outbox.table import outbox_table

__all__ = [
    "OUTBOX_ID",
    "Backlog",
    "Outbox",
    "Relay",
    "RelayConfig",
    "RelayOptions",
    "Round",
    "UnsentMessage",
    "backlog_of",
    "outbox_table",
    "run_relay",
]
