"""Acknowledgements are noted and answered the same whoever stores them."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orbitmq.broker.pop.ack import PopAcks
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.frame import FrameParser, encode_frame
from orbitmq.testing import MemoryDisk
from support.broker.broker_harness import T0, running_broker
from support.native.marks import needs_native
from support.native.twin_brokers import SETTINGS, Awaited, lives_of_both, plain_send, talk

if TYPE_CHECKING:
    import pytest

pytestmark = needs_native

MINUTE = 60_000
FEW = settings.default.max_examples // 5 if settings.default else 20
"""A timer's files are large, and each example makes them twice."""

usual_receipts = st.builds(
    lambda start, pop_time, queue, more: f"{start} {T0 + pop_time} {MINUTE} {queue} 0 broker-a 0 {start}{more}",
    st.integers(0, 1),
    st.sampled_from([0, 5, -100]),
    st.integers(0, 7),
    st.sampled_from(["", "", " more of a proxy"]),
)
odd_receipts = st.one_of(
    st.text("0123456789 -_+xä", max_size=60),
    st.lists(
        st.sampled_from(["0", "1", "999", "-1", "x", "", "1_0", "007", str(T0), str(9 * 10**18), "broker-a", '"']),
        min_size=4,
        max_size=10,
    ).map(" ".join),
    st.sampled_from(
        [
            f"0 {T0} 60000 999 0 broker-a 0 0",
            f"0 {T0} 60000 0 0 broker-a",
            f"0 {T0} 1 0 0 broker-a 0 0",
            f"0 {T0 - 2 * MINUTE} {MINUTE} 0 0 broker-a 0 0",
            f"0 {T0} 999999999999 0 0 broker-a 0 0",
            f"0 {T0} {MINUTE} 8 0 broker-a 0 0",
        ]
    ),
)


@st.composite
def acks(draw: st.DrawFn) -> bytes:
    is_odd = draw(st.integers(0, 4)) == 0
    fields = {
        "consumerGroup": draw(st.sampled_from(["shop", "shop", "shop", "bänk", 'a"b', ""])),
        "topic": draw(st.sampled_from(["orders", "bills", "unknown"] if is_odd else ["orders", "bills"])),
        "queueId": draw(st.sampled_from(["0", "1", "2", "9", "-1", "x"] if is_odd else ["0", "1"])),
        "extraInfo": draw(odd_receipts if is_odd else usual_receipts),
        "offset": draw(st.sampled_from(["0", "1", "2", "3", "-1", "99", "01", ""] if is_odd else ["0", "1"])),
        "bname": "broker-a",
    }
    if is_odd and draw(st.booleans()):
        del fields[draw(st.sampled_from([*fields]))]
    header: dict[str, Any] = {"code": 200051, "extFields": dict(draw(st.permutations([*fields.items()])))}
    header |= {
        "flag": draw(st.sampled_from([0, 0, 0, 2])),
        "language": "JAVA",
        "opaque": draw(st.integers(1, 1000)),
    }
    header |= {"serializeTypeCurrentRPC": "JSON", "version": 493}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=draw(st.booleans()))
    return encode_frame(
        0, text.encode(), draw(st.sampled_from([b"", b"", b"", b"body"]) if is_odd else st.just(b""))
    )


def base64_of(bits: int) -> str:
    return base64.b64encode(bits.to_bytes(max((bits.bit_length() + 7) // 8, 1), "little")).decode()


bit_sets = st.sampled_from([1, 2, 3]).map(base64_of)
odd_bit_sets = st.one_of(
    st.integers(0, 1 << 70).map(base64_of),
    st.sampled_from([0, 1 << 63, 1 << 255, 1 << 256, (1 << 64) - 1, (1 << 65) - 1, 5]).map(base64_of),
    st.sampled_from(
        ["", "AQ", "AQ=", "AQ==AQ==", "A===", "AR==", "AQAA", "A QA", "AQ==\n", "ä", None, 3, [1], [-1, 3]]
    ),
)
odd_values: st.SearchStrategy[Any] = st.sampled_from(
    [None, 0, 1, 9, -1, 999, "0", "1", "x", "", True, 1.5, T0, 1 << 62, 10**18, [], {}]
)
odd_texts = st.sampled_from(
    ["shop", "orders", "bänk", 'a"b', "", "unknown", "0", "1", "2", None, 7, True, "x" * 300]
)
TEXTS = "c", "r", "t"


@st.composite
def batch_entries(draw: st.DrawFn, *, is_odd: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "b": draw(odd_bit_sets if is_odd and draw(st.booleans()) else bit_sets),
        "c": draw(st.sampled_from(["shop", "shop", "bank"])),
        "it": MINUTE,
        "pt": T0 + draw(st.sampled_from([0, 5, -100])),
        "q": draw(st.integers(0, 1)),
        "r": "0",
        "rq": draw(st.integers(0, 7)),
        "so": draw(st.sampled_from([0, 0, 0, 1])),
        "t": draw(st.sampled_from(["orders", "orders", "bills"])),
    }
    if not is_odd:
        return entry
    name = draw(st.sampled_from([*entry]))
    match draw(st.integers(0, 3)):
        case 0:
            entry[name] = draw(odd_texts if name in TEXTS else odd_values)
        case 1:
            del entry[name]
        case 2:
            long = {"c": "consumerGroup", "b": "bitSet", "so": "startOffset", "q": "queueId"}
            entry[long.get(name, "more")] = entry[name]
        case _:
            pass
    return dict(draw(st.permutations([*entry.items()])))


@st.composite
def batch_acks(draw: st.DrawFn) -> bytes:
    is_odd = draw(st.integers(0, 3)) == 0
    entries = draw(st.lists(batch_entries(is_odd=is_odd), min_size=0 if is_odd else 1, max_size=4))
    content: dict[str, Any] = {"acks": entries, "brokerName": "broker-a"}
    header: dict[str, Any] = {"code": 200151}
    if draw(st.booleans()):
        header["extFields"] = draw(st.sampled_from([{}, {"bname": "broker-a"}, {"queueId": "x"}]))
    header |= {
        "flag": draw(st.sampled_from([0, 0, 0, 2])),
        "language": "JAVA",
        "opaque": draw(st.integers(1, 1000)),
    }
    header |= {"serializeTypeCurrentRPC": "JSON", "version": 493}
    separators = (",", ":")
    if is_odd:
        separators = draw(st.sampled_from([(",", ":"), (", ", " : "), (" ,\n", ": ")]))
        content |= draw(
            st.sampled_from([{}, {}, {"brokerName": None}, {"brokerName": ""}, {"brokerName": "bröker"}])
        )
        content |= draw(st.sampled_from([{}, {}, {"more": [{}]}, {"acks": None}, {"acks": "x"}]))
        content = dict(draw(st.permutations([*content.items()])))
    body = json.dumps(content, separators=separators, ensure_ascii=draw(st.booleans())).encode()
    if is_odd:
        damaged = st.sampled_from([b"", body, body + b" ", body + b"x", body[:-1], body[:40], b'{"acks":[', b"{}"])
        body = draw(damaged)
    return encode_frame(0, json.dumps(header, separators=(",", ":")).encode(), body)


FIRST = encode_frame(
    0,
    json.dumps(
        {
            "code": 200051,
            "extFields": {
                "consumerGroup": "shop",
                "topic": "orders",
                "queueId": "0",
                "extraInfo": f"0 {T0} {MINUTE} 0 0 broker-a 0 0",
                "offset": "0",
            },
            "flag": 0,
            "language": "JAVA",
            "opaque": 1,
            "version": 493,
        },
        separators=(",", ":"),
    ).encode(),
    b"",
)
others = st.sampled_from([plain_send("orders", 0), plain_send("bills", 1)])


@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=FEW,
)
@given(
    parts=st.lists(
        st.lists(st.one_of(acks(), batch_acks(), batch_acks(), others), min_size=1, max_size=12),
        min_size=1,
        max_size=3,
    )
)
async def test_whatever_is_acknowledged_is_noted_and_answered_alike(
    parts: list[list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first one makes the queue in which they wait.
    chunks = [[b"".join(frames)] for frames in ([FIRST], *parts)]
    compiled, general = await lives_of_both(monkeypatch, chunks, timerWheelEnable="true")
    assert compiled.answers == general.answers
    assert compiled.counted == general.counted
    assert compiled.stored == general.stored


async def test_a_batch_of_a_java_client_is_noted_without_the_python_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PopAcks, "handle_batch", None)
    header = {"code": 200151, "flag": 0, "language": "JAVA", "opaque": 43, "serializeTypeCurrentRPC": "JSON"}
    entry = {"b": "Aw==", "c": "shop", "it": MINUTE, "pt": T0, "q": 0, "r": "0", "rq": 5, "so": 0, "t": "orders"}
    body = {"acks": [entry, entry | {"t": "bills", "q": 1, "b": "AQ=="}], "brokerName": "broker-a"}
    frame = encode_frame(
        0,
        json.dumps(header | {"version": 513}, separators=(",", ":")).encode(),
        json.dumps(body, separators=(",", ":")).encode(),
    )
    async with running_broker(MemoryDisk(), **SETTINGS | {"timerWheelEnable": "true"}) as broker:
        more = [Awaited(plain_send(topic, queue_id)) for topic, queue_id in (("orders", 0), ("bills", 1))]
        answers = await talk(broker, [*more, Awaited(FIRST), frame])
        *_, answer = map(Command.decode, FrameParser().feed(answers))
        assert (answer.opaque, answer.code) == (43, ResponseCode.SUCCESS)
        acknowledged = {key: counter.nums for key, counter in broker.stats.rare_counters("GROUP_ACK_NUMS")}
        assert acknowledged == {"orders@shop": 3, "bills@shop": 1}
