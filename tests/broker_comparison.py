"""In what an answer of ours differs from one that was captured, and what may differ in every run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from broker_replay import OF_RECORDS, OF_THIS_RUN, SENDS
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fastjson import loads
from orbitmq.protocol.properties import parse
from orbitmq.protocol.record import iter_records
from orbitmq.settings import parse_conf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from broker_replay import Exchange
    from orbitmq.protocol.record import Record

OF_EACH_RUN = frozenset(
    {
        # Times
        *("timestamp", "lastUpdateTimestamp", "lastTimestamp", "indexLastUpdateTimestamp", "storeTimestamp"),
        # Counters of changes, and what is in them
        *("dataVersion", "version", "counter"),
        # Rates
        *("consumeTps", "topicPutTps", "tps", "sum", "avgpt", "count"),
        # Connections
        *("clientAddr", "remoteIP"),
        "indexLastUpdatePhyoffset",
    }
)
"""Fields of headers and bodies that are there in both, and have values of their own in every run."""

_PORT = re.compile(r"(?<=\d\.\d\.\d\.\d:)\d+|(?<=127\.0\.0\.1:)\d+")
_JAVA_ERROR = re.compile(r"^(java|org\.apache)\.[\w.]+(Exception|Error)\b")


def differences(exchange: Exchange) -> Iterator[str]:
    """What is not the same, in words."""
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
        yield from _body_differences(exchange, ours.body, theirs.body)


def _remark_differences(ours: str | None, theirs: str | None) -> Iterator[str]:
    if theirs is not None and _JAVA_ERROR.match(theirs):
        if not ours:
            yield f"no remark instead of {theirs}"
    elif _PORT.sub("port", ours or "") != _PORT.sub("port", theirs or "") or (ours is None) != (theirs is None):
        yield f"remark {ours!r} instead of {theirs!r}"


def _field_differences(exchange: Exchange, ours: dict[str, str], theirs: dict[str, str]) -> Iterator[str]:
    if ours.keys() != theirs.keys():
        yield f"fields {sorted(ours)} instead of {sorted(theirs)}"
    skipped = set(OF_EACH_RUN)
    if exchange.request.code in SENDS:
        if exchange.is_moved:
            skipped.add("msgId")
        sent = exchange.request.ext_fields
        if "-1" in (sent.get("e"), sent.get("queueId")):
            skipped |= {"queueId", "queueOffset"}  # any queue
        if "UNIQ_KEY" not in parse(sent.get("i") or sent.get("properties") or ""):
            skipped.add("transactionId")  # a key that the broker made
    for name in ours.keys() & theirs.keys() - skipped:
        if ours[name] != theirs[name]:
            yield f"{name}={ours[name]} instead of {theirs[name]}"


def _body_differences(exchange: Exchange, ours: bytes | None, theirs: bytes | None) -> Iterator[str]:
    if ours is None or theirs is None:
        if ours != theirs:
            yield f"body {ours!r} instead of {theirs!r}"
        return
    code = exchange.request.code
    if code == RequestCode.GET_BROKER_RUNTIME_INFO:
        yield from _runtime_differences(loads(ours)["table"], loads(theirs)["table"])
    elif code in OF_RECORDS:
        yield from _record_differences(list(iter_records(ours)), list(iter_records(theirs)))
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


def _record_differences(ours: list[Record], theirs: list[Record]) -> Iterator[str]:
    if len(ours) != len(theirs):
        yield f"{len(ours)} messages instead of {len(theirs)}"
    for mine, captured in zip(ours, theirs, strict=False):
        for name in (
            "topic", "queue_id", "queue_offset", "magic", "flag", "sys_flag", "born_timestamp", "store_host",
            "reconsume_times", "prepared_transaction_offset", "body_crc", "body", "physical_offset",
        ):  # fmt: skip
            if getattr(mine, name) != getattr(captured, name):
                yield f"{name} {getattr(mine, name)!r} instead of {getattr(captured, name)!r}"
        # Java's properties are in the order of a hash table.
        if parse(mine.properties) != parse(captured.properties) or len(mine.properties) != len(captured.properties):
            yield f"properties {parse(mine.properties)} instead of {parse(captured.properties)}"


def _runtime_differences(ours: dict[str, str], theirs: dict[str, str]) -> Iterator[str]:
    """Names only: the values are about the machine and its past."""
    mine, captured = (
        {name.partition("_")[0] for name in some if not name.startswith("scheduleMessageOffset_")}
        for some in (ours, theirs)
    )
    if mine != captured:
        yield f"runtime info {sorted(mine - captured)} instead of {sorted(captured - mine)}"


def _setting_differences(ours: dict[str, str], theirs: dict[str, str]) -> Iterator[str]:
    if ours.keys() != theirs.keys():
        yield f"settings {sorted(ours.keys() - theirs.keys())} instead of {sorted(theirs.keys() - ours.keys())}"
    for key in ours.keys() & theirs.keys() - set(OF_THIS_RUN):
        if ours[key] != theirs[key]:
            yield f"{key}={ours[key]} instead of {theirs[key]}"


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
    elif ours != theirs:
        yield f"{path}: {ours!r} instead of {theirs!r}"
