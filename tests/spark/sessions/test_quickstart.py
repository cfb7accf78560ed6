"""The quickstart's tour ends with a query in Spark, or with a sentence that says why not."""

from __future__ import annotations

import io
import os
import signal
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from orbitmq.cli.quickstart.spark import ask_spark
from orbitmq.platform.settings import ConfigError
from peers.ports import free_port
from support.cli.command import run_apart
from support.cli.server_process import orbitmq

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("java_and_pyspark")

TOUR = ("quickstart", "--nameserver-port", 0, "--broker-port", 0, "--messages", 300)


def test_the_tour_ends_with_sql_over_what_it_sent(tmp_path: Path) -> None:
    amounts = {"paid": 0, "refunded": 0}
    for number in range(300):
        amounts["refunded" if number % 5 == 0 else "paid"] += number * 37 % 1000
    for _ in range(2):  # the second one counts only its own orders
        ran = run_apart(*TOUR, "--once", "--data", tmp_path)
        assert (ran.code, ran.err) == (0, "")
        assert "300 orders read by Spark" in ran.out
        assert "SELECT tags, count(*) AS orders" in ran.out
        cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in ran.out.splitlines() if "│" in line]
        assert cells == [["paid", "240", f"{amounts['paid']:,}"], ["refunded", "60", f"{amounts['refunded']:,}"]]


async def test_the_tour_can_be_stopped_while_spark_starts(tmp_path: Path) -> None:
    async with orbitmq(tmp_path, *TOUR, "--stay") as process:
        await process.says("(the store verified)")
        assert await process.stopped(signal.SIGINT) == 0
    assert process.errors == ""
    assert not any("Spark" in line for line in process.lines)
    assert processes_in(tmp_path) == []


def processes_in(home: Path) -> list[str]:
    """The commands of processes that have this home directory."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as environment, open(f"/proc/{name}/cmdline") as command:
                if f"HOME={home}".encode() in environment.read().split(b"\0"):
                    found.append(command.read())
        except OSError:
            continue  # it has ended, or is not ours
    return found


async def test_a_query_that_fails_is_a_sentence() -> None:
    out = io.StringIO()
    await ask_spark(Console(file=out, width=200), f"127.0.0.1:{free_port()}", "orders", "mark", {"paid": 1})
    assert out.getvalue().startswith("– the query in Spark failed: ")
    assert out.getvalue().count("\n") == 1


async def test_other_numbers_than_expected_are_a_fault(nameserver: str) -> None:
    from orbitmq.aio import Message, Producer

    topic = "orders_that_are_one"
    async with Producer(nameserver, group="orders") as producer:
        await producer.send(Message(topic, b"1", tags="paid", properties={"amount": "1", "tour": "mark"}))
    with pytest.raises(ConfigError, match=r"Spark counts \{'paid': 1\}, not \{'paid': 2\}"):
        await ask_spark(Console(file=io.StringIO()), nameserver, topic, "mark", {"paid": 2})
