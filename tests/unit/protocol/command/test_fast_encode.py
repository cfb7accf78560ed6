"""Prepared answers are the bytes that a real broker sent for the same values."""

from __future__ import annotations

import pytest

from orbitmq.protocol.codes import LanguageCode, ResponseCode, SerializeType
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.fast_encode import PullAnswers, SendAnswers
from orbitmq.protocol.command.frame import FrameParser
from support.wire_captures import all_captured

HOST = bytes.fromhex("7F00000100002A9F")
SENDS = {10, 310, 320}
PULLS = {11, 361}
OF_A_PLAIN_SEND = {"msgId", "queueId", "queueOffset", "transactionId", "TRACE_ON", "MSG_REGION"}


def decode(wire: bytes) -> Command:
    (frame,) = FrameParser().feed(wire)
    return Command.decode(frame)


@pytest.mark.parametrize(("is_binary", "at_least"), [(False, 200), (True, 30)])
def test_captured_answers_to_sends_are_made_again_byte_for_byte(is_binary: bool, at_least: int) -> None:
    made = 0
    for frame in all_captured():
        fields = frame.ext_fields
        if (
            frame.is_binary is is_binary
            and frame.is_response
            and frame.request_code in SENDS
            and fields.keys() == OF_A_PLAIN_SEND
            and "," not in fields["msgId"]
        ):
            host, offset = fields["msgId"][:-16], fields["msgId"][-16:]
            answers = SendAnswers(store_host=bytes.fromhex(host), region=fields["MSG_REGION"], trace_on=True)
            assert frame.wire == answers.encode(
                int(is_binary),
                frame.header["opaque"],
                frame.code,
                int(fields["queueId"]),
                int(fields["queueOffset"]),
                int(offset, 16),
                fields["transactionId"].encode(),
            )
            made += 1

    assert made >= at_least


@pytest.mark.parametrize(("is_binary", "at_least"), [(False, 100), (True, 20)])
def test_captured_answers_to_pulls_are_made_again_byte_for_byte(is_binary: bool, at_least: int) -> None:
    answers = PullAnswers()
    made = 0
    for frame in all_captured():
        fields = frame.ext_fields
        if (
            frame.is_binary is is_binary
            and frame.request_code in PULLS
            and frame.is_response
            and "nextBeginOffset" in fields
        ):
            head = answers.encode_head(
                int(is_binary),
                frame.header["opaque"],
                frame.code,
                frame.header["remark"].encode(),
                int(fields["nextBeginOffset"]),
                int(fields["minOffset"]),
                int(fields["maxOffset"]),
                frame.body_size,
                suggest_broker_id=int(fields["suggestWhichBrokerId"]),
                topic_sys_flag=int(fields["topicSysFlag"]),
                group_sys_flag=int(fields["groupSysFlag"]),
            )
            assert head + frame.frame[2] == frame.wire
            made += 1

    assert made >= at_least


@pytest.mark.parametrize("serialize_type", list(SerializeType))
@pytest.mark.parametrize(
    "transaction_id", [b"7F0000010000", b'a"b\\c\x01', "中文".encode(), b"x" * 300, b"%d%b", b"%"]
)
def test_any_unique_key_reaches_the_client_unchanged(serialize_type: SerializeType, transaction_id: bytes) -> None:
    answers = SendAnswers(store_host=HOST, region='50% "east"', trace_on=False, language=LanguageCode.PYTHON)

    wire = answers.encode(serialize_type, -3, ResponseCode.FLUSH_DISK_TIMEOUT, 2, 2**40, 2**41, transaction_id)

    assert decode(wire) == Command(
        code=ResponseCode.FLUSH_DISK_TIMEOUT,
        opaque=-3,
        flag=1,
        ext_fields={
            "msgId": f"7F00000100002A9F{2**41:016X}",
            "queueId": "2",
            "queueOffset": str(2**40),
            "transactionId": transaction_id.decode(),
            "TRACE_ON": "false",
            "MSG_REGION": '50% "east"',
        },
        language=LanguageCode.PYTHON,
        serialize_type=serialize_type,
    )


@pytest.mark.parametrize("serialize_type", list(SerializeType))
@pytest.mark.parametrize("key", [b"7F0000010000", b'a"b\\c\x01', "中文".encode(), b"%d%b"])
def test_the_answer_to_a_message_for_a_time_is_what_a_command_says(
    serialize_type: SerializeType, key: bytes
) -> None:
    answers = SendAnswers(store_host=HOST, region="50% east", trace_on=True)
    handle = b"djEgVG9waWMgYnJva2VyIDE3MDAwMDAwMDAwMDEgSw=="

    wire = answers.encode_timed(serialize_type, 7, ResponseCode.FLUSH_DISK_TIMEOUT, 2, 2**40, 2**41, key, handle)

    told = {
        "msgId": f"7F00000100002A9F{2**41:016X}",
        "queueId": "2",
        "queueOffset": str(2**40),
        "transactionId": key.decode(),
        "recallHandle": handle.decode(),
        "TRACE_ON": "true",
        "MSG_REGION": "50% east",
    }
    if not serialize_type:
        # In the order of Java, which is another one in each kind of header.
        order = ("queueId", "transactionId", "msgId", "TRACE_ON", "MSG_REGION", "recallHandle", "queueOffset")
        told = {name: told[name] for name in order}
    request = Command(code=0, opaque=7, serialize_type=serialize_type)
    assert wire == request.response(ResponseCode.FLUSH_DISK_TIMEOUT, ext_fields=told).encode()


@pytest.mark.parametrize("serialize_type", list(SerializeType))
def test_the_host_of_a_message_id_may_be_ipv6(serialize_type: SerializeType) -> None:
    host = bytes(range(20))
    answers = SendAnswers(store_host=host, region="r", trace_on=True)

    answer = decode(answers.encode(serialize_type, 1, 0, 0, 0, 255, b"k"))

    assert answer.ext_fields["msgId"] == host.hex().upper() + "00000000000000FF"


@pytest.mark.parametrize("serialize_type", list(SerializeType))
def test_the_head_of_a_pull_answer_counts_the_body_that_follows(serialize_type: SerializeType) -> None:
    head = PullAnswers(version=479).encode_head(
        serialize_type, 5, 0, b"FOUND", 10, 2, 12, 3, suggest_broker_id=1, topic_sys_flag=2, group_sys_flag=3
    )

    assert decode(head + b"abc") == Command(
        code=0,
        opaque=5,
        flag=1,
        ext_fields={
            "suggestWhichBrokerId": "1",
            "nextBeginOffset": "10",
            "minOffset": "2",
            "maxOffset": "12",
            "topicSysFlag": "2",
            "groupSysFlag": "3",
        },
        body=b"abc",
        remark="FOUND",
        version=479,
        serialize_type=serialize_type,
    )
