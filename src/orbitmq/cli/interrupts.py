"""Ctrl-C on the command line: one sentence, also while modules are imported."""

from __future__ import annotations

import os
import signal

# Imports nothing else: from its first statement on, Ctrl-C is handled.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import FrameType
    from typing import Any, TypeVar

    Result = TypeVar("Result")

INTERRUPTED = 128 + signal.SIGINT
"""Exit code of an interrupted command."""

_IMPORTING = "<frozen importlib._bootstrap>"


def handle_interrupts() -> None:
    """Handle Ctrl-C in this process, unless it is ignored, as under ``nohup``.

    A KeyboardInterrupt within an import leaves half a module behind: extension modules turn it into an ImportError
    or crash. So there the process ends at once; it has started nothing that would have to end.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _on_interrupt)


def _on_interrupt(_: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            os.write(2, b"orbitmq: interrupted\n")
            os._exit(INTERRUPTED)
        frame = frame.f_back
    raise KeyboardInterrupt


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine, which Ctrl-C cancels."""
    from orbitmq.platform import event_loop  # noqa: PLC0415

    if signal.getsignal(signal.SIGINT) is _on_interrupt:
        # Otherwise asyncio would leave the signal to this module.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return event_loop.run(main)
