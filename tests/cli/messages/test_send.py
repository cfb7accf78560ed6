"""``orbitmq send`` sends what it is given, says where it went, and names what it could not send."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.testing import LocalCluster
from support.cli.command import WIDTH, Ran, run, run_apart

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orbitmq import ReceivedMessage
    from orbitmq.testing import ThreadCluster

NOBODY = "127.0.0.1:1"
MANY = 500


@pytest.fixture
def cluster() -> Iterator[ThreadCluster]:
    with LocalCluster() as cluster:
        yield cluster


def sends(cluster: ThreadCluster, *arguments: object) -> Ran:
    return run("send", "orders", *arguments, "-n", cluster.name_server)


def only(cluster: ThreadCluster) -> ReceivedMessage:
    (message,) = cluster.messages("orders")
    return message


def lines_at(path: Path, *rows: Any) -> Path:
    file = path / "lines.jsonl"
    file.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))
    return file


# One


def test_all_options_become_part_of_the_message(cluster: ThreadCluster) -> None:
    said = ("--tag", "paid", "--key", "42", "--key", "43", "--prop", "amount=9", "--prop", "note=a=b")
    ran = sends(cluster, "grüße", *said, "--sharding-key", "berlin")
    message = only(cluster)
    assert (ran.code, ran.err) == (0, "")
    assert message.text() == "grüße"
    assert (message.tags, message.keys) == ("paid", ["42", "43"])
    assert message.properties["amount"] == "9"
    assert message.properties["note"] == "a=b"
    assert message.properties["__SHARDINGKEY"] == "berlin"
    assert ran.out == (
        f"sent {message.message_id} to queue {message.queue_id} of orders on broker-a, "
        f"offset {message.queue_offset}\n"
    )


def test_a_receipt_for_machines_is_an_object(cluster: ThreadCluster) -> None:
    ran = sends(cluster, "hello", "--json")
    message = only(cluster)
    assert (ran.code, ran.err) == (0, "")
    assert ran.lines == [
        {
            "sendStatus": "SEND_OK",
            "msgId": message.message_id,
            "offsetMsgId": message.offset_message_id,
            "topic": "orders",
            "brokerName": "broker-a",
            "queueId": message.queue_id,
            "queueOffset": 0,
        }
    ]


@pytest.mark.parametrize("body", [["-"], []])
def test_standard_input_is_one_message_byte_for_byte(
    cluster: ThreadCluster, tmp_path: Path, body: list[str]
) -> None:
    sent = bytes(range(256)) * 1000 + b"\n\n"
    (tmp_path / "body").write_bytes(sent)
    with (tmp_path / "body").open() as file:
        ran = run_apart("send", "orders", *body, "-n", cluster.name_server, stdin=file)
    assert (ran.code, ran.err) == (0, "")
    assert only(cluster).body == sent


def test_an_argument_that_is_no_text_is_sent_as_it_is(cluster: ThreadCluster) -> None:
    ran = run_apart("send", "orders", os.fsdecode(b"\xff\xfe"), "-n", cluster.name_server)
    assert ran.code == 0, ran.err
    assert only(cluster).body == b"\xff\xfe"


def test_a_delayed_message_comes_when_its_time_has_come(cluster: ThreadCluster) -> None:
    assert sends(cluster, "later", "--delay-level", 18).code == 0
    assert cluster.messages("orders") == []
    cluster.advance(2 * 3600 + 1)
    assert only(cluster).text() == "later"


def test_the_environment_says_where_the_name_server_is(
    cluster: ThreadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", cluster.name_server)
    assert run("send", "orders", "hello").code == 0
    assert only(cluster).text() == "hello"


# Many


def test_a_file_of_lines_is_many_messages(cluster: ThreadCluster, tmp_path: Path) -> None:
    file = lines_at(
        tmp_path,
        {"body": "text", "tags": "refunded", "keys": ["1", "2"], "properties": {"amount": "5"}},
        {"body": {"amount": 7}, "keys": "3"},
        "",
        {"bodyHex": "00ff", "flag": 3, "sharding_key": "a"},
        {"body": "null is nothing", "tags": None},
    )
    ran = sends(cluster, "--file", file, "--tag", "paid", "--key", "0", "--prop", "amount=1", "--prop", "by=hand")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("✓ 4 messages sent in ")
    found = {message.body: message for message in cluster.messages("orders")}
    text, number, binary, nothing = (
        found[body] for body in (b"text", b'{"amount":7}', b"\x00\xff", b"null is nothing")
    )
    assert (text.tags, text.keys, text.properties["amount"]) == ("refunded", ["1", "2"], "5")
    assert text.properties["by"] == "hand"
    assert (number.tags, number.keys, number.properties["amount"]) == ("paid", ["3"], "1")
    assert (binary.flag, binary.properties["__SHARDINGKEY"]) == (3, "a")
    assert (nothing.tags, nothing.keys) == ("paid", ["0"])


def test_receipts_come_in_the_order_of_the_lines(cluster: ThreadCluster, tmp_path: Path) -> None:
    file = lines_at(tmp_path, *({"body": str(number)} for number in range(MANY)))
    ran = sends(cluster, "--file", file, "--json")
    assert ran.code == 0
    assert ran.err.startswith(f"orbitmq: {MANY} messages sent in ")
    stored = {(message.queue_id, message.queue_offset): message for message in cluster.messages("orders")}
    found = [stored[receipt["queueId"], receipt["queueOffset"]] for receipt in ran.lines]
    assert [message.text() for message in found] == [str(number) for number in range(MANY)]
    assert [message.message_id for message in found] == [receipt["msgId"] for receipt in ran.lines]


def test_lines_with_one_sharding_key_keep_their_order(cluster: ThreadCluster, tmp_path: Path) -> None:
    rows = [{"body": f"{number} " + "x" * (number % 3 * 5000), "shardingKey": "a"} for number in range(60)]
    assert sends(cluster, "--file", lines_at(tmp_path, *rows)).code == 0
    messages = sorted(cluster.messages("orders"), key=lambda message: message.queue_offset)
    assert len({message.queue_id for message in messages}) == 1
    assert [int(message.text().split()[0]) for message in messages] == list(range(60))


def test_what_tail_prints_can_be_sent(cluster: ThreadCluster) -> None:
    assert sends(cluster, "hello", "--tag", "paid", "--key", "42", "--prop", "amount=9").code == 0
    printed = run("tail", "orders", "--from", "beginning", "--json", "--count", 1, "-n", cluster.name_server)
    ran = run_apart("send", "copies", "--file", "-", "-n", cluster.name_server, input=printed.out)
    assert ran.code == 0, ran.err
    (copy,) = cluster.messages("copies")
    assert (copy.text(), copy.tags, copy.keys, copy.properties["amount"]) == ("hello", "paid", ["42"], "9")
    assert copy.message_id != only(cluster).message_id


def test_lines_are_sent_as_they_come_down_a_pipe(cluster: ThreadCluster) -> None:
    with sending_lines(cluster) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for body in ("first", "second"):
            process.stdin.write(json.dumps({"body": body}) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["sendStatus"] == "SEND_OK"
        process.stdin.write('{"body": "third, without an end of line"}')
        process.stdin.close()
        assert process.wait(30) == 0
    assert len(cluster.messages("orders")) == 3


def test_ctrl_c_says_how_many_were_sent(cluster: ThreadCluster) -> None:
    with sending_lines(cluster) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write('{"body": "first"}\n')
        process.stdin.flush()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stderr.read() == "orbitmq: 1 message was sent\norbitmq: interrupted\n"


def sending_lines(cluster: ThreadCluster) -> subprocess.Popen[str]:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [
        sys.executable,
        "-m",
        "orbitmq",
        "send",
        "orders",
        "--file",
        "-",
        "--json",
        "-n",
        cluster.name_server,
    ]
    return subprocess.Popen(command, text=True, env={**os.environ, **WIDTH}, **pipes)  # type: ignore[call-overload, no-any-return]


# What is wrong


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "not JSON: "),
        ("[1]", "[1] is not a JSON object"),
        ({"bdy": "x"}, "unknown field 'bdy': a message has body or bodyHex, tags, "),
        ({"tags": "x"}, "a message needs either body or bodyHex"),
        ({"body": "x", "bodyHex": "00"}, "a message needs either body or bodyHex"),
        ({"bodyHex": "xy"}, "bodyHex must be pairs of hexadecimal digits"),
        ({"body": "x", "tags": 5}, "tags must be a string, not 5"),
        ({"body": "x", "keys": [5]}, "keys must be a string, not [5]"),
        ({"body": "x", "delayLevel": True}, "delayLevel must be a whole number, not true"),
        ({"body": "x", "properties": []}, "properties must be an object, not []"),
        ({"body": "x", "properties": {"a": 1}}, "property 'a' must be a string, not 1"),
        ({"body": "x", "properties": {"TAGS": "a"}}, "the property name 'TAGS' is RocketMQ's own"),
        ({"body": ""}, "the body of the message is empty"),
    ],
)
def test_a_line_that_is_wrong_is_named_and_what_came_before_is_sent(
    cluster: ThreadCluster, tmp_path: Path, line: Any, complaint: str
) -> None:
    ran = sends(cluster, "--file", lines_at(tmp_path, {"body": "fine"}, "", line, {"body": "too late"}))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"orbitmq: line 3: {complaint}")
    assert ran.err.endswith("; 1 message was sent\n")
    assert ran.err.count("\n") == 1
    assert only(cluster).text() == "fine"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["orders", "x", "-n", NOBODY], "no name server responds "),
        (["orders", "x", "-n", "nonsense"], "the name server 'nonsense' is not host:port"),
        (["no topic", "x", "-n", NOBODY], "the topic 'no topic' contains illegal characters"),
        (["orders", "", "-n", NOBODY], "the body of the message is empty"),
        (["orders", "x", "--prop", "TAGS=a", "-n", NOBODY], "the property name 'TAGS' is RocketMQ's own"),
        (["orders", "--file", "/no/such/file", "-n", NOBODY], "/no/such/file: No such file"),
    ],
)
def test_what_cannot_be_sent_is_one_sentence(arguments: list[str], complaint: str) -> None:
    ran = run("send", *arguments)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"orbitmq: {complaint}")
    assert ran.err.count("\n") == 1


def test_a_body_that_is_too_large_is_not_read_to_its_end(cluster: ThreadCluster) -> None:
    with open("/dev/zero") as endless:
        ran = run_apart("send", "orders", "-", "-n", cluster.name_server, stdin=endless)
    assert ran.code == 1
    assert ran.err == "orbitmq: standard input is larger than a message may be (4.2 MB)\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["x", "--file", "y"], "give a BODY or a --file, not both"),
        (["x", "--prop", "amount"], "--prop 'amount' is not NAME=VALUE"),
        (["x", "--delay-level", "19"], "'--delay-level'"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_refused(arguments: list[str], complaint: str) -> None:
    ran = run("send", "orders", *arguments)
    assert ran.code == 2
    assert complaint in ran.err
