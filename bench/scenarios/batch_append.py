"""Appending batches, with dispatch to queue and index: bodies of one size, of many, and with tags and keys."""

from __future__ import annotations

import functools
import itertools
from typing import TYPE_CHECKING

from bench.machine import GIB
from bench.messages import BORN_HOST, QUEUES, TAGS, TOPIC, body, open_store
from bench.rounds import take_turns
from orbitmq.protocol.message.batch import encode_batch
from orbitmq.store import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.figures import Figure, Settings
    from orbitmq.store import MessageStore

ITEMS = 4096
"""What Spark's writer puts into a request."""


def space(settings: Settings) -> int:
    return settings.choose(GIB // 2, 3 * GIB)


def run(settings: Settings) -> list[Figure]:
    """One store takes all kinds of batches in turn, through eight queues."""
    count = settings.choose(2, 16)
    kinds = {
        "128 B each": _batches(count, [body(128)], has_keys=False),
        "64 to 192 B": _batches(count, [body(size) for size in range(64, 193)], has_keys=False),
        "64 to 192 B, tags and keys": _batches(count, [body(size) for size in range(64, 193)], has_keys=True),
    }
    with open_store(settings.directory) as store:
        cases = {name: functools.partial(_append, store, batches) for name, batches in kinds.items()}
        timings = take_turns(cases, settings.choose(3, 9))
    return [line for name, timing in timings.items() for line in timing.per_item(name, "record")]


def _batches(count: int, bodies: Sequence[bytes], *, has_keys: bool) -> list[bytes]:
    """Batches of messages with unique keys that count up, and with tags and keys too, as a client sends them."""
    contents = itertools.cycle(bodies)
    return [
        encode_batch(
            (0, next(contents), _properties(number, has_keys=has_keys)) for number in range(first, first + ITEMS)
        )
        for first in range(0, count * ITEMS, ITEMS)
    ]


def _properties(number: int, *, has_keys: bool) -> bytes:
    more = f"KEYS\x01order-{number}\x02TAGS\x01{TAGS[number % len(TAGS)]}\x02" if has_keys else ""
    return f"UNIQ_KEY\x01C0000207302A251A69D7{number:012X}\x02{more}".encode()


def _append(store: MessageStore, batches: Sequence[bytes]) -> int:
    born = store.clock.now_ms()
    for queue_id, batch in zip(itertools.cycle(range(QUEUES)), batches, strict=False):
        store.append_batch(StoredMessage(TOPIC, queue_id, batch, born_timestamp=born, born_host=BORN_HOST))
    if store.index is not None:
        store.index.flush_pending()
    return ITEMS * len(batches)
