"""Keys of a terminal, one at a time, while an event loop runs."""

import asyncio
import os
import sys
from types import TracebackType
from typing import Any, Self


class Keyboard:
    """Reads keys without Enter and without an echo; it restores the terminal at the end.

    Not enabled, or without a terminal, it only waits.
    """

    def __init__(self, *, enabled: bool) -> None:
        self._is_enabled = enabled and sys.stdin.isatty()
        self._keys: asyncio.Queue[str] = asyncio.Queue()
        self._before: Any = None

    def __enter__(self) -> Self:
        if self._is_enabled:
            import termios  # noqa: PLC0415 - Unix only
            import tty  # noqa: PLC0415

            self._before = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._is_enabled:
            import termios  # noqa: PLC0415

            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._before)

    def _read(self) -> None:
        data = os.read(sys.stdin.fileno(), 64)
        # The end of the input, when the terminal is closed.
        text = data.decode("ascii", "ignore") if data else "q"
        # A cursor key is an escape sequence, and no escape.
        for key in "" if text.startswith("\x1b[") else text:
            self._keys.put_nowait(key)

    async def wait(self, seconds: float) -> str:
        """The next key, or nothing after so many seconds."""
        try:
            return await asyncio.wait_for(self._keys.get(), seconds)
        except TimeoutError:
            return ""
