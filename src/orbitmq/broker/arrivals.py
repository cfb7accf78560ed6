"""Who hears of messages that came. Mostly nobody or one listens, and then the dispatch calls that one directly."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.store.dispatch import Dispatcher
    from orbitmq.store.queue_table import Queue

    Listener: TypeAlias = Callable[[Queue, int, int], None]


class _Several:
    __slots__ = ("listeners",)

    def __init__(self, *listeners: Listener) -> None:
        self.listeners = listeners

    def __call__(self, queue: Queue, code: int, store_timestamp: int) -> None:
        for listener in self.listeners:
            listener(queue, code, store_timestamp)


def listen(dispatcher: Dispatcher, listener: Listener) -> None:
    """Call this for every message that readers can see from now on; once, however often it is said."""
    present = dispatcher.on_arrival
    if present is None:
        dispatcher.on_arrival = listener
    elif isinstance(present, _Several):
        if listener not in present.listeners:
            dispatcher.on_arrival = _Several(*present.listeners, listener)
    elif present != listener:
        dispatcher.on_arrival = _Several(present, listener)


def unlisten(dispatcher: Dispatcher, listener: Listener) -> None:
    """Call this no more."""
    present = dispatcher.on_arrival
    if isinstance(present, _Several):
        left = [one for one in present.listeners if one != listener]
        dispatcher.on_arrival = left[0] if len(left) == 1 else _Several(*left)
    elif present == listener:
        dispatcher.on_arrival = None
