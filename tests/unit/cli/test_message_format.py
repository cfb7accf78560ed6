"""Format strings of the command line."""

from __future__ import annotations

from typing import Any

import pytest
from typer import BadParameter

from orbitmq.cli.message_format import LineFormat

FIELDS: dict[str, Any] = {
    "topic": lambda row: row["topic"],
    "offset": lambda row: row["offset"],
    "body": lambda row: row["body"],
    "json": lambda row: row["json"],
}
ROW = {
    "topic": "orders",
    "offset": 7,
    "body": b"gr\xc3\xbc\xc3\x9fe",
    "json": {"order": {"id": 5, "tags": ["a", "b"]}},
}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("{topic}:{offset} {body}", "orders:7 grüße\n"),
        ("{offset:>4}|{topic:<8}|", "   7|orders  |\n"),
        ("{offset}\\t{topic}\\0", "7\torders\0"),
        ("{json[order][id]} {json[order][tags][1]} {json[none]}.", "5 b .\n"),
        ("{json[order][tags]}", '["a","b"]\n'),
        ("{{topic}} \\\\n", "{topic} \\n"),
        ("", "\n"),
    ],
)
def test_fields_are_printed_in_place(text: str, line: str) -> None:
    assert LineFormat(text, FIELDS).line(ROW) == line


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{nothing}", "unknown field 'nothing'; the fields are body, json, offset, topic"),
        ("{}", "unknown field ''"),
        ("{topic", "expected '}'"),
        ("{topic!r}", "conversions"),
        ("{offset:zz}", "format"),
        ("\\q", "unknown escape"),
        ("{topic.__class__}", "unknown field"),
    ],
)
def test_a_malformed_format_is_refused_before_anything_is_printed(text: str, why: str) -> None:
    with pytest.raises(BadParameter, match="--format") as refused:
        LineFormat(text, FIELDS)
    assert why.lower() in str(refused.value).lower()
