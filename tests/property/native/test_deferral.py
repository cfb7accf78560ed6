"""Messages that wait for a time, a delay or the end of a transaction are the same whoever stores them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orbitmq.protocol.codes import LanguageCode, SerializeType
from orbitmq.protocol.command.command import Command
from support.broker.broker_harness import T0
from support.native.marks import needs_native
from support.native.twin_brokers import lives_of_both

if TYPE_CHECKING:
    import pytest

pytestmark = needs_native

DAY = 86_400_000
FEW = settings.default.max_examples // 5 if settings.default else 20
"""A timer's files are large, and each example makes them twice."""

times = st.one_of(
    st.integers(T0 + 900, T0 + 4 * DAY).map(str),
    st.sampled_from(
        [str(T0), str(T0 - 1), str(T0 + 3 * DAY), str(T0 + 3 * DAY + 1), "0", "x", "", f"+{T0 + 5000}"]
    ),
)
delays = st.sampled_from(
    ["1", "30", "86400", "259200", "259201", "259200000", "0", "-1", "007", "9" * 19, "1.5", ""]
)
levels = st.sampled_from(["1", "2", "18", "19", "0", "007", "-1", "x", "99999999999", ""])
usual_wishes = st.one_of(
    st.integers(T0 + 900, T0 + 2 * DAY).map(lambda time: f"TIMER_DELIVER_MS\x01{time}\x02"),
    st.sampled_from(
        ["", "DELAY\x013\x02", "DELAY\x0118\x02", "TRAN_MSG\x01true\x02PGROUP\x01shop\x02", "SHOP\x01MODEL 7\x02"]
    ),
)
odd_items = st.one_of(
    st.tuples(st.just("TIMER_DELIVER_MS"), times),
    st.tuples(st.sampled_from(["TIMER_DELAY_SEC", "TIMER_DELAY_MS"]), delays),
    st.tuples(st.just("DELAY"), levels),
    st.tuples(st.just("TRAN_MSG"), st.sampled_from(["true", "TRUE", "tRuE", "false", "truely", ""])),
    st.tuples(
        st.sampled_from(
            [
                *(
                    "TIMER_OUT_MS",
                    "TIMER_DEL_UNIQKEY",
                    "REAL_TOPIC",
                    "REAL_QID",
                    "__transactionId__",
                    "TRACE_ON",
                    "",
                ),
                *("MODEL", "XDELAY", "TAGS", "KEYS", "PGROUP", "CONTRACT"),
            ]
        ),
        st.sampled_from(["true", "7", "ab c", "MODEL", "REAL_", "TRACE", "\x01", ""]),
    ),
)
odd_wishes = st.lists(odd_items, max_size=3).map(
    lambda items: "".join(f"{name}\x01{value}\x02" for name, value in items)
)


@st.composite
def sends(draw: st.DrawFn, wishes: st.SearchStrategy[str] | None = None) -> bytes:
    if wishes is None:
        wishes = odd_wishes if draw(st.integers(0, 3)) == 0 else usual_wishes
    wish = draw(wishes)
    key = f"UNIQ_KEY\x01{draw(st.text('0123456789ABCDEF', min_size=1, max_size=32))}\x02"
    tags = draw(st.sampled_from(["", "TAGS\x01paid\x02KEYS\x01k1 k2\x02"]))
    fields = dict(zip("acdgh", ("shop", "TBW102", "4", "1700000000000", "0"), strict=True))
    fields |= {"b": draw(st.sampled_from(["orders", "bills"])), "e": draw(st.sampled_from("01"))}
    fields |= {"f": draw(st.sampled_from(["0", "4"])), "i": "".join(draw(st.permutations([wish, key, tags])))}
    if draw(st.booleans()):
        fields["j"] = draw(st.sampled_from("01"))
    kind = draw(st.sampled_from([SerializeType.JSON, SerializeType.ROCKETMQ]))
    flag, body = draw(st.sampled_from([0, 0, 0, 2])), draw(st.binary(min_size=1, max_size=40))
    opaque = draw(st.integers(1, 1000))
    return Command(
        310, opaque, flag, ext_fields=fields, body=body, language=LanguageCode.GO, serialize_type=kind
    ).encode()


@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=FEW,
)
@given(parts=st.lists(st.lists(sends(), min_size=1, max_size=12), min_size=1, max_size=3))
async def test_what_waits_is_parked_and_answered_alike(
    parts: list[list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = [[b"".join(frames)] for frames in parts]
    compiled, general = await lives_of_both(monkeypatch, chunks, timerWheelEnable="true")
    assert compiled.answers == general.answers
    assert compiled.counted == general.counted
    assert compiled.stored == general.stored


@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=FEW // 2,
)
@given(
    parts=st.lists(st.lists(sends(), min_size=1, max_size=8), min_size=2, max_size=2),
    setting=st.sampled_from(
        [
            {"timerWheelEnable": "false"},
            {"timerWheelEnable": "true", "timerMaxDelaySec": "3600"},
            {"timerWheelEnable": "true", "timerPrecisionMs": "100"},
            {"timerWheelEnable": "true", "timerCongestNumEachSlot": "3"},
            {"rejectTransactionMessage": "true"},
            {"messageDelayLevel": "1s 5s"},
            {"brokerClusterName": "REAL_ONE"},
        ]
    ),
)
async def test_settings_count_for_both(
    parts: list[list[bytes]], setting: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = [[b"".join(frames)] for frames in parts]
    compiled, general = await lives_of_both(monkeypatch, chunks, 0, None, **setting)
    assert compiled.answers == general.answers
    assert compiled.counted == general.counted
    assert compiled.stored == general.stored


soon = st.one_of(
    st.integers(T0 + 900, T0 + 4000).map(lambda time: f"TIMER_DELIVER_MS\x01{time}\x02"),
    st.sampled_from(["TIMER_DELAY_SEC\x012\x02", "TIMER_DELAY_MS\x011500\x02TAGS\x01\x02", "äöü\x01ß\x02"]),
    st.just("TIMER_DELAY_MS\x011500\x02TIMER_ENQUEUE_MS\x017\x02"),
    st.just("TIMER_DELAY_MS\x011500\x02TAGS\x01a\x02TAGS\x01b\x02"),
    st.just("TIMER_DELAY_MS\x011500\x02UNIQ_KEY\x01other\x02"),
)


@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=FEW // 2,
)
@given(parts=st.lists(st.lists(sends(soon), min_size=1, max_size=20), min_size=1, max_size=2))
async def test_what_is_due_is_delivered_alike(parts: list[list[bytes]], monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = [[b"".join(frames)] for frames in parts]
    compiled, general = await lives_of_both(monkeypatch, chunks, 10_000, timerWheelEnable="true")
    assert compiled.answers == general.answers
    assert compiled.counted == general.counted
    assert compiled.stored == general.stored


delayed = st.one_of(
    st.sampled_from(["1", "1", "2", "3", "18", "19"]).map(lambda level: f"DELAY\x01{level}\x02"),
    st.sampled_from(
        ["DELAY\x011\x02TAGS\x01a\x02TAGS\x01b\x02", "DELAY\x011\x02ä\x01ß\x02", "DELAY\x011\x02X\x01\x02"]
    ),
    st.just("DELAY\x011\x02TIMER_DELIVER_MS\x011\x02"),
)


@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    deadline=None,
    max_examples=2 * FEW,
)
@given(parts=st.lists(st.lists(sends(delayed), min_size=1, max_size=20), min_size=1, max_size=2))
async def test_what_was_delayed_is_delivered_alike(
    parts: list[list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = [[b"".join(frames)] for frames in parts]
    compiled, general = await lives_of_both(monkeypatch, chunks, 20_000)
    assert compiled.answers == general.answers
    assert compiled.counted == general.counted
    assert compiled.stored == general.stored
