"""SIGTERM for consumers that run until they are stopped: all of the process drain, as after Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_running: dict[asyncio.AbstractEventLoop, set[asyncio.Event]] = {}
"""Events of the consumers that run, by the loop whose signal handler sets them."""


@contextlib.contextmanager
def set_on_sigterm(stopped: asyncio.Event) -> Iterator[None]:
    """Set the event on SIGTERM, unless the application handles the signal itself.

    Only the main thread can install signal handlers.
    """
    loop = asyncio.get_running_loop()
    in_main_thread = threading.current_thread() is threading.main_thread()
    if loop not in _running:
        if not in_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
            yield
            return
        _running[loop] = set()
        loop.add_signal_handler(signal.SIGTERM, _stop_all, loop)
    _running[loop].add(stopped)
    try:
        yield
    finally:
        _running[loop].discard(stopped)
        if not _running[loop]:
            del _running[loop]
            loop.remove_signal_handler(signal.SIGTERM)


def _stop_all(loop: asyncio.AbstractEventLoop) -> None:
    for stopped in tuple(_running.get(loop, ())):
        stopped.set()
