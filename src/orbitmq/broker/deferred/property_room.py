"""Property room: removes expendable properties when a stored message has no room for the broker's own.

A client may fill the 32,767 bytes that the properties of a record have. The broker adds properties of its own each
time it stores the message again: for a timer, a retry, a transaction. It must not refuse the message then, for it
was acknowledged: ``fitted`` drops properties that the broker added and no client depends on, in a fixed order,
until the rest fits. The reconsume count, which a retry must not lose, is a field of the record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.properties import without
from orbitmq.protocol.message.record import CRC_PROPERTY_SIZE, MAX_PROPERTIES_SIZE

if TYPE_CHECKING:
    from collections.abc import Container

    from orbitmq.broker.escape.bridge import EscapeBridge
    from orbitmq.store import MessageStore

REAL_QUEUE_PROPERTIES = (names.REAL_QUEUE_ID.encode(), names.REAL_TOPIC.encode(), names.TIMER_OUT_MS.encode())
"""Real topic, real queue and slot of a deferred message. Not used any more once it was delivered."""

DROPPED_IN_ORDER = (
    # Times of the timer.
    names.TIMER_DEQUEUE_MS.encode(),
    names.TIMER_ENQUEUE_MS.encode(),
    names.TIMER_ROLL_TIMES.encode(),
    # History of a POP retry.
    names.ORIGIN_GROUP.encode(),
    names.FIRST_POP_TIME.encode(),
    # Equal in all messages of a broker.
    names.TRACE_SWITCH.encode(),
    names.MESSAGE_REGION.encode(),
    names.CLUSTER.encode(),
    # Only used while sending.
    names.WAIT_STORE_OK.encode(),
    # Equal to UNIQ_KEY.
    names.TRANSACTION_ID.encode(),
    # Id of the record that a retry is a copy of.
    names.ORIGIN_MESSAGE_ID.encode(),
    *REAL_QUEUE_PROPERTIES,
)


def property_limit(store: MessageStore | EscapeBridge) -> int:
    """Maximum size of the properties of a record in this store."""
    return MAX_PROPERTIES_SIZE - (CRC_PROPERTY_SIZE if store.config.enabled_append_prop_crc else 0)


def fitted(properties: bytes, limit: int, protected: Container[bytes] = ()) -> bytes:
    """Properties with expendable ones dropped until they fit; the result may still be too long.

    Those in ``protected`` stay.
    """
    for name in DROPPED_IN_ORDER:
        if len(properties) <= limit:
            break
        if name not in protected and name in properties:
            properties = without(properties, (name,))
    return properties
