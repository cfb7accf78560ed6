"""SIGTERM: an asyncio consumer drains its running handlers and commits before it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from orbitmq import Message

if TYPE_CHECKING:
    from orbitmq.testing import ThreadCluster

PROGRAM = """
import asyncio, signal, sys
from orbitmq.aio import Consumer

async def main():
    consumer = Consumer(sys.argv[1], group="g", consume_from_where="CONSUME_FROM_FIRST_OFFSET")

    running = asyncio.Event()

    @consumer.on("t")
    async def handle(message):
        await running.wait()
        print("begun", flush=True)
        await asyncio.sleep(0.3)
        print("ended", flush=True)

    other = Consumer(sys.argv[1], group="other")
    other.on("t")(handle)
    await consumer.start()
    await other.start()
    runs = [asyncio.create_task(one.run()) for one in (consumer, other)]
    await asyncio.sleep(0)
    running.set()
    await asyncio.gather(*runs)
    print("over", signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_run_after_the_handlers(orbitmq: ThreadCluster, number: signal.Signals) -> None:
    orbitmq.producer().send(Message("t", b"1"))
    command = [sys.executable, "-c", PROGRAM, orbitmq.name_server]
    # Unbuffered: what a buffer has read ahead would be missing in the rest.
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(number)
        out = process.communicate(timeout=30)[0].decode()
    assert (out + "begun").count("begun") == out.count("ended") > 0
    assert sum(orbitmq.consumer_offsets("g").values()) == 1
    if number is signal.SIGTERM:
        assert out.endswith("over True\n")
        assert process.returncode == 0
