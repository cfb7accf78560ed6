"""The outbox: messages written to a table in the same transaction as a user's own work, and sent from there.

Here belongs the table, adding to it, and the relay that sends what is in it through a producer. What a consumer
does about messages that come twice belongs to ``idempotent``. Needs SQLAlchemy: ``pip install orbitmq[sql]``.
"""

# First, for it says what to install where SQLAlchemy is missing.
import orbitmq.user_database  # noqa: F401
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
