"""Lite topics (5.5): the names of their light queues, which also name the parent topic."""

from __future__ import annotations

import re

from orbitmq.protocol.names import LITE_TOPIC_PREFIX, LITE_TOPIC_SEPARATOR

_NAME = re.compile(r"[a-zA-Z0-9_-]+")


def is_lite_topic_name(name: str) -> bool:
    """True for the characters that the name of a lite topic may have. How many there may be is a setting."""
    return _NAME.fullmatch(name) is not None


def light_queue(parent: str, lite_topic: str) -> str:
    """The light queue of a lite topic."""
    return f"{light_queue_prefix(parent)}{lite_topic}"


def light_queue_prefix(parent: str) -> str:
    """What the light queues of a parent topic begin with."""
    return f"{LITE_TOPIC_PREFIX}{parent}{LITE_TOPIC_SEPARATOR}"


def parent_of(queue: str) -> str | None:
    """The parent topic of a light queue; None if the queue is not that of a lite topic."""
    if not queue.startswith(LITE_TOPIC_PREFIX):
        return None
    parent, _, lite_topic = queue.removeprefix(LITE_TOPIC_PREFIX).partition(LITE_TOPIC_SEPARATOR)
    return parent if parent and lite_topic and LITE_TOPIC_SEPARATOR not in lite_topic else None


def lite_topic_of(queue: str) -> str:
    """The lite topic of a light queue, without its parent."""
    return queue.rpartition(LITE_TOPIC_SEPARATOR)[2]
