"""The endpoint for Prometheus: its answers to scrapers and to others."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
from typing import TYPE_CHECKING

import pytest

from orbitmq.metrics.http_endpoint import MAX_CONNECTIONS, MetricsEndpointError, PrometheusEndpoint
from orbitmq.metrics.instrument import Instrument, Kind
from orbitmq.metrics.snapshot import Snapshot
from support.client.cluster_harness import nothing_left_on_loop
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

GAUGE = Instrument("a_gauge", Kind.GAUGE, "A gauge.")


class Source:
    """Snapshots that count how often they were collected."""

    def __init__(self, series: int = 1) -> None:
        self.collections = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self._series = series

    async def collect(self) -> Snapshot:
        self.collections += 1
        await self.gate.wait()
        return Snapshot().add_all((GAUGE, (("n", str(n)),), self.collections) for n in range(self._series))


@contextlib.asynccontextmanager
async def serving(source: Source) -> AsyncIterator[PrometheusEndpoint]:
    endpoint = PrometheusEndpoint(source.collect, "127.0.0.1", 0)
    await endpoint.start()
    try:
        yield endpoint
    finally:
        await endpoint.stop()


async def ask(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()


def get(path: str = "/metrics", method: str = "GET", more: str = "") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{more}\r\n".encode()


async def test_a_scrape_gets_the_page() -> None:
    async with nothing_left_on_loop(), serving(Source()) as endpoint:
        head, _, body = (await ask(endpoint.port, get())).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4")
        assert body.endswith(b'a_gauge{n="0"} 1\n')


async def test_a_large_page_can_be_compressed() -> None:
    async with serving(Source(5000)) as endpoint:
        head, _, body = (await ask(endpoint.port, get(more="Accept-Encoding: gzip\r\n"))).partition(b"\r\n\r\n")
        assert b"Content-Encoding: gzip" in head
        assert gzip.decompress(body).endswith(b'a_gauge{n="4999"} 1\n')


async def test_a_connection_serves_several_scrapes() -> None:
    async with serving(Source()) as endpoint:
        reader, writer = await asyncio.open_connection("127.0.0.1", endpoint.port)
        for number in (1, 2, 3):
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            await asyncio.wait_for(reader.readuntil(f'a_gauge{{n="0"}} {number}\n'.encode()), 20)
        writer.close()


async def test_scrapes_at_the_same_time_share_a_collection() -> None:
    source = Source()
    source.gate.clear()
    async with serving(source) as endpoint:
        scrapes = [asyncio.create_task(ask(endpoint.port, get())) for _ in range(5)]
        await eventually(lambda: endpoint.scrapers == 5 and source.collections == 1)
        source.gate.set()
        answers = await asyncio.gather(*scrapes)
        assert source.collections == 1
        assert all(b"200 OK" in answer for answer in answers)


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (get("/other"), b"404"),
        (get(method="POST"), b"405"),
        (get("/-/healthy"), b"200"),
        (get(method="POST", more="Content-Length: 5\r\n"), b"400"),
        (b"nonsense\r\n\r\n", b""),
        (b"x" * 100_000, b""),
    ],
)
async def test_other_requests(request_bytes: bytes, status: bytes) -> None:
    async with serving(Source()) as endpoint:
        answer = b""
        with contextlib.suppress(ConnectionError):
            answer = await ask(endpoint.port, request_bytes)
        assert answer[9:12] == status
        assert b"200 OK" in await ask(endpoint.port, get())


async def test_too_many_scrapers_are_refused() -> None:
    async with serving(Source()) as endpoint:
        writers = [(await asyncio.open_connection("127.0.0.1", endpoint.port))[1] for _ in range(MAX_CONNECTIONS)]
        assert b"503" in await ask(endpoint.port, get())
        for writer in writers:
            writer.close()


async def test_a_taken_port_is_one_clear_error() -> None:
    async with serving(Source()) as endpoint:
        other = PrometheusEndpoint(Source().collect, "127.0.0.1", endpoint.port)
        with pytest.raises(MetricsEndpointError, match="cannot serve metrics on 127"):
            await other.start()


async def test_a_failed_collection_is_an_error_of_the_server() -> None:
    async def collect() -> Snapshot:
        raise ValueError("a broken collector")

    endpoint = PrometheusEndpoint(collect, "127.0.0.1", 0)
    await endpoint.start()
    try:
        assert b"500" in (await ask(endpoint.port, get()))[:20]
    finally:
        await endpoint.stop()
