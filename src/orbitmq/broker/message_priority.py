"""Messages with a priority: which queue they go to, and so which level they are of.

As RocketMQ has it since 5.4: the queues of a topic are its levels. A message goes to the queue of its number, or to
the last one if it has a higher number than there are queues.
"""

from __future__ import annotations

from orbitmq.protocol import property_names as names
from orbitmq.protocol.fields import INT32_MAX
from orbitmq.protocol.properties import find, without

_PRIORITY = names.PRIORITY.encode()
_TRAN_MSG = names.TRANSACTION_PREPARED.encode()
_OTHER_WAYS = tuple(
    name.encode()
    for name in (
        *(names.DELAY_LEVEL, names.TIMER_DELIVER_MS, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS),
        names.SHARDING_KEY,
    )
)
"""What goes another way, or has to stay in its order, has no priority."""


def queue_of_level(queue_id: int, properties: bytes, queues: int) -> tuple[int, bytes]:
    """The queue that a message goes to which may have a priority, and its properties.

    A message with a priority and something that excludes it loses the priority.
    """
    text = find(properties, _PRIORITY)
    if text is None or not text.isdigit() or len(text) > 10 or int(text) > INT32_MAX:
        return queue_id, properties
    is_half = (find(properties, _TRAN_MSG) or b"").lower() == b"true"
    if is_half or any(find(properties, name) is not None for name in _OTHER_WAYS):
        return queue_id, without(properties, (_PRIORITY,))
    return min(int(text), queues - 1), properties
