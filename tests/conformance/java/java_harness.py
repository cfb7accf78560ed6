"""Harness of the tests with Apache's Java clients: server settings, patience, and reading of whole topics."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar

from peers.java_client import JavaClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peers.java_client import Message, Queue, Sent
    from peers.java_consumers import JavaPullConsumer

_T = TypeVar("_T")

PATIENCE = 60
"""Seconds until what must happen is given up; nothing waits that long where all is well."""

QUEUES = 4
"""Of a test's topic."""

DELAYS_MS = (1000, 1000, 1000, 2000, 2000)
"""Of the delay levels, from 1; the first retry is at level 3."""

SETTINGS = {
    "messageDelayLevel": " ".join(f"{delay // 1000}s" for delay in DELAYS_MS),
    "enablePropertyFilter": "true",
    "mappedFileSizeCommitLog": str(64 << 20),
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
}


def eventually(probe: Callable[[], _T], *, is_enough: Callable[[_T], bool] = bool, seconds: float = PATIENCE) -> _T:
    """The result of the probe as soon as it is sufficient. Until then the client may refuse to answer."""
    deadline = time.monotonic() + seconds
    while True:
        seen: object
        try:
            seen = found = probe()
            if is_enough(found):
                return found
        except JavaClientError as error:
            seen = error
        assert time.monotonic() < deadline, f"still {seen!r} after {seconds} s"
        time.sleep(0.02)


def everything_in(puller: JavaPullConsumer, queues: Sequence[Queue], count: int) -> list[Message]:
    """All messages of these queues, queue by queue, as soon as there are so many.

    A broker may answer a send before the message can be pulled.
    """

    def pull_all() -> list[Message]:
        found: list[Message] = []
        for queue in queues:
            offset = puller.offsets(queue).min
            while (pulled := puller.pull(queue, offset)).status == "FOUND":
                found += pulled.messages
                offset = pulled.next
        return found

    return eventually(pull_all, is_enough=lambda found: len(found) >= count)


def as_stored(puller: JavaPullConsumer, receipt: Sent) -> Message:
    """The pulled message of a receipt."""
    (message,) = eventually(lambda: puller.pull(receipt.queue, receipt.queue_offset, count=1).messages)
    return message
