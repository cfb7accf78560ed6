"""The native parser of JSON strings agrees with that of Python, whatever stands at whatever position."""

from __future__ import annotations

import json

import pytest

from orbitmq import native
from support.native.marks import needs_native

pytestmark = needs_native

CODE = 310
MAX_SIZE = 20
"""Longer than two steps of the parser."""
PLAIN = b"abcdefghijklmnopqrstuvwxyz"


def expected_code(header: bytes) -> int:
    try:
        return int(json.loads(header.decode())["code"])
    except ValueError:
        return -1


def parsed_code(header: bytes) -> int:
    frame = (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    return native.load().request_code(frame, 8)


@pytest.mark.parametrize(
    "special",
    [
        b'\\"',
        b"\\\\",
        b"\\n",
        "é".encode(),
        "已".encode(),
        "😀".encode(),
        b"\xff",
        b"\xed\xa0\x80",
        b"\x00",
        b"\x1f",
        b'"',
    ],
    ids=repr,
)
def test_a_special_character_counts_at_every_position(special: bytes) -> None:
    for size in range(MAX_SIZE):
        for at in range(size + 1):
            text = PLAIN[:at] + special + PLAIN[at:size]
            header = b'{"remark":"%b","code":%d}' % (text, CODE)
            assert parsed_code(header) == expected_code(header), header


def test_strings_of_every_length_end_at_their_quote() -> None:
    for size in range(3 * MAX_SIZE):
        name = (PLAIN * 3)[:size]
        header = b'{"x%b":"%b","code":%d}' % (name, name, CODE)
        assert parsed_code(header) == CODE, header


def test_a_header_that_ends_within_a_string_has_no_code() -> None:
    whole = b'{"remark":"%b","code":%d}' % (PLAIN, CODE)
    for size in range(whole.index(b"code")):
        assert parsed_code(whole[:size]) == -1, whole[:size]
