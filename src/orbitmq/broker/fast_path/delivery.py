"""Routes for delivery: queues into which the native code may append deferred messages that are due."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq import native
from orbitmq.broker.deferred.target_queue import target_problem
from orbitmq.broker.fast_path.epoch import RouteEpoch
from orbitmq.broker.fast_path.queue_route import open_route, store_parameters

if TYPE_CHECKING:
    from orbitmq.broker.deferred.target_queue import TargetQueues
    from orbitmq.store import MessageStore


class DeliveryRoutes:
    """The native deliverer of one service, with its routes cached until the epoch changes."""

    def __init__(self, store: MessageStore, places: TargetQueues | None, *, is_timer: bool) -> None:
        self.native = native.load().deferred_delivery(**store_parameters(store))
        self._queues = store.queues
        self._places = places
        self._is_timer = is_timer
        if places is None:
            self._epoch = RouteEpoch()
            store.queues.removal_listeners.append(self._epoch.advance)
        else:
            self._epoch = places.epoch
        self._seen_epoch = self._epoch.value

    def refresh(self) -> None:
        """Clear routes that were invalidated; call before each delivery."""
        if self._epoch.value != self._seen_epoch:
            self._seen_epoch = self._epoch.value
            self.native.clear_routes()

    def open_missing(self) -> bool:
        """Open the route for whose lack the native code ended; False if there is none or it is not allowed."""
        if self.native.missing_route is None:
            return False
        topic, queue_id, _, _ = self.native.missing_route
        if target_problem(topic, is_timer=self._is_timer) is not None:
            return False
        if self._places is not None and self._places.queue_for(topic, queue_id) != queue_id:
            return False
        return open_route(self.native, self._queues, topic, queue_id)
