"""``orbitmq tail`` prints the messages of a topic as they come, and leaves no trace of itself."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from orbitmq import Message
from orbitmq.cli.messages import tail as tail_module
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.names import TOOLS_CONSUMER_GROUP
from orbitmq.testing import LocalCluster
from peers.frames import ask
from support.cli.command import WIDTH, Ran, run
from support.cli.server_process import ServerProcess, orbitmq, soon

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from typing import Any

    from orbitmq import Producer
    from orbitmq.testing import ThreadCluster

NOBODY = "127.0.0.1:1"


@pytest.fixture
def cluster() -> Iterator[ThreadCluster]:
    with LocalCluster(settings={"enablePropertyFilter": "false"}) as cluster:
        yield cluster


def tails(cluster: ThreadCluster, *arguments: object) -> Ran:
    return run("tail", "orders", "-n", cluster.name_server, "--from", "beginning", *arguments)


def sends(cluster: ThreadCluster, *bodies: bytes | str, **options: Any) -> None:
    producer: Producer = cluster.producer(group="senders")
    for body in bodies:
        producer.send(Message("orders", body, **options))
    producer.close()


# What is printed


def test_people_see_where_a_message_lies_and_what_it_says(cluster: ThreadCluster) -> None:
    sends(cluster, "grüße", tags="paid", keys=["42", "43"], properties={"amount": "9"})
    (message,) = cluster.messages("orders")
    ran = tails(cluster, "--count", 1)
    assert (ran.code, ran.err) == (0, "")
    _, _, rest = ran.out.partition("  ")
    assert rest == f"broker-a/{message.queue_id}:0  paid  #42  #43  amount=9  grüße\n"


def test_machines_get_an_object_a_line(cluster: ThreadCluster) -> None:
    sends(cluster, "hello", tags="paid", keys="42", properties={"amount": "9"})
    (message,) = cluster.messages("orders")
    (row,) = tails(cluster, "--json", "--count", 1).lines
    assert row == {
        "topic": "orders",
        "brokerName": "broker-a",
        "queueId": message.queue_id,
        "queueOffset": 0,
        "msgId": message.message_id,
        "offsetMsgId": message.offset_message_id,
        "bornTimestamp": message.born_timestamp,
        "bornHost": message.born_host,
        "storeTimestamp": message.store_timestamp,
        "storeHost": message.store_host,
        "reconsumeTimes": 0,
        "flag": 0,
        "tags": "paid",
        "keys": ["42"],
        "properties": message.properties,
        "body": "hello",
    }


@pytest.mark.parametrize(
    ("body", "shown", "row"),
    [
        (b"\x1b[31mred\x07\nline", "\\x1b[31mred\\x07\\nline", {"body": "\x1b[31mred\x07\nline"}),
        (b"\xff\x1b", "[2 B: ff1b]", {"bodyHex": "ff1b"}),
        (b"\xff" * 100, f"[100 B: {'ff' * 64}…]", {"bodyHex": "ff" * 100}),
        (b"a" * 2005, "a" * 2000 + " … 5 characters more", {"body": "a" * 2005}),
        (b"z" * 10_000, "z" * 2000 + " … 8000 characters more", {"body": "z" * 10_000}),
    ],
)
def test_nothing_in_a_body_can_do_anything_to_a_terminal(
    cluster: ThreadCluster, body: bytes, shown: str, row: dict[str, str]
) -> None:
    sends(cluster, body, tags="\x1b]0;title\x07")
    out = tails(cluster, "--count", 1).out
    assert out.endswith(f"  \\x1b]0;title\\x07  {shown}\n")
    assert "\x1b" not in out
    (line,) = tails(cluster, "--count", 1, "--json").lines
    assert {name: value for name, value in line.items() if name.startswith("body")} == row


def test_a_terminal_gets_colours_unless_it_wants_none(cluster: ThreadCluster) -> None:
    sends(cluster, "hello", tags="paid")
    assert "\x1b[33m\x1b[1mpaid\x1b[0m" in on_a_terminal(cluster, TERM="xterm-256color")
    assert "\x1b" not in on_a_terminal(cluster, TERM="xterm-256color", NO_COLOR="1")


def on_a_terminal(cluster: ThreadCluster, **environment: str) -> str:
    try:
        master, slave = pty.openpty()
    except OSError as error:
        pytest.skip(f"there are no pseudo-terminals here: {error}")
    command = [sys.executable, "-m", "orbitmq", "tail", "orders", "-n", cluster.name_server]
    env = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "TERM"}} | environment
    try:
        subprocess.run(
            [*command, "--from", "beginning", "--count", "1"], stdout=slave, env=env, timeout=60, check=True
        )
        return os.read(master, 10_000).decode()
    finally:
        os.close(slave)
        os.close(master)


# Which messages


def test_all_queues_are_read_each_in_its_order(cluster: ThreadCluster) -> None:
    sends(cluster, *map(str, range(100)))
    rows = tails(cluster, "--json", "--count", 100).lines
    assert sorted(int(row["body"]) for row in rows) == list(range(100))
    for queue in range(4):
        offsets = [row["queueOffset"] for row in rows if row["queueId"] == queue]
        assert offsets == list(range(25))


def test_tags_choose(cluster: ThreadCluster) -> None:
    for tag in ("paid", "refunded", "new"):
        sends(cluster, tag, tags=tag)
    rows = tails(cluster, "--tag", "paid || refunded", "--json", "--count", 2).lines
    assert {row["tags"] for row in rows} == {"paid", "refunded"}


def test_sql_chooses_even_at_a_broker_that_does_not_speak_it(cluster: ThreadCluster) -> None:
    for amount in range(10):
        sends(cluster, str(amount), properties={"amount": str(amount)})
    rows = tails(cluster, "--sql", "amount >= 8 OR amount = 3", "--json", "--count", 3).lines
    assert {row["body"] for row in rows} == {"3", "8", "9"}


def test_a_time_is_where_it_begins(cluster: ThreadCluster) -> None:
    sends(cluster, "before")
    cluster.advance(60)
    sends(cluster, "after")
    (early, late) = cluster.messages("orders")
    for moment in (early.store_timestamp + 1, late.store_timestamp):
        (row,) = run("tail", "orders", "-n", cluster.name_server, "--from", moment, "--count", 1, "--json").lines
        assert row["body"] == "after"


async def test_it_begins_at_the_end_and_goes_on_until_ctrl_c(cluster: ThreadCluster, tmp_path: Path) -> None:
    await asyncio.to_thread(sends, cluster, "old", "old", "old", "old")
    async with orbitmq(tmp_path, "tail", "orders", "-n", cluster.name_server) as process:
        await keep_sending(cluster, process)
        assert await process.stopped(signal.SIGINT) == 0
    assert process.errors == ""
    assert all(line.endswith("  new\n") for line in process.lines)


async def test_a_topic_that_is_not_there_is_waited_for(cluster: ThreadCluster, tmp_path: Path) -> None:
    async with orbitmq(tmp_path, "tail", "orders", "-n", cluster.name_server, "--count", 3) as process:
        await soon(lambda: process.errors)
        await asyncio.to_thread(sends, cluster, "one", "two", "three")
        assert await process.ended() == 0
    assert process.errors == "orbitmq: topic 'orders' does not exist yet, waiting for it\n"
    assert {line.split()[-1] for line in process.lines} == {"one", "two", "three"}


async def test_it_goes_on_when_a_broker_has_come_back(cluster: ThreadCluster, tmp_path: Path) -> None:
    await asyncio.to_thread(sends, cluster, "first")
    said = ("--from", "beginning", "--count", 2)
    async with orbitmq(tmp_path, "tail", "orders", "-n", cluster.name_server, *said) as process:
        await process.says("  (first)")
        await asyncio.to_thread(cluster.stop, "broker-a")
        await soon(lambda: process.errors)
        await asyncio.to_thread(cluster.start, "broker-a")
        await asyncio.to_thread(sends, cluster, "second")
        assert await process.ended() == 0
    assert process.lines[1].endswith("  second\n")
    complaints = process.errors.splitlines()
    assert all(line.startswith("orbitmq: ") for line in complaints)
    assert len(set(complaints)) == len(complaints)


async def keep_sending(cluster: ThreadCluster, process: ServerProcess) -> None:
    """Until one is printed: before, it may not have begun yet."""
    while not process.lines:
        await asyncio.to_thread(sends, cluster, "new")
        await asyncio.sleep(0.05)


async def test_queues_that_come_later_are_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tail_module, "QUEUES_SECONDS", 0.02)
    with LocalCluster() as cluster:
        await asyncio.to_thread(sends, cluster, "old")
        tailing = asyncio.create_task(
            asyncio.to_thread(
                run, "tail", "orders", "-n", cluster.name_server, "--sql", "late = 'yes'", "--count", 1
            )
        )
        address = cluster.address("broker-a")
        # Sent to the last queue only, over and over: it may have been found before the first, or after.
        more = {"defaultTopic": "TBW102", "perm": "6", "topicFilterType": "SINGLE_TAG", "order": "false"}
        fields = {"topic": "orders", "readQueueNums": "9", "writeQueueNums": "9", "topicSysFlag": "0", **more}
        assert ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 0
        while not tailing.done():
            await asyncio.to_thread(send_to_last_queue, cluster)
            await asyncio.sleep(0.05)
        ran = await tailing
    assert ran.code == 0, ran.err
    assert "broker-a/8:" in ran.out


def send_to_last_queue(cluster: ThreadCluster) -> None:
    producer: Producer = cluster.producer(group="senders")
    queue = max(producer.queues("orders"))
    producer.send(Message("orders", "late", properties={"late": "yes"}), queue=queue)
    producer.close()


# What it leaves alone


def test_no_groups_offsets_are_touched(cluster: ThreadCluster) -> None:
    sends(cluster, "a", "b")
    for _ in range(2):
        assert len(tails(cluster, "--json", "--count", 2).lines) == 2
    assert cluster.consumer_offsets(TOOLS_CONSUMER_GROUP) == {}


def test_it_ends_when_its_output_is_closed(cluster: ThreadCluster) -> None:
    sends(cluster, "hello")
    command = [sys.executable, "-m", "orbitmq", "tail", "orders", "-n", cluster.name_server, "--from", "beginning"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env={**os.environ, **WIDTH}, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline().endswith("hello\n")
        process.stdout.close()
        # No further message has to come for that.
        assert process.wait(30) == 0
        assert process.stderr.read() == ""


# What is wrong


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["orders", "-n", NOBODY], "no name server responds "),
        (["no topic", "-n", NOBODY], "the topic 'no topic' contains illegal characters"),
        (["orders", "-n", NOBODY, "--sql", "amount >"], "--sql: "),
    ],
)
def test_what_cannot_be_followed_is_one_sentence(arguments: list[str], complaint: str) -> None:
    ran = run("tail", *arguments)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"orbitmq: {complaint}")
    assert ran.err.count("\n") == 1


def test_a_topic_without_read_permission_is_an_error(cluster: ThreadCluster) -> None:
    more = {"defaultTopic": "TBW102", "perm": "2", "topicFilterType": "SINGLE_TAG", "order": "false"}
    fields = {"topic": "orders", "readQueueNums": "4", "writeQueueNums": "4", "topicSysFlag": "0", **more}
    assert ask(cluster.address("broker-a"), RequestCode.UPDATE_AND_CREATE_TOPIC, fields).code == 0
    ran = tails(cluster)
    assert ran.code == 1
    assert ran.err == "orbitmq: topic 'orders' has no read permission\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--tag", "a", "--sql", "b = 1"], "give --tag or --sql, not both"),
        (["--from", "someday"], "'someday' is not a time"),
        (["--count", "0"], "'--count'"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused(arguments: list[str], complaint: str) -> None:
    ran = run("tail", "orders", *arguments)
    assert ran.code == 2
    assert complaint in ran.err
