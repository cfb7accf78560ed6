"""Kill -9 of a broker process while consumers pop: unacked messages are redelivered, and no others."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING

from peers.ports import endpoint
from support.broker.pop_harness import Got, Popper, bodies_of
from support.broker.requests import TOPIC
from support.cli.server_process import SMALL_FILES, ServerProcess, orbitmq
from support.remoting_harness import HOST, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

MESSAGES = 40
INVISIBLE_MS = 4000
SETTINGS = (
    "flushDiskType=SYNC_FLUSH",
    "flushConsumerOffsetInterval=20",
    "reviveInterval=50",
    "brokerName=broker-a",
    "listenPort=0",
    f"bindAddress={HOST}",
)


@contextlib.asynccontextmanager
async def broker_process(home: Path) -> AsyncIterator[tuple[ServerProcess, Popper]]:
    conf = home / "broker.conf"
    conf.write_text(SMALL_FILES + "\n".join(SETTINGS) + "\n")
    async with orbitmq(home, "broker", "-c", conf) as server:
        address = await server.says(r"listens on (\S+),")
        client = Popper(*await asyncio.open_connection(*endpoint(address), limit=1 << 26))
        try:
            yield server, client
        finally:
            await client.leave()


async def pop_all(client: Popper, count: int) -> list[Got]:
    """Pop until so many messages arrived."""
    found: list[Got] = []
    while len(found) < count:
        found += await client.gets(TOPIC, invisible_ms=INVISIBLE_MS, poll_ms=20_000)
    return found


async def test_a_kill_redelivers_messages_in_flight_and_no_acked_ones(tmp_path: Path) -> None:
    bodies = [b"%d" % number for number in range(MESSAGES)]
    async with broker_process(tmp_path) as (server, client):
        for number, body in enumerate(bodies):
            await client.stores(body, queueId=number % 4)
        got = await pop_all(client, MESSAGES)
        assert bodies_of(got) == sorted(bodies)
        settled, lost = got[::2], got[1::2]
        await client.settles(*settled)
        offsets = tmp_path / "store" / "config" / "consumerOffset.json"
        # The offset of the group must be on disk, or it would pop everything again.
        await eventually(lambda: offsets.exists() and offsets.read_text().count(f":{MESSAGES // 4}") >= 4)
        assert await server.stopped(signal.SIGKILL) == -signal.SIGKILL
    async with broker_process(tmp_path) as (server, client):
        again = await pop_all(client, len(lost))
        assert bodies_of(again) == bodies_of(lost)
        assert {one.record.reconsume_times for one in again} == {1}
        await client.settles(*again)
        await eventually(lambda: f":{len(lost)}" in offsets.read_text())
        assert await server.stopped(signal.SIGKILL) == -signal.SIGKILL
    async with broker_process(tmp_path) as (server, client):
        await client.stores(b"and on")
        (new,) = await pop_all(client, 1)
        assert new.body == b"and on"
        await client.settles(new)
        assert await server.stopped() == 0
