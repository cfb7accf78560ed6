"""The protocol's share of a request: cutting frames, decoding headers, writing answers."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from bench.messages import TOPIC, body, properties
from bench.rounds import take_turns
from orbitmq.protocol.codes import RequestCode, ResponseCode, SerializeType
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.fast_decode import decode_header, pull_fields, send_v2_fields
from orbitmq.protocol.command.fast_encode import PullAnswers, SendAnswers
from orbitmq.protocol.command.frame import FrameParser

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.figures import Figure, Settings
    from orbitmq.protocol.command.fast_decode import ExtFields

KINDS = {"JSON": SerializeType.JSON, "binary": SerializeType.ROCKETMQ}
STORE_HOST = bytes((192, 0, 2, 1, 0, 0, 0x2A, 0x9F))
READ_BYTES = 64 * 1024
"""What one read of a busy socket brings."""

_DISTINCT = 256


def space(_settings: Settings) -> int:
    return 0


def run(settings: Settings) -> list[Figure]:
    """Every case in turn, over requests that differ in opaque, queue, offset and unique key."""
    repeats = settings.choose(2, 100)
    cases: dict[str, Callable[[], int]] = {}
    items: dict[str, str] = {}
    for name, kind in KINDS.items():
        cases |= {
            f"SEND_MESSAGE_V2, {name}": functools.partial(_decode, _sends(kind), send_v2_fields, repeats),
            f"PULL_MESSAGE, {name}": functools.partial(_decode, _pulls(kind), pull_fields, repeats),
            f"answer to a send, {name}": functools.partial(_answer_sends, kind, repeats),
            f"answer to a pull, {name}": functools.partial(_answer_pulls, kind, repeats),
            f"128 B sends in 64 KiB reads, {name}": functools.partial(_cut, _reads(kind), repeats),
        }
    for subject in cases:
        items[subject] = "answer" if subject.startswith("answer") else "header"
        if "reads" in subject:
            items[subject] = "frame"
    timings = take_turns(cases, settings.choose(2, 9))
    return [line for name, timing in timings.items() for line in timing.per_item(name, items[name])]


def send(kind: SerializeType, number: int) -> Command:
    """A SEND_MESSAGE_V2 request as the Java client writes it."""
    fields = {
        "a": "BenchProducers", "b": TOPIC, "c": "TBW102", "d": "4", "e": str(number % 8), "f": "0",
        "g": str(1_700_000_000_000 + number), "h": "0", "i": properties(number).decode(), "j": "0",
        "k": "false", "m": "false", "n": "broker-a",
    }  # fmt: skip
    return Command(
        RequestCode.SEND_MESSAGE_V2, opaque=number, ext_fields=fields, body=body(128), serialize_type=kind
    )


def pull(kind: SerializeType, number: int) -> Command:
    """A PULL_MESSAGE request as the Java client writes it."""
    fields = {
        "consumerGroup": "BenchConsumers", "topic": TOPIC, "queueId": str(number % 8),
        "queueOffset": str(1000 + number), "maxMsgNums": "32", "sysFlag": "2", "commitOffset": "0",
        "suspendTimeoutMillis": "15000", "subscription": "*", "subVersion": "1700000000000",
        "expressionType": "TAG", "maxMsgBytes": "2147483647", "bname": "broker-a",
    }  # fmt: skip
    return Command(RequestCode.PULL_MESSAGE, opaque=number, ext_fields=fields, serialize_type=kind)


def _sends(kind: SerializeType) -> list[tuple[int, bytes, bytes]]:
    return FrameParser().feed(b"".join(send(kind, number).encode() for number in range(_DISTINCT)))


def _pulls(kind: SerializeType) -> list[tuple[int, bytes, bytes]]:
    return FrameParser().feed(b"".join(pull(kind, number).encode() for number in range(_DISTINCT)))


def _reads(kind: SerializeType) -> list[bytes]:
    """A stream of sends as a socket delivers it: frames cross the ends of reads."""
    stream = b"".join(send(kind, number).encode() for number in range(_DISTINCT))
    return [stream[at : at + READ_BYTES] for at in range(0, len(stream), READ_BYTES)]


def _decode(
    frames: list[tuple[int, bytes, bytes]], fields: Callable[[ExtFields], tuple[object, ...]], repeats: int
) -> int:
    for _ in range(repeats):
        for frame in frames:
            fields(decode_header(frame)[6])
    return repeats * len(frames)


def _answer_sends(kind: SerializeType, repeats: int) -> int:
    encode = SendAnswers(store_host=STORE_HOST, region="DefaultRegion", trace_on=True).encode
    key = b"C0000207302A251A69D7000000000001"
    for _ in range(repeats):
        for number in range(_DISTINCT):
            encode(kind, number, ResponseCode.SUCCESS, number % 8, number, number * 480, key)
    return repeats * _DISTINCT


def _answer_pulls(kind: SerializeType, repeats: int) -> int:
    encode = PullAnswers().encode_head
    for _ in range(repeats):
        for number in range(_DISTINCT):
            encode(kind, number, ResponseCode.SUCCESS, b"FOUND", number + 32, 0, 1 << 20, 15_000)
    return repeats * _DISTINCT


def _cut(reads: list[bytes], repeats: int) -> int:
    parser = FrameParser()
    return sum(len(parser.feed(read)) for _ in range(repeats) for read in reads)
