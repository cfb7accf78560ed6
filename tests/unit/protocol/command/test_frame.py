"""Cutting a stream into frames: whole ones, torn ones, and what is no frame."""

from __future__ import annotations

import struct

import pytest

from orbitmq.protocol.command.frame import MAX_FRAME, FrameError, FrameParser, encode_frame, frame_prefix
from orbitmq.protocol.errors import ProtocolError
from support.wire_captures import SCENARIOS, captured

ONE = (0, b'{"code":1}', b"body")
TWO = (1, b"binary", b"")


def prefix(length: int, serialize_type: int = 0, header_size: int = 0) -> bytes:
    return struct.pack(">iI", length, serialize_type << 24 | header_size)


def test_one_piece_may_hold_many_frames() -> None:
    assert FrameParser().feed(encode_frame(*ONE) + encode_frame(*TWO) + encode_frame(*ONE)) == [ONE, TWO, ONE]


def test_a_frame_may_arrive_byte_by_byte() -> None:
    parser = FrameParser()
    stream = encode_frame(*ONE) + encode_frame(*TWO)

    frames = [frame for byte in stream for frame in parser.feed(bytes([byte]))]

    assert frames == [ONE, TWO]
    assert parser.pending_bytes == 0


def test_an_empty_piece_changes_nothing() -> None:
    parser = FrameParser()
    wire = encode_frame(*ONE)

    assert parser.feed(b"") == []
    assert parser.feed(wire[:9]) == []
    assert parser.feed(b"") == []
    assert parser.pending_bytes == 9
    assert parser.feed(wire[9:]) == [ONE]


def test_frames_after_a_torn_one_are_returned_with_it() -> None:
    parser = FrameParser()
    wire = encode_frame(*ONE)

    assert parser.feed(wire + wire[:5]) == [ONE]
    assert parser.feed(wire[5:] + wire + wire[:1]) == [ONE, ONE]
    assert parser.feed(wire[1:]) == [ONE]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_captured_connections_cut_into_the_captured_frames(scenario: str) -> None:
    for to_server in (True, False):
        for connection in {frame.connection for frame in captured(scenario)}:
            sent = [
                frame
                for frame in captured(scenario)
                if frame.connection == connection and frame.to_server is to_server
            ]

            cut = FrameParser().feed(b"".join(frame.wire for frame in sent))

            assert cut == [frame.frame for frame in sent]
            assert [encode_frame(*frame) for frame in cut] == [frame.wire for frame in sent]


def test_the_largest_frame_passes_and_one_byte_more_does_not() -> None:
    parser = FrameParser(max_frame=100)

    assert parser.feed(encode_frame(0, b"{}", bytes(90))) == [(0, b"{}", bytes(90))]
    with pytest.raises(FrameError, match="frame of 101 bytes, at most 100"):
        parser.feed(encode_frame(0, b"{}", bytes(91)))


def test_the_default_limit_is_sixteen_mebibytes() -> None:
    parser = FrameParser()

    assert parser.feed(prefix(MAX_FRAME - 4)) == []
    with pytest.raises(FrameError):
        FrameParser().feed(prefix(MAX_FRAME - 3))


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        (prefix(-1), "length -1"),
        (prefix(-(2**31)), "length -2147483648"),
        (prefix(0), "length 0"),
        (prefix(3), "length 3"),
        (prefix(2**31 - 1), "at most"),
        (prefix(4, serialize_type=2), "serialize type 2"),
        (prefix(4, serialize_type=255), "serialize type 255"),
        (prefix(10, header_size=7), "header of 7 bytes"),
        (prefix(4, header_size=0xFFFFFF), "header of 16777215 bytes"),
    ],
)
def test_what_is_no_frame_is_refused_by_its_first_bytes(start: bytes, reason: str) -> None:
    with pytest.raises(FrameError, match=reason):
        FrameParser().feed(start)


@pytest.mark.parametrize("length", [-1, 3, MAX_FRAME])
def test_a_bad_length_is_refused_before_anything_else_arrives(length: int) -> None:
    with pytest.raises(FrameError):
        FrameParser().feed(struct.pack(">i", length))


def test_a_frame_of_nothing_but_a_prefix_is_a_frame() -> None:
    assert FrameParser().feed(prefix(4)) == [(0, b"", b"")]


def test_frames_before_the_damage_are_handed_over_with_the_error() -> None:
    with pytest.raises(FrameError) as caught:
        FrameParser().feed(encode_frame(*ONE) + encode_frame(*TWO) + prefix(1))

    assert caught.value.frames == [ONE, TWO]
    assert isinstance(caught.value, ProtocolError)


def test_a_parser_that_met_damage_takes_nothing_more() -> None:
    parser = FrameParser()
    with pytest.raises(FrameError):
        parser.feed(prefix(1))

    with pytest.raises(FrameError, match="length 1") as caught:
        parser.feed(encode_frame(*ONE))

    assert caught.value.frames == []


def test_a_large_frame_in_many_pieces_is_put_together() -> None:
    parser = FrameParser()
    body = bytes(range(256)) * 8000
    wire = encode_frame(0, b"{}", body)

    frames = [frame for at in range(0, len(wire), 1400) for frame in parser.feed(wire[at : at + 1400])]

    assert frames == [(0, b"{}", body)]


def test_a_prefix_can_be_made_for_a_body_sent_apart() -> None:
    assert frame_prefix(1, 5, 7) + b"12345" + b"1234567" == encode_frame(1, b"12345", b"1234567")


@pytest.mark.parametrize(("header_size", "body_size"), [(0x1000000, 0), (0, 2**31)])
def test_sizes_that_no_prefix_can_say_are_refused(header_size: int, body_size: int) -> None:
    with pytest.raises(ProtocolError):
        frame_prefix(0, header_size, body_size)
