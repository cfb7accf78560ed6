"""Acknowledgements are noted and answered the same whoever stores them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orbitmq.protocol.command.frame import encode_frame
from support.broker.broker_harness import T0
from support.native.marks import needs_native
from support.native.twin_brokers import lives_of_both, plain_send

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
@given(parts=st.lists(st.lists(st.one_of(acks(), acks(), others), min_size=1, max_size=12), min_size=1, max_size=3))
async def test_whatever_is_acknowledged_is_noted_and_answered_alike(
    parts: list[list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first one makes the queue in which they wait.
    chunks = [[b"".join(frames)] for frames in ([FIRST], *parts)]
    compiled, general = await lives_of_both(monkeypatch, chunks, timerWheelEnable="true")
    assert compiled.answers == general.answers
    assert compiled.counted == general.counted
    assert compiled.stored == general.stored
