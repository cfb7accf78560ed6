"""Ends of connections for tests: servers on free ports, a peer that speaks raw bytes, a transport in memory."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import struct
from typing import TYPE_CHECKING, Any

import pytest
import uvloop

from orbitmq.platform.memory_budget import MemoryBudget
from orbitmq.protocol.codes import ResponseCode, SerializeType
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.frame import FrameParser
from orbitmq.protocol.message.flags import RESPONSE
from orbitmq.remoting import Connection, Handler, Limits, Listener, RemotingServer

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping

    from orbitmq.protocol.command.header import Header

HOST = "127.0.0.1"
ECHO = 500
"""A request code of these tests, for handlers that send back what they got."""
GARBAGE = b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n"
PATIENCE = 30
"""Seconds after which a condition that was waited for will not come; far more than anything takes."""

LOOPS = [
    pytest.param(asyncio.new_event_loop, id="asyncio"),
    pytest.param(uvloop.new_event_loop, id="uvloop"),
]


def on_each_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an asynchronous test on asyncio's own loop and on uvloop, and fail it for what the loop complains of."""

    def run_test(**arguments: Any) -> None:
        complaints: list[dict[str, Any]] = []

        async def watched() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, complaint: complaints.append(complaint))
            await test(**arguments)

        with asyncio.Runner(loop_factory=arguments.pop("loop_factory")) as runner:
            runner.run(watched())
        assert complaints == []

    signature = inspect.signature(test)
    factory = inspect.Parameter("loop_factory", inspect.Parameter.KEYWORD_ONLY)
    shown = signature.replace(parameters=[*signature.parameters.values(), factory])
    # What pytest goes by: name, marks, and which arguments it has to provide.
    vars(run_test).update(vars(test), __signature__=shown)
    run_test.__name__, run_test.__doc__, run_test.__module__ = test.__name__, test.__doc__, test.__module__
    on_both: Callable[..., None] = pytest.mark.parametrize("loop_factory", LOOPS)(run_test)
    return on_both


async def eventually(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - conditions of the product, which knows no events of tests
            await asyncio.sleep(0.002)


def request(code: int, opaque: int, *, body: bytes | None = None, binary: bool = False, **more: Any) -> bytes:
    """A request as its bytes on the wire."""
    serialize_type = SerializeType.ROCKETMQ if binary else SerializeType.JSON
    return Command(code=code, opaque=opaque, body=body, serialize_type=serialize_type, **more).encode()


def answer_to(header: Header, serialize_type: int, **more: Any) -> bytes:
    """A successful answer as its bytes on the wire."""
    return Command(
        code=ResponseCode.SUCCESS,
        opaque=header[1],
        flag=RESPONSE,
        serialize_type=SerializeType(serialize_type),
        **more,
    ).encode()


def echo(_: Connection, header: Header, body: bytes, serialize_type: int) -> bytes:
    """A handler that sends the body and the fields back."""
    return answer_to(header, serialize_type, body=body, ext_fields=header[6])


def decoded(wire: bytes) -> list[Command]:
    """The commands in some bytes, which must end with the last one."""
    parser = FrameParser()
    commands = [Command.decode(frame) for frame in parser.feed(wire)]
    assert parser.pending_bytes == 0
    return commands


@contextlib.asynccontextmanager
async def serving(
    handlers: Mapping[int, Handler], limits: Limits | None = None, **options: Any
) -> AsyncIterator[RemotingServer]:
    """A server on a free port of this machine, which leaves nothing behind.

    Its memory budget is its own: connections of clusters that live in this process would count against its limits.
    """
    options.setdefault("budget", MemoryBudget())
    server = RemotingServer([Listener(handlers, 0, HOST)], limits=limits, **options)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(grace=0)


class RawPeer:
    """The other end of a connection, which says exactly what a test wants it to say."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    @contextlib.asynccontextmanager
    async def connected(cls, server: RemotingServer, tls: ssl.SSLContext | None = None) -> AsyncIterator[RawPeer]:
        """A peer of the first listener of a server."""
        reader, writer = await asyncio.open_connection(HOST, server.ports[0], ssl=tls, limit=1 << 26)
        peer = cls(reader, writer)
        try:
            yield peer
        finally:
            await peer.leave()

    @property
    def address(self) -> str:
        host, port = self.writer.get_extra_info("sockname")
        return f"{host}:{port}"

    def send(self, *data: bytes) -> None:
        self.writer.write(b"".join(data))

    async def receive(self) -> Command:
        """The next command."""
        async with asyncio.timeout(PATIENCE):
            prefix = await self.reader.readexactly(4)
            (length,) = struct.unpack(">i", prefix)
            (command,) = decoded(prefix + await self.reader.readexactly(length))
        return command

    async def ask(self, *data: bytes) -> Command:
        """Send something and return what comes next."""
        self.send(*data)
        return await self.receive()

    async def rest(self) -> bytes:
        """Everything that still comes until the other side closes."""
        received = b""
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionError):
                while data := await self.reader.read(1 << 20):
                    received += data
        return received

    def hang_up(self) -> None:
        """Close without a goodbye, as when a process is killed."""
        self.writer.transport.abort()

    async def leave(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


class MemoryTransport(asyncio.Transport):
    """A socket's transport without a socket: keeps what is written, write by write."""

    def __init__(self) -> None:
        super().__init__({"peername": ("192.0.2.7", 4711), "sockname": (HOST, 10911)})
        self.writes: list[bytes] = []
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed
        self.writes.append(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass
