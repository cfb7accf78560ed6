"""Something looked at again and again while a load runs."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Seen = TypeVar("Seen")


class Watch(Generic[Seen]):
    """Samples with their times, in seconds since 1970."""

    def __init__(self) -> None:
        self.seen: list[tuple[float, Seen]] = []


@contextlib.contextmanager
def watched(look: Callable[[], Seen], every: float) -> Iterator[Watch[Seen]]:
    """Look so often, in seconds, until the block ends, or until what is looked at is gone."""
    watch: Watch[Seen] = Watch()
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            try:
                watch.seen.append((time.time(), look()))
            except OSError:
                return
            over.wait(every)

    thread = threading.Thread(target=work, name="watching", daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join()
