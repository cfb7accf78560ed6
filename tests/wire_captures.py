"""Frames that real RocketMQ 5.5.0 peers exchanged, and what they say.

``data/wire`` holds one gzip file per scenario with one JSON object per line: Java, Go and Node clients, tools
and brokers against name servers and brokers, as they went over the wire.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import gzip
import json
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

DIRECTORY = Path(__file__).parent / "data" / "wire"
HA_STREAM = "ha_stream"

SCENARIOS = sorted(
    path.name.removesuffix(".jsonl.gz")
    for path in DIRECTORY.glob("*.jsonl.gz")
    if not path.name.startswith(HA_STREAM)
)


@dataclasses.dataclass(frozen=True, slots=True)
class Captured:
    """One frame. ``request_code`` is the code of the request that a response answers, if it was seen."""

    scenario: str
    line: int
    connection: int
    to_server: bool
    wire: bytes
    header: dict[str, Any]
    header_json: str | None
    body_size: int
    request_code: int | None

    @property
    def frame(self) -> tuple[int, bytes, bytes]:
        """The frame cut by hand, so that a test of the parser has something to compare with."""
        _, word = struct.unpack_from(">iI", self.wire)
        header_end = 8 + (word & 0xFFFFFF)
        return word >> 24, self.wire[8:header_end], self.wire[header_end:]

    @property
    def code(self) -> int:
        return int(self.header["code"])

    @property
    def is_response(self) -> bool:
        return bool(self.header["flag"] & 1)

    @property
    def is_binary(self) -> bool:
        return bool(self.header["serializeType"] == "ROCKETMQ")

    @property
    def ext_fields(self) -> dict[str, str]:
        """The header fields as text: the Node client sends some as numbers and booleans."""
        fields = self.header["extFields"] or {}
        return {name: value if isinstance(value, str) else json.dumps(value) for name, value in fields.items()}

    def __str__(self) -> str:
        return f"{self.scenario}:{self.line}"


@functools.cache
def captured(scenario: str) -> tuple[Captured, ...]:
    """All frames of one scenario, in the order in which they arrived."""
    frames: list[Captured] = []
    asked: dict[tuple[int, bool, int], int] = {}
    for number, record in enumerate(_records(scenario), 1):
        header = record["header"]
        to_server = record["dir"] == "c2s"
        exchange = record["conn"], to_server, header["opaque"]
        if header["flag"] & 1:
            request_code = asked.get((record["conn"], not to_server, header["opaque"]))
        else:
            asked[exchange] = header["code"]
            request_code = None
        frames.append(
            Captured(
                scenario=scenario,
                line=number,
                connection=record["conn"],
                to_server=to_server,
                wire=base64.b64decode(record["frame_b64"]),
                header=header,
                header_json=record.get("header_json"),
                body_size=record["body_len"],
                request_code=request_code,
            )
        )
    return tuple(frames)


def all_captured() -> Iterator[Captured]:
    """All frames of all scenarios."""
    for scenario in SCENARIOS:
        yield from captured(scenario)


def ha_stream() -> Iterator[dict[str, Any]]:
    """What went over the connection of a slave to its master: ``raw_b64`` and ``kind``."""
    return _records(HA_STREAM)


def _records(scenario: str) -> Iterator[dict[str, Any]]:
    with gzip.open(DIRECTORY / f"{scenario}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
