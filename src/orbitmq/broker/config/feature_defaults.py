"""Features that RocketMQ's broker has switched off by default, and that OrbitMQ's own clusters have on.

``orbitmq serve``, ``orbitmq quickstart`` and the clusters of ``orbitmq.testing`` share these defaults, so that a
program behaves in production as in its tests. ``orbitmq broker`` keeps RocketMQ's defaults.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

FEATURES: Mapping[str, str] = MappingProxyType(
    {
        # Subscriptions by SQL92 on properties.
        "enablePropertyFilter": "true",
        # Recall of delayed messages before their delivery.
        "recallMessageEnable": "true",
    }
)
