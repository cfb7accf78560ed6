"""Message priority: the queue of a message, which is its level.

As in RocketMQ since 5.4 the queues of a topic are its levels. A message goes to the queue of its priority, or to
the last queue if the priority is higher.
"""

from __future__ import annotations

from orbitmq.protocol.command.fields import INT32_MAX
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.properties import find, without

_PRIORITY = names.PRIORITY.encode()
_TRAN_MSG = names.TRANSACTION_PREPARED.encode()
_EXCLUDES_PRIORITY = tuple(
    name.encode()
    for name in (
        *(names.DELAY_LEVEL, names.TIMER_DELIVER_MS, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS),
        names.SHARDING_KEY,
    )
)
"""Properties of messages that are deferred or ordered, and therefore have no priority."""


def queue_of_level(queue_id: int, properties: bytes, queues: int) -> tuple[int, bytes]:
    """Queue and properties of a message that may have a priority.

    A message with a property that excludes a priority loses its priority.
    """
    text = find(properties, _PRIORITY)
    if text is None or not text.isdigit() or len(text) > 10 or int(text) > INT32_MAX:
        return queue_id, properties
    is_half = (find(properties, _TRAN_MSG) or b"").lower() == b"true"
    if is_half or any(find(properties, name) is not None for name in _EXCLUDES_PRIORITY):
        return queue_id, without(properties, (_PRIORITY,))
    return min(int(text), queues - 1), properties
