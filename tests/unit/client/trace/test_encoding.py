"""What clients write down of messages: byte for byte as Java's do, and read whoever wrote it."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.client.trace.dispatcher import MAX_BYTES, MAX_KEY_BYTES, keys_of, trace_messages
from orbitmq.client.trace.encoding import (
    ConsumeBegun,
    ConsumeEnded,
    ConsumeOutcome,
    MessageKind,
    Published,
    Recalled,
    TraceRecord,
    TransactionEnded,
    decode_trace,
)
from orbitmq.protocol.message.properties import parse
from support.remoting_harness import decoded
from support.wire_captures import records

SENT = Published(
    timestamp=1794774904443,
    region="DefaultRegion",
    group="PG_trace",
    topic="T_trace",
    message_id="FD0000000000000000000000000000021DE44E0E2F2A4C83C67A000A",
    tags="TR",
    keys="tr1",
    store_host="127.0.0.1:14911",
    body_length=6,
    cost_ms=432,
    kind=MessageKind.NORMAL,
    offset_message_id="7F00000100003A3F0000000000013A16",
    succeeded=True,
)


def captured() -> list[tuple[str, set[str]]]:
    """The trace messages that Java's clients sent: text and keys."""
    found = []
    for record in records("java_json_19_trace"):
        (command,) = decoded(base64.b64decode(record["frame_b64"]))
        if command.ext_fields.get("b") == "RMQ_SYS_TRACE_TOPIC":
            keys = parse(command.ext_fields["i"])["KEYS"]
            found.append(((command.body or b"").decode(), set(keys.split(" "))))
    return found


def test_what_java_has_written_is_written_the_same_again() -> None:
    messages = captured()
    assert len(messages) == 4
    for text, keys in messages:
        found = decode_trace(text)
        assert "".join(record.encode() for record in found) == text
        assert {key for record in found for key in keys_of(record)} == keys
    assert decode_trace(messages[1][0])[0] == SENT


def test_every_kind_is_read_as_it_was_written() -> None:
    written: list[TraceRecord] = [
        SENT,
        ConsumeBegun(5, "R", "G", "call", "id", 2, None),
        ConsumeEnded("call", "id", 7, False, None, ConsumeOutcome.TIME_OUT, 12, "G"),
        TransactionEnded(
            1, "R", "G", "T", "id", None, "k", "h:1", MessageKind.TRANSACTION_END, "tx", "UNKNOW", True
        ),
        Recalled(1, "R", "G", "T", "id", True),
    ]
    assert decode_trace("".join(record.encode() for record in written)) == written


def test_other_clients_write_less_or_more() -> None:
    old = "\x01".join(("Pub", "1", "R", "G", "T", "id", "tag", "key", "h:1", "6", "4", "0", "true"))
    go = "\x01".join(("Pub", "1", "R", "G", "T", "id", "", "", "h:1", "6", "4", "0", "off", "false", "10.0.0.1"))
    of_cpp = "\x01".join(("SubAfter", "call", "id", "3", "false", "dKey"))
    of_cloud = "\x01".join(("SubAfter", "call", "id", "3", "false", "k", "2"))
    first, second, third, fourth = decode_trace("\x02".join((old, go, of_cpp, of_cloud, "")))
    assert isinstance(first, Published)
    assert (first.offset_message_id, first.succeeded, first.client_host) == (None, True, None)
    assert isinstance(second, Published)
    assert (second.offset_message_id, second.succeeded, second.client_host) == ("off", False, "10.0.0.1")
    assert (second.tags, second.keys) == (None, None)
    assert isinstance(third, ConsumeEnded)
    assert (third.outcome, third.timestamp, third.group) == (ConsumeOutcome.FAILED, 0, None)
    assert isinstance(fourth, ConsumeEnded)
    assert (fourth.outcome, fourth.group) == (ConsumeOutcome.EXCEPTION, None)


@pytest.mark.parametrize(
    "text", ["", "\x02\x02", "Pub", "Pub\x01x\x02", "Nothing\x011\x02", "SubAfter\x01a\x01b\x01c"]
)
def test_what_nobody_can_read_is_left_out(text: str) -> None:
    assert decode_trace(text + "\x02" + SENT.encode()) == [SENT]


@given(st.text())
def test_no_text_makes_reading_fail(text: str) -> None:
    for record in decode_trace(text):
        record.encode()


def test_messages_stay_within_their_limits() -> None:
    many = [
        ConsumeBegun(1, "R", "G", "call", f"{number:056d}", 0, " ".join(["key" * 10] * 5)) for number in range(2000)
    ]
    messages = list(trace_messages("T", many))
    assert [record for message in messages for record in decode_trace(message.body.decode())] == many
    for message in messages:
        assert len(message.body) <= MAX_BYTES
        assert len(" ".join(message.keys)) <= MAX_KEY_BYTES
        ids = {record.message_id for record in decode_trace(message.body.decode())}
        assert ids <= set(message.keys)
