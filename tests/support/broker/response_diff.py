"""In what an answer of ours differs from one that was captured, and what may differ in every run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from orbitmq.platform.settings import parse_conf
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fastjson import loads
from orbitmq.protocol.message.properties import parse
from orbitmq.protocol.message.record import iter_records
from support.broker.captured_broker import OF_RECORDS, REPLIES, SENDS, is_of_this_run, properties_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.protocol.message.record import Record
    from support.broker.capture_replay import Exchange

OF_EACH_RUN = frozenset(
    {
        # Times
        *(
            "timestamp",
            "timeStamp",
            "lastUpdateTimestamp",
            "lastTimestamp",
            "indexLastUpdateTimestamp",
            "storeTimestamp",
        ),
        # Changes are counted from the beginning of each broker's life
        "counter",
        # Rates
        *("consumeTps", "topicPutTps", "tps", "sum", "avgpt", "count"),
        # Units of a queue whose records are not in the capture
        *("physicOffset", "physicSize", "tagsCode"),
    }
)
"""Fields of headers and bodies that are there in both, and have values of their own in every run."""

_PORT = re.compile(r"(?<=127\.0\.0\.1:)\d+")
_JAVA_ERROR = re.compile(r"^(java|org\.apache)\.[\w.]+(Exception|Error)\b")


def differences(exchange: Exchange, kept: set[int]) -> Iterator[str]:
    """The differences in words. ``kept`` are the log offsets that are the same."""
    theirs, ours = exchange.theirs, exchange.ours
    if theirs is None:
        return
    if ours is None:
        yield f"no answer instead of {theirs}"
        return
    if ours.code != theirs.code:
        yield f"code {ours.code} ({ours.remark}) instead of {theirs.code} ({theirs.remark})"
    if (ours.flag, ours.version, ours.language) != (theirs.flag, theirs.version, theirs.language):
        yield "flag, version or language"
    yield from _remark_differences(ours.remark, theirs.remark)
    yield from _field_differences(exchange, ours.ext_fields, theirs.ext_fields)
    if ours.code == theirs.code:
        yield from _body_differences(exchange.request.code, ours.body, theirs.body, kept)


def _remark_differences(ours: str | None, theirs: str | None) -> Iterator[str]:
    if theirs is not None and _JAVA_ERROR.match(theirs):
        if not ours:
            yield f"no remark instead of {theirs}"
    elif _without_ports(ours) != _without_ports(theirs):
        yield f"remark {ours!r} instead of {theirs!r}"


def _field_differences(exchange: Exchange, ours: dict[str, str], theirs: dict[str, str]) -> Iterator[str]:
    if ours.keys() != theirs.keys():
        yield f"fields {sorted(ours)} instead of {sorted(theirs)}"
    skipped = set(OF_EACH_RUN)
    if exchange.request.code == RequestCode.GET_BROKER_CONFIG:
        skipped.add("version")  # which is text with a counter and a time in it
    if exchange.request.code in SENDS | REPLIES:
        if exchange.is_moved:
            skipped.add("msgId")
        sent = exchange.request.ext_fields
        if "-1" in (sent.get("e"), sent.get("queueId")):
            skipped |= {"queueId", "queueOffset"}  # any queue
        if "UNIQ_KEY" not in properties_of(exchange.request):
            skipped.add("transactionId")  # a key that the broker made
    for name in ours.keys() & theirs.keys() - skipped:
        if ours[name] != theirs[name]:
            yield f"{name}={ours[name]} instead of {theirs[name]}"


def _body_differences(code: int, ours: bytes | None, theirs: bytes | None, kept: set[int]) -> Iterator[str]:
    if ours is None or theirs is None:
        if ours != theirs:
            yield f"body {ours!r} instead of {theirs!r}"
        return
    if code == RequestCode.GET_BROKER_RUNTIME_INFO:
        yield from _runtime_differences(loads(ours)["table"], loads(theirs)["table"])
    elif code in OF_RECORDS:
        yield from record_differences(list(iter_records(ours)), list(iter_records(theirs)), kept)
    elif code == RequestCode.GET_TIMER_CHECK_POINT:
        if len(ours) != len(theirs):  # all of it is about how far that broker had come
            yield f"{len(ours)} bytes instead of {len(theirs)}"
    elif code == RequestCode.GET_BROKER_CONFIG:
        yield from _setting_differences(parse_conf(ours.decode()), parse_conf(theirs.decode()))
    else:
        try:
            mine, captured = loads(ours), loads(theirs)
        except ProtocolError:
            if ours != theirs:
                yield f"body {ours!r} instead of {theirs!r}"
            return
        yield from json_differences(mine, captured, "body")


def record_differences(ours: list[Record], theirs: list[Record], kept: set[int]) -> Iterator[str]:
    """In what messages differ; those of a real broker were stored at other times."""
    if len(ours) != len(theirs):
        yield f"{len(ours)} messages instead of {len(theirs)}"
    for mine, captured in zip(ours, theirs, strict=False):
        for name in (
            "topic", "queue_id", "queue_offset", "magic", "flag", "sys_flag", "born_timestamp", "store_host",
            "reconsume_times", "prepared_transaction_offset", "body_crc", "body",
        ):  # fmt: skip
            if getattr(mine, name) != getattr(captured, name):
                yield f"{name} {getattr(mine, name)!r} instead of {getattr(captured, name)!r}"
        if captured.physical_offset in kept and mine.physical_offset != captured.physical_offset:
            yield f"the record is at {mine.physical_offset} instead of {captured.physical_offset}"
        yield from _property_differences(mine.properties, captured.properties)


def _property_differences(ours: bytes, theirs: bytes) -> Iterator[str]:
    mine, captured = parse(ours), parse(theirs)
    if len(mine.get("UNIQ_KEY", "")) != len(captured.get("UNIQ_KEY", "")):
        # A key that the broker made: from its address, which was of IPv6 there.
        mine["UNIQ_KEY"] = captured["UNIQ_KEY"]
    elif len(ours) != len(theirs):
        yield f"properties of {len(ours)} bytes instead of {len(theirs)}"
    if "TIMER_DEQUEUE_MS" in captured:
        # When it came out of the timer, and in which second it was put in.
        for name in ("TIMER_DEQUEUE_MS", "TIMER_ENQUEUE_MS"):
            captured[name] = mine.get(name, "")[: len(captured[name])]
    # Java's are in the order of a hash table.
    if mine != captured:
        yield f"properties {mine} instead of {captured}"


def _runtime_differences(ours: dict[str, str], theirs: dict[str, str]) -> Iterator[str]:
    """Names only: the values are about the machine and its past."""
    mine, captured = (
        {name.partition("_")[0] for name in some if not name.startswith("scheduleMessageOffset_")}
        for some in (ours, theirs)
    )
    if mine != captured:
        yield f"runtime info {sorted(mine - captured)} instead of {sorted(captured - mine)}"


def _setting_differences(ours: dict[str, str], theirs: dict[str, str]) -> Iterator[str]:
    for key in ours.keys() | theirs.keys():
        if not is_of_this_run(key) and ours.get(key) != theirs.get(key):
            yield f"{key}={ours.get(key)} instead of {theirs.get(key)}"


def json_differences(ours: Any, theirs: Any, path: str) -> Iterator[str]:
    """The same keys everywhere; the same values but where every run has its own."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if ours.keys() != theirs.keys():
            mine, captured = (sorted(map(str, some.keys())) for some in (ours, theirs))
            yield f"{path}: keys {mine} instead of {captured}"
        for key in ours.keys() & theirs.keys():
            yield from json_differences(ours[key], theirs[key], f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            yield f"{path}: {ours} instead of {theirs}"
        for mine, captured in zip(sorted(ours, key=str), sorted(theirs, key=str), strict=False):
            yield from json_differences(mine, captured, f"{path}[]")
    elif path.rpartition(".")[2] in OF_EACH_RUN:
        if type(ours) is not type(theirs):
            yield f"{path}: {ours!r} instead of {theirs!r}"
    elif _without_ports(ours) != _without_ports(theirs):
        yield f"{path}: {ours!r} instead of {theirs!r}"


def _without_ports(value: Any) -> Any:
    """Of addresses here and there."""
    return _PORT.sub("port", value) if isinstance(value, str) else value
