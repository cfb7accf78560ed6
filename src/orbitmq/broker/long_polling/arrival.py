"""Message-arrival listeners (RocketMQ: MessageArrivingListener).

With no or one listener the dispatcher calls it directly, without a fan-out object.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.store.consumequeue.table import Queue
    from orbitmq.store.dispatch.dispatcher import Dispatcher

    Listener: TypeAlias = Callable[[Queue, int, int], None]


class _FanOut:
    __slots__ = ("listeners",)

    def __init__(self, *listeners: Listener) -> None:
        self.listeners = listeners

    def __call__(self, queue: Queue, code: int, store_timestamp: int) -> None:
        for listener in self.listeners:
            listener(queue, code, store_timestamp)


def listen(dispatcher: Dispatcher, listener: Listener) -> None:
    """Add a listener for every message that becomes visible to readers. Adding it twice has no effect."""
    present = dispatcher.on_arrival
    if present is None:
        dispatcher.on_arrival = listener
    elif isinstance(present, _FanOut):
        if listener not in present.listeners:
            dispatcher.on_arrival = _FanOut(*present.listeners, listener)
    elif present != listener:
        dispatcher.on_arrival = _FanOut(present, listener)


def unlisten(dispatcher: Dispatcher, listener: Listener) -> None:
    """Remove a listener."""
    present = dispatcher.on_arrival
    if isinstance(present, _FanOut):
        left = [other for other in present.listeners if other != listener]
        dispatcher.on_arrival = left[0] if len(left) == 1 else _FanOut(*left)
    elif present == listener:
        dispatcher.on_arrival = None
