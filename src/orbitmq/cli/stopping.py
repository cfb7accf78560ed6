"""When a server in the foreground is to stop: at a signal, or when whoever started it is gone."""

import asyncio
import os
import signal
import sys


def told_to_stop(*, at_end_of_input: bool = False) -> asyncio.Event:
    """Set at SIGTERM or SIGINT; with ``at_end_of_input`` also when standard input ends."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if at_end_of_input:
        source = sys.stdin.fileno()

        def read() -> None:
            if not os.read(source, 1024):
                loop.remove_reader(source)
                stop.set()

        loop.add_reader(source, read)
    return stop
