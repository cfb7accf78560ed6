"""``orbitmq tail`` of stored messages, ``orbitmq consume``, delayed ``send``, ``request`` and ``reply``."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from orbitmq import Message, MessageQueue, Producer
from orbitmq.testing import LocalCluster
from support.cli.command import Ran, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orbitmq.testing import ThreadCluster

WAIT = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadCluster]:
    """A cluster with eight messages of the topic ``orders`` in its four queues, two each."""
    with LocalCluster() as cluster:
        with Producer(cluster.name_server) as producer:
            for number in range(8):
                queue = MessageQueue("orders", "broker-a", number % 4)
                message = Message("orders", json={"id": number}, tags=f"t{number}")
                producer.send(message, queue=queue)
        yield cluster


def tail(cluster: ThreadCluster, *arguments: object) -> Ran:
    return run("tail", "orders", "-n", cluster.name_server, *arguments)


def ids(ran: Ran) -> list[int]:
    assert (ran.code, ran.err) == (0, "")
    return [int(line) for line in ran.out.split()]


ID = ("--format", "{json[id]}")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--no-follow",), [0, 1, 2, 3, 4, 5, 6, 7]),
        (("--no-follow", "--last", 3), [5, 6, 7]),
        (("--no-follow", "--last", 100), [0, 1, 2, 3, 4, 5, 6, 7]),
        (("--no-follow", "--queue", 1), [1, 5]),
        (("--no-follow", "--queue", "broker-a:2", "--queue", 3), [2, 3, 6, 7]),
        (("--no-follow", "--tag", "t1 || t6"), [1, 6]),
        (("--no-follow", "--tag", "t1 || t6 || t7", "--last", 2), [6, 7]),
        (("--no-follow", "--sql", "TAGS = 't3'"), [3]),
        (("--no-follow", "--count", 2), [0, 1]),
        (("--no-follow", "--from", "end"), []),
        (("--no-follow", "--from", "1h ago"), [0, 1, 2, 3, 4, 5, 6, 7]),
        (("--last", 2, "--count", 2), [6, 7]),
        (("--queue", 1, "--from", "beginning", "--count", 2), [1, 5]),
    ],
)
def test_stored_messages_are_printed_by_the_time_of_storing(
    cluster: ThreadCluster, arguments: tuple[object, ...], expected: list[int]
) -> None:
    found = ids(tail(cluster, *ID, *arguments))
    # While following, queues arrive in any order.
    assert (found if "--no-follow" in arguments or "--last" in arguments else sorted(found)) == expected


def test_after_the_last_messages_come_new_ones(cluster: ThreadCluster) -> None:
    command = [sys.executable, "-m", "orbitmq", "tail", "followed", "-n", cluster.name_server]
    with Producer(cluster.name_server) as producer:
        for number in range(3):
            producer.send(Message("followed", str(number)))
        with subprocess.Popen(
            [*command, "--last", "2", "--count", "3", "--format", "{body}"], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert {process.stdout.readline(), process.stdout.readline()} == {"1\n", "2\n"}
            producer.send(Message("followed", "new"))
            assert process.communicate(timeout=WAIT)[0] == "new\n"


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (("--no-follow", "--queue", "9"), 1, "the topic has no such queue; it has broker-a:0, broker-a:1"),
        (("--queue", "x"), 2, "neither a number nor"),
        (("--format", "{nothing}"), 2, "unknown field 'nothing'; the fields are body,"),
        (("--format", "{body}", "--json"), 2, "give --json or --format, not both"),
        (("--last", "3", "--from", "end"), 2, "give --from or --last, not both"),
    ],
)
def test_what_cannot_be_printed_is_one_sentence(
    cluster: ThreadCluster, arguments: tuple[str, ...], code: int, complaint: str
) -> None:
    ran = tail(cluster, *arguments)
    assert ran.code == code
    assert complaint in " ".join(ran.err.replace("│", " ").split())


def test_a_missing_topic_has_no_stored_messages(cluster: ThreadCluster) -> None:
    ran = run("tail", "nowhere", "-n", cluster.name_server, "--no-follow")
    assert ran.code == 1
    assert ran.err.startswith("orbitmq: no broker serves the topic 'nowhere'")


def test_a_group_consumes_what_it_has_not_consumed(cluster: ThreadCluster) -> None:
    def consume(*arguments: object) -> list[int]:
        options = ("-g", "readers", "-n", cluster.name_server, *ID)
        return ids(run("consume", "orders", *options, *arguments))

    first = consume("--from", "earliest", "--count", 5)
    rest = consume("--count", 3)
    assert sorted(first + rest) == list(range(8))
    assert consume("--idle", "100ms") == []


def test_a_message_is_sent_for_later(cluster: ThreadCluster) -> None:
    now = time.time()
    for option in (("--delay", "1h30m"), ("--deliver-at", f"@{now + 7200:.3f}")):
        assert run("send", "later", "x", "-n", cluster.name_server, *option).code == 0
    assert tail_count(cluster, "later") == 0
    cluster.advance(5401)
    assert tail_count(cluster, "later") == 1
    cluster.advance(1801)
    assert tail_count(cluster, "later") == 2


def tail_count(cluster: ThreadCluster, topic: str) -> int:
    return len(cluster.messages(topic))


def test_a_line_has_its_own_delay_or_that_of_the_command(cluster: ThreadCluster, tmp_path: Path) -> None:
    file = tmp_path / "lines.jsonl"
    file.write_text('{"body": "a", "delay": 60}\n{"body": "b", "delayLevel": 0}\n{"body": "c"}\n')
    ran = run("send", "lines", "--file", file, "--delay", "2h", "-n", cluster.name_server)
    assert ran.code == 0
    assert [message.text() for message in cluster.messages("lines")] == ["b"]
    cluster.advance(61)
    assert sorted(message.text() for message in cluster.messages("lines")) == ["a", "b"]
    cluster.advance(7200)
    assert tail_count(cluster, "lines") == 3


def test_one_delay_is_enough(cluster: ThreadCluster) -> None:
    ran = run("send", "t", "x", "--delay", "1s", "--delay-level", "1", "-n", cluster.name_server)
    assert ran.code == 2
    assert "give one of --delay" in ran.err


def test_a_request_is_replied_to_by_a_command(cluster: ThreadCluster) -> None:
    with Producer(cluster.name_server) as producer:
        producer.send(Message("questions", "creates the topic"))
    options = ("-n", cluster.name_server)
    reply = [sys.executable, "-m", "orbitmq", "reply", "questions", *options, "--command", "tr a-z A-Z"]
    with subprocess.Popen([*reply, "--count", "1"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = {process.stderr.readline(), process.stderr.readline()}
        assert "orbitmq: replying to requests of questions\n" in lines
        assert any("is not a request" in line for line in lines)
        ran = run("request", "questions", "hello", *options, "--timeout", "30s")
        assert (ran.code, ran.out) == (0, "HELLO\n")
        assert process.wait(WAIT) == 0


def test_a_request_without_a_reply_fails(cluster: ThreadCluster) -> None:
    ran = run("request", "orders", "hello", "-n", cluster.name_server, "--timeout", "100ms")
    assert ran.code == 1
    assert "no reply arrived within 0.1 s" in ran.err
