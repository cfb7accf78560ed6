"""Invalidation of cached routes: one number for everything that a native route was decided by."""

from __future__ import annotations


class RouteEpoch:
    """Version of topics, groups, subscriptions, queues and counters taken together.

    A route is what the native code may do for one queue (or one kind of pull) without asking Python. It is valid as
    long as ``value`` stays the same. Whatever changes permissions, queues or counters calls ``advance``; the
    adapters of the fast path compare one number per batch and clear their routes when it differs. A change of
    settings advances it too, for heartbeats that are recognised (``RepeatedHeartbeats``); native objects are made
    again then (``FastPath.rebuild``), because settings are arguments of their constructors.
    """

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def advance(self) -> None:
        """Invalidate all cached routes."""
        self.value += 1
