"""The hot decoder says what the general one says, for every captured frame and for unusual ones."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.protocol.codes import LanguageCode, RequestCode
from orbitmq.protocol.command import fast_decode as hot
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.fast_decode import HOT_FIELD_NAMES, HOT_FIELDS, decode_header
from orbitmq.protocol.command.fields import decode_fields
from orbitmq.protocol.command.request_fields import request_fields
from orbitmq.protocol.errors import ProtocolError
from support.wire_captures import SCENARIOS, all_captured, captured


def hot_outcome(code: int, ext_fields: dict[str, str]) -> Any:
    try:
        return HOT_FIELDS[code](ext_fields)
    except ProtocolError as error:
        return str(error)


def general_outcome(code: int, ext_fields: dict[str, str]) -> Any:
    try:
        values = decode_fields(ext_fields, request_fields(code))
    except ProtocolError as error:
        return str(error)
    return tuple(values[name] for name in HOT_FIELD_NAMES[code])


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_captured_header_is_decoded_as_by_the_general_decoder(scenario: str) -> None:
    for frame in captured(scenario):
        assert decode_header(frame.frame) == Command.decode(frame.frame).header, frame


def test_the_fields_of_captured_requests_are_those_of_the_general_decoder() -> None:
    compared = dict.fromkeys(HOT_FIELDS, 0)
    for frame in all_captured():
        if not frame.is_response and frame.code in HOT_FIELDS:
            compared[frame.code] += 1
            fields = frame.ext_fields
            assert hot_outcome(frame.code, fields) == general_outcome(frame.code, fields), frame

    never_captured = {code for code, count in compared.items() if not count}
    assert never_captured == {RequestCode.SEND_REPLY_MESSAGE}


def test_the_usual_requests_of_java_and_go_take_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def must_not_be_needed(*args: object) -> None:
        raise AssertionError(f"general decoder called with {args}")

    frames = [
        frame
        for frame in all_captured()
        if not frame.is_response
        and frame.code in HOT_FIELDS
        and frame.header["version"] != 121  # the Node client, whose numbers are not strings
        and frame.scenario != "java_json_20_errors"
    ]
    monkeypatch.setattr(hot, "decode_json_header", must_not_be_needed)
    monkeypatch.setattr(hot, "_general", must_not_be_needed)

    assert len(frames) > 1000
    for frame in frames:
        HOT_FIELDS[frame.code](decode_header(frame.frame)[6])


@pytest.mark.parametrize(
    "header",
    [
        b'{"code":310,"opaque":1,"flag":0,"version":5,"language":"JAVA","extFields":{"a":1}}',
        b'{"code":310,"opaque":1,"flag":0,"version":5,"language":"JAVA","extFields":{"a":null}}',
        b'{"code":310,"opaque":1,"flag":0,"version":5,"language":"JAVA","extFields":{"a":{"b":1.5}}}',
        b'{"code":310,"opaque":1,"flag":0,"version":5,"language":"JAVA","extFields":null}',
        b'{"code":310,"opaque":1,"flag":0,"version":5,"language":"JAVA","extFields":[]}',
        b'{"code":310,"opaque":1,"flag":0,"version":5,"language":"JAVA","extFields":[["a","b"]]}',
        b'{"code":310,"opaque":1,"flag":0,"version":5,"language":"JAVA","extFields":"a"}',
        b'{"code":310,"opaque":1,"flag":0,"version":5,"language":"JAVA"}',
        b'{"code":310,"opaque":1,"flag":0,"version":5,"language":"JAVA","remark":5}',
        b'{"code":310,"opaque":1,"flag":0,"version":5,"language":"JAVA","remark":""}',
        b'{"code":310,"opaque":-1,"flag":0,"version":5,"language":"java"}',
        b'{"code":310,"opaque":4294967296,"flag":0,"version":5,"language":"JAVA"}',
        b'{"code":-5,"opaque":1,"flag":true,"version":5.5,"language":[]}',
        b'{"code":"310","opaque":"1","flag":"0","version":"5","language":9}',
        b'{"code":true,"opaque":false,"flag":true,"version":true,"language":"JAVA"}',
        b'{"code":310,"opaque":null,"language":{}}',
        b'{"code":310,"opaque":1,"flag":0,"version":5,"language":"JAVA","x":{"$ref":"$.nothing"}}',
        b"{code:310,'opaque':1L,}",
        b"[]",
        b'"x"',
        b"5",
        b"null",
        b"",
        b"\xff",
    ],
)
def test_an_unusual_header_is_decoded_as_by_the_general_decoder(header: bytes) -> None:
    frame = (0, header, b"")

    assert outcome(decode_header, frame) == outcome(lambda it: Command.decode(it).header, frame)


def outcome(decode: Any, frame: tuple[int, bytes, bytes]) -> Any:
    try:
        return decode(frame)
    except ProtocolError as error:
        return str(error)


def test_a_header_is_a_plain_tuple_in_a_fixed_order() -> None:
    header = b'{"code":34,"opaque":9,"flag":2,"version":317,"language":"GO","remark":"r","extFields":{"a":"b"}}'

    assert decode_header((0, header, b"")) == (34, 9, 2, 317, LanguageCode.GO, "r", {"a": "b"})


SEND = dict(zip("abcdefghijklmn", ("g", "t", "TBW102", "4", "0", "0", "1", "0"), strict=False))
PULL = {
    "consumerGroup": "g",
    "topic": "t",
    "queueId": "0",
    "queueOffset": "5",
    "maxMsgNums": "32",
    "sysFlag": "2",
    "commitOffset": "0",
    "suspendTimeoutMillis": "15000",
    "subVersion": "7",
}
POP = {
    "consumerGroup": "g",
    "topic": "t",
    "queueId": "-1",
    "maxMsgNums": "32",
    "invisibleTime": "60000",
    "pollTime": "15000",
    "bornTime": "1",
    "initMode": "0",
}
QUEUE = {"consumerGroup": "g", "topic": "t", "queueId": "3"}

ODD_VALUES = (
    *("", "-1", "-2", "+1", "007", " 1", "1 ", "1_0", "1.0", "x", "true", "TRUE", "false", "None", "٣", "²"),
    *("4095", "4096", "2147483647", "2147483648", "-2147483648", "-2147483649", "9223372036854775807"),
    *("9223372036854775808", "-9223372036854775808", "-9223372036854775809", "9" * 5000, "0" * 50 + "1"),
)


@pytest.mark.parametrize(
    ("code", "usual"),
    [
        (RequestCode.SEND_MESSAGE_V2, SEND),
        (RequestCode.PULL_MESSAGE, PULL),
        (RequestCode.QUERY_CONSUMER_OFFSET, QUEUE),
        (RequestCode.UPDATE_CONSUMER_OFFSET, QUEUE | {"commitOffset": "4"}),
        (RequestCode.POP_MESSAGE, POP),
        (RequestCode.ACK_MESSAGE, QUEUE | {"extraInfo": "e", "offset": "4"}),
    ],
)
def test_unusual_fields_are_decoded_or_refused_as_by_the_general_decoder(
    code: RequestCode, usual: dict[str, str]
) -> None:
    for field in request_fields(code):
        without = {name: text for name, text in usual.items() if name != field.wire_name}
        assert hot_outcome(code, without) == general_outcome(code, without)
        for value in ODD_VALUES:
            # Twice, because what was seen before may be remembered.
            for _ in range(2):
                changed = usual | {field.wire_name: value}
                assert hot_outcome(code, changed) == general_outcome(code, changed), changed


def test_a_send_with_long_names_has_the_same_fields_as_one_with_letters() -> None:
    names = {field.wire_name: field.name for field in request_fields(RequestCode.SEND_MESSAGE_V2)}
    letters = SEND | {"i": "KEYS\x01k\x02", "j": "1", "k": "true", "l": "16", "m": "false", "n": "broker"}
    spelled_out = {names[letter]: value for letter, value in letters.items()}

    fields = hot.send_v2_fields(letters)

    assert hot.send_fields(spelled_out) == fields
    assert fields == ("g", "t", "TBW102", 4, 0, 0, 1, 0, "KEYS\x01k\x02", 1, True, 16, False, "broker")


def test_remembered_numbers_are_bounded() -> None:
    numbers = hot._Int32Texts()

    for number in range(numbers.MOST + 100):
        assert numbers[str(number)] == number
    assert numbers["0" * 20 + "7"] == 7

    assert len(numbers) == numbers.MOST
