"""Graceful shutdown of a foreground server: at SIGTERM or SIGINT, or when its parent process is gone."""

import asyncio
import faulthandler
import os
import signal
import sys
from types import FrameType

from orbitmq import native

BLOCKED_LOOP_SECONDS = 10.0
"""Time for the event loop to react to a signal. After it the loop is blocked for good: the process prints its stack
and exits.

No stored message is lost by that: the log is memory-mapped, and the next start recovers it as after a crash.
"""


def stop_event(*, at_end_of_input: bool = False) -> asyncio.Event:
    """An event that SIGTERM and SIGINT set, with ``at_end_of_input`` also the end of standard input.

    A process whose event loop is blocked exits at the second signal, or ``BLOCKED_LOOP_SECONDS`` after the first.
    """
    native.load().guard_maps()
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    signals = _Signals(loop, stop)
    for number in (signal.SIGTERM, signal.SIGINT):
        # Not loop.add_signal_handler: its handlers run in the next loop iteration, these at the next byte code, and
        # also within Python's regular expressions.
        signal.signal(number, signals.on_signal)
    if at_end_of_input:
        source = sys.stdin.fileno()

        def read() -> None:
            if not os.read(source, 1024):
                loop.remove_reader(source)
                stop.set()

        loop.add_reader(source, read)
    return stop


class _Signals:
    """Passes signals to the event loop, and exits if the loop does not react."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
        self._loop = loop
        self._stop = stop
        self._pending = False

    def on_signal(self, number: int, _: FrameType | None) -> None:
        if self._loop.is_closed():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
            return
        if self._pending:
            _write(f"stopping: exit at the second signal {number}: the event loop is blocked here:")
            faulthandler.dump_traceback(sys.__stderr__ or 2)
            os._exit(128 + number)
        self._pending = True
        # A thread of C code, which needs neither the event loop nor the interpreter.
        faulthandler.dump_traceback_later(BLOCKED_LOOP_SECONDS, exit=True, file=sys.__stderr__ or 2)
        self._loop.call_soon_threadsafe(self._on_loop)

    def _on_loop(self) -> None:
        faulthandler.cancel_dump_traceback_later()
        self._pending = False
        self._stop.set()


def _write(text: str) -> None:
    os.write(2, f"{text}\n".encode())
