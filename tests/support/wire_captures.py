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
from typing import TYPE_CHECKING, Any

from support.paths import DATA

if TYPE_CHECKING:
    from collections.abc import Iterator

DIRECTORY = DATA / "wire"
HA_STREAM = "ha_stream"

SCENARIOS = sorted(
    path.name.removesuffix(".jsonl.gz")
    for path in DIRECTORY.glob("*.jsonl.gz")
    if not path.name.startswith(HA_STREAM)
)

JSON_LIFE = (
    *("broker_register_json", "java_json_01_producer_start_route", "java_json_02_autocreate_topic"),
    *("java_json_03_heartbeat_v1", "java_json_04_heartbeat_v2", "java_json_05_send", "java_json_06_send_batch"),
    *("java_json_07_send_delay_timer_recall", "java_json_09_transaction", "java_json_10_push_concurrent"),
    *("java_json_16_lite_pull", "java_json_20_errors", "go_orderly", "admin", "java_json_11_push_orderly"),
    *("java_json_14_pop_push_consumer", "java_json_15_pop_direct", "java_json_17_request_reply"),
    *("java_json_18_query_view", "java_json_19_trace", "ha", "broker_unregister_json", "go_producer", "go_push"),
    *("go_pull", "node_producer", "node_consumer", "admin2", "java_json_13_push_sql92"),
    *("java_json_12_push_broadcast", "java_json_08_send_ordered", "java_json_21_errors_send"),
)
BINARY_LIFE = (
    *("broker_register_binary_compressed", "broker_register_binary", "java_binary_01_producer_start_route"),
    *("java_binary_02_autocreate_topic", "java_binary_05_send", "java_binary_06_send_batch"),
    *("java_binary_03_heartbeat_v1", "java_binary_04_heartbeat_v2", "java_binary_10_push_concurrent"),
    *("java_binary_08_send_ordered", "java_binary_07_send_delay_timer_recall", "java_binary_09_transaction"),
    "java_mixed_jsonclient_binaryserver",
)
LIVES = (JSON_LIFE, BINARY_LIFE)
"""The scenarios of the two name servers and brokers that were captured, in their order."""


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
    for number, record in enumerate(records(scenario), 1):
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
    return records(HA_STREAM)


def records(scenario: str) -> Iterator[dict[str, Any]]:
    """The lines of a scenario's file."""
    with gzip.open(DIRECTORY / f"{scenario}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
