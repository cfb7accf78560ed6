"""The event loop: uvloop's where it is installed, asyncio's otherwise; and how its servers stop listening."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

Result = TypeVar("Result")

ACCEPT_ITERATIONS = 3
"""Loop iterations that asyncio takes for a connection after ``accept``: one makes the transport, the next one
informs the protocol, and the last one closes the socket if the protocol refused it.
"""


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A new loop, of uvloop if it is installed."""
    try:
        import uvloop  # noqa: PLC0415 - not on every platform
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """``asyncio.run`` on that loop."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


async def close_servers(*servers: asyncio.AbstractServer) -> None:
    """Stop listening. Connections accepted until now have reached their protocol when this returns.

    With ``close`` alone asyncio forgets a connection that it accepted in the last loop iteration: the transport
    cannot join a closed server, and the socket stays open, unanswered, until the garbage collector finds it. uvloop
    makes the transport at once.
    """
    loop = asyncio.get_running_loop()
    listening = [sock for server in servers if isinstance(server, asyncio.Server) for sock in server.sockets]
    for sock in listening:
        # Loops of Windows without selectors have no readers.
        with contextlib.suppress(NotImplementedError):
            loop.remove_reader(sock.fileno())
    try:
        for _ in range(ACCEPT_ITERATIONS if listening else 0):
            await asyncio.sleep(0)
    finally:
        for server in servers:
            server.close()
