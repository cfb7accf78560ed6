"""HTTP endpoint for Prometheus: answers GET /metrics with the text of a snapshot, collected for each scrape.

A few lines of HTTP on the server's own event loop, because the values belong to that loop. Scrapes that arrive
together share one collection. The text is made by a thread, which lets the loop in every few milliseconds.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from typing import TYPE_CHECKING

from orbitmq.metrics.prometheus_text import CONTENT_TYPE, render
from orbitmq.platform.event_loop import close_servers

if TYPE_CHECKING:
    import ssl
    from collections.abc import Awaitable, Callable

    from orbitmq.metrics.snapshot import Snapshot

log = logging.getLogger("orbitmq.metrics")

MAX_HEAD_BYTES = 16 * 1024
"""Of a request line with its headers; Prometheus sends 200 bytes."""
MAX_CONNECTIONS = 32
"""Scrapers that are connected at once."""
IDLE_SECONDS = 120.0
"""Prometheus keeps its connection between two scrapes, a minute by default."""
REFUSAL_SECONDS = 2.0
"""Time for a scraper beyond the limit to send its request."""
SEND_SECONDS = 30.0
"""Time for a scraper to read an answer."""

_PATHS = {"/metrics", "/"}


class MetricsEndpointError(Exception):
    """The endpoint cannot listen."""


class PrometheusEndpoint:
    """Serves the snapshots of ``collect`` between ``start`` and ``stop``."""

    def __init__(
        self,
        collect: Callable[[], Awaitable[Snapshot]],
        host: str,
        port: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._tls = tls
        self._collect = collect
        self._host = host
        self._port = port
        self._server: asyncio.Server | None = None
        self._scrape: asyncio.Task[bytes] | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port it listens on."""
        assert self._server is not None, "not started"
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        """Listen. Raises MetricsEndpointError."""
        try:
            self._server = await asyncio.start_server(
                self._accept, self._host, self._port, limit=MAX_HEAD_BYTES, ssl=self._tls
            )
        except OSError as error:
            where = f"{self._host}:{self._port}"
            raise MetricsEndpointError(
                f"cannot serve metrics on {where}: {error.strerror or error}; give another metricsPromExporterPort"
            ) from error

    async def stop(self) -> None:
        """Stop listening and close all connections."""
        server, self._server = self._server, None
        if server is None:
            return
        await close_servers(server)
        tasks = [*self._connections, *([] if self._scrape is None else [self._scrape])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()

    @property
    def scrapers(self) -> int:
        """Number of connections."""
        return len(self._connections)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if len(self._connections) > MAX_CONNECTIONS:
                # Closing before the request is read would reset the connection.
                async with asyncio.timeout(REFUSAL_SECONDS):
                    await reader.readuntil(b"\r\n\r\n")
                await _answer(writer, "503 Service Unavailable", b"too many connections\n", keeps_open=False)
                return
            while await self._serve_one(reader, writer):
                pass
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            pass  # the scraper is gone, or what it sends is not HTTP
        finally:
            writer.close()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; True if the connection stays open for another."""
        async with asyncio.timeout(IDLE_SECONDS):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, *fields = head.split("\r\n")
        method, target, version = line.split(" ")
        headers = {name.strip().lower(): value.strip() for name, _, value in (one.partition(":") for one in fields)}
        keeps_open = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            await _answer(writer, "400 Bad Request", b"a request has no body here\n", keeps_open=False)
            return False
        if method not in {"GET", "HEAD"}:
            await _answer(writer, "405 Method Not Allowed", b"use GET\n", keeps_open=keeps_open)
        elif target.partition("?")[0] == "/-/healthy":
            await _answer(writer, "200 OK", b"healthy\n", keeps_open=keeps_open)
        elif target.partition("?")[0] not in _PATHS:
            await _answer(writer, "404 Not Found", b"the metrics are at /metrics\n", keeps_open=keeps_open)
        else:
            try:
                body = await self._text()
            except Exception:
                log.exception("metrics: collection failed")
                await _answer(writer, "500 Internal Server Error", b"see the log of the server\n", keeps_open=False)
                return False
            is_packed = "gzip" in headers.get("accept-encoding", "")
            if is_packed:
                body = await asyncio.get_running_loop().run_in_executor(None, _gzip, body)
            await _answer(
                writer, "200 OK", body, keeps_open=keeps_open, is_packed=is_packed, is_head=method == "HEAD"
            )
        return keeps_open

    async def _text(self) -> bytes:
        if self._scrape is None or self._scrape.done():
            self._scrape = asyncio.get_running_loop().create_task(self._scrape_once())
        # Shared: a scraper that leaves must not cancel the collection of another.
        return await asyncio.shield(self._scrape)

    async def _scrape_once(self) -> bytes:
        snapshot = await self._collect()
        if len(snapshot) <= SMALL_SNAPSHOT:
            return render(snapshot)
        return await asyncio.get_running_loop().run_in_executor(None, render, snapshot)


SMALL_SNAPSHOT = 300
"""Series that are rendered on the event loop, in about a millisecond."""


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(1, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


async def _answer(
    writer: asyncio.StreamWriter,
    status: str,
    body: bytes,
    *,
    keeps_open: bool,
    is_packed: bool = False,
    is_head: bool = False,
) -> None:
    kind = CONTENT_TYPE if status.startswith("200") else "text/plain; charset=utf-8"
    lines = [
        f"HTTP/1.1 {status}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        f"Connection: {'keep-alive' if keeps_open else 'close'}",
        *(["Content-Encoding: gzip"] if is_packed else []),
    ]
    writer.write("\r\n".join([*lines, "", ""]).encode() + (b"" if is_head else body))
    async with asyncio.timeout(SEND_SECONDS):
        await writer.drain()
