"""Every captured frame decodes to what it says, and is written again as it was."""

from __future__ import annotations

import json

import pytest

from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.fields import (
    ACCESS_KEY,
    REQUEST_TYPE,
    SIGNATURE,
    decode_fields,
    encode_fields,
)
from orbitmq.protocol.command.request_fields import request_fields
from orbitmq.protocol.command.response_fields import response_fields
from orbitmq.protocol.errors import ProtocolError
from support.wire_captures import SCENARIOS, Captured, all_captured, captured

MADE_TO_BE_REFUSED = [
    ("java_json_20_errors:29", "field h", ResponseCode.SYSTEM_ERROR),
    ("java_json_20_errors:31", "field h", ResponseCode.SYSTEM_ERROR),
    ("java_json_20_errors:35", "field a", ResponseCode.SYSTEM_ERROR),
    ("java_json_20_errors:37", "field d", ResponseCode.SYSTEM_ERROR),
    ("java_json_20_errors:43", "field h", ResponseCode.SYSTEM_ERROR),
    ("java_json_20_errors:185", "field topic", ResponseCode.TOPIC_NOT_EXIST),
]
"""Requests with missing or garbled fields, sent on purpose, and how the real server answered them."""

CARRIES_ALL_FIELDS = {
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_captured_frame_decodes_to_what_it_says(scenario: str) -> None:
    for frame in captured(scenario):
        command = Command.decode(frame.frame)

        said = frame.header
        assert command.code == said["code"], frame
        assert command.opaque == said["opaque"], frame
        assert command.flag == said["flag"], frame
        assert command.language.name == said["language"], frame
        assert command.version == said["version"], frame
        assert command.remark == said["remark"], frame
        assert command.serialize_type.name == said["serializeType"], frame
        assert command.ext_fields == frame.ext_fields, frame
        assert len(command.body or b"") == frame.body_size, frame


def test_a_captured_binary_frame_is_written_again_byte_for_byte() -> None:
    binary = [frame for frame in all_captured() if frame.is_binary]

    assert len(binary) > 700
    for frame in binary:
        assert Command.decode(frame.frame).encode() == frame.wire, frame


def test_a_captured_java_json_frame_is_written_again_byte_for_byte() -> None:
    java = [frame for frame in all_captured() if "serializeTypeCurrentRPC" in (frame.header_json or "")]

    assert len(java) > 4500
    for frame in java:
        # No fields and an empty map of them mean the same; Java writes either.
        same = frame.wire.replace(b'"extFields":{},', b"")
        assert Command.decode(frame.frame).encode()[8:] == same[8:], frame


def test_a_captured_json_frame_of_another_client_is_written_again_with_the_same_meaning() -> None:
    others = [
        frame
        for frame in all_captured()
        if frame.header_json is not None and "serializeTypeCurrentRPC" not in frame.header_json
    ]

    assert len(others) > 150
    for frame in others:
        command = Command.decode(frame.frame)
        wire = command.encode()
        said = {**json.loads(frame.header_json or ""), "serializeTypeCurrentRPC": "JSON"}
        said["extFields"] = frame.ext_fields
        again = json.loads(wire[8 : len(wire) - frame.body_size])
        assert {"extFields": {}, **again} == said, frame


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_fields_of_a_captured_request_are_those_of_its_table(scenario: str) -> None:
    refused = {where for where, _, _ in MADE_TO_BE_REFUSED}
    for frame in captured(scenario):
        if not frame.is_response and str(frame) not in refused:
            check_fields(frame, frame.code, is_response=False)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_fields_of_a_captured_successful_response_are_those_of_its_table(scenario: str) -> None:
    for frame in captured(scenario):
        if frame.is_response and frame.code in CARRIES_ALL_FIELDS:
            assert frame.request_code is not None
            check_fields(frame, frame.request_code, is_response=True)


def check_fields(frame: Captured, request_code: int, *, is_response: bool) -> None:
    table = response_fields(request_code) if is_response else request_fields(request_code)
    values = decode_fields(frame.ext_fields, table)
    of_any_request = {ACCESS_KEY, SIGNATURE, REQUEST_TYPE}
    sent = {name: text for name, text in frame.ext_fields.items() if name not in of_any_request}
    # Written again there may be more: absent fields have got their defaults.
    assert encode_fields(values, table).items() >= sent.items(), frame


@pytest.mark.parametrize(("where", "field", "code"), MADE_TO_BE_REFUSED)
def test_a_request_that_a_real_server_refused_for_its_fields_is_refused(
    where: str, field: str, code: ResponseCode
) -> None:
    scenario, _, line = where.partition(":")
    frame = captured(scenario)[int(line) - 1]
    answer = next(
        other
        for other in captured(scenario)[int(line) :]
        if other.is_response and other.header["opaque"] == frame.header["opaque"]
    )

    assert answer.code == code
    with pytest.raises(ProtocolError, match=field):
        decode_fields(Command.decode(frame.frame).ext_fields, request_fields(frame.code))
