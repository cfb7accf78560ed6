"""Kill -9 of a broker process with timer messages: none is lost, none is early."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode, ResponseCode
from support.broker.requests import TOPIC, Talker, pulled, talking_at
from support.cli.server_process import SMALL_FILES, ServerProcess, orbitmq
from support.remoting_harness import HOST, PATIENCE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

LIVES = int(os.environ.get("ORBITMQ_BROKER_KILLS", "4"))
PRODUCERS = 8
QUEUES = 4
PRECISION_MS = 100
SETTINGS = (
    f"timerPrecisionMs={PRECISION_MS}",
    "timerFlushIntervalMs=50",
    "timerRollWindowSlot=10",
    "mappedFileSizeTimerLog=4096",
    "recallMessageEnable=true",
    "brokerName=killed",
    "listenPort=0",
    f"bindAddress={HOST}",
)


class Ledger:
    """Knowledge of the senders."""

    def __init__(self) -> None:
        self.rng = random.Random(7)
        self.number = 0
        self.due: dict[bytes, int] = {}
        """Acknowledged messages with their delivery times."""
        self.asked_back: set[bytes] = set()
        self.taken_back: set[bytes] = set()


@contextlib.asynccontextmanager
async def broker_process(home: Path) -> AsyncIterator[tuple[ServerProcess, str]]:
    conf = home / "broker.conf"
    conf.write_text(SMALL_FILES + "\n".join(SETTINGS) + "\n")
    async with orbitmq(home, "broker", "-c", conf) as server:
        yield server, await server.says(r"listens on (\S+),")


async def produce(client: Talker, ledger: Ledger) -> None:
    """Send messages for the next seconds, one after another; recall some."""
    while True:
        ledger.number += 1
        body = b"%d" % ledger.number
        due = _now() + ledger.rng.randrange(50, 4000)
        answer = await client.stores(
            body,
            queueId=ledger.rng.randrange(QUEUES),
            properties={"TIMER_DELIVER_MS": str(due), "UNIQ_KEY": f"K{ledger.number}"},
        )
        ledger.due[body] = due
        if ledger.rng.random() < 0.1 and due > _now() + 1000 and "recallHandle" in answer.ext_fields:
            ledger.asked_back.add(body)
            recalled = await client.asks(
                RequestCode.RECALL_MESSAGE,
                producerGroup="g",
                topic=TOPIC,
                recallHandle=answer.ext_fields["recallHandle"],
            )
            if recalled.code == ResponseCode.SUCCESS and due > _now() + 500:
                ledger.taken_back.add(body)


def _now() -> int:
    return time.time_ns() // 1_000_000


async def live(server: ServerProcess, address: str, ledger: Ledger, messages: int) -> None:
    """Run producers until so many more messages were sent; then kill the broker."""
    wanted = len(ledger.due) + messages
    async with talking_at(address) as client:
        tasks = [asyncio.create_task(produce(client, ledger)) for _ in range(PRODUCERS)]
        async with asyncio.timeout(PATIENCE):
            while len(ledger.due) < wanted:  # noqa: ASYNC110 - the producers know nothing of it
                await asyncio.sleep(0.001)
        assert await server.stopped(signal.SIGKILL) == -signal.SIGKILL
        # Responses sent before the kill are still in flight.
        await asyncio.wait([client._listening], timeout=PATIENCE)
        for _ in range(5):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError | ConnectionError) for end in ends), ends


async def delivered(client: Talker, ledger: Ledger) -> Counter[bytes]:
    """How often each message was delivered; fails if one was early."""
    found: Counter[bytes] = Counter()
    for queue_id in range(QUEUES):
        offset = 0
        while (answer := await client.pulls(offset, queue_id=queue_id)).code == ResponseCode.SUCCESS:
            for record in pulled(answer):
                # Unacknowledged messages carry their time in the record itself.
                due = ledger.due.get(record.body, 0)
                assert record.store_timestamp >= due, f"{record.body!r} is {due - record.store_timestamp} ms early"
                found[record.body] += 1
            offset = int(answer.ext_fields["nextBeginOffset"])
    return found


async def test_no_message_is_lost_early_or_delivered_after_its_recall(tmp_path: Path) -> None:
    ledger = Ledger()
    for _ in range(LIVES):
        async with broker_process(tmp_path) as (server, address):
            await live(server, address, ledger, ledger.rng.choice((50, 300, 600)))
    async with broker_process(tmp_path) as (server, address), talking_at(address) as client:
        async with asyncio.timeout(PATIENCE):
            wanted = ledger.due.keys() - ledger.asked_back
            while not wanted <= (found := await delivered(client, ledger)).keys():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert not ledger.taken_back & found.keys()
        assert await server.stopped() == 0
    assert len(ledger.due) > 50 * LIVES
    # A clean shutdown repeats nothing.
    async with broker_process(tmp_path) as (server, address), talking_at(address) as client:
        assert await delivered(client, ledger) == found
        assert await server.stopped() == 0
