"""Batches are stored and answered the same by the compiled kernel and by the general path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orbitmq.protocol.codes import LanguageCode, SerializeType
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.message.batch import encode_batch
from support.native.marks import needs_native
from support.native.twin_brokers import lives_of_both, plain_send

if TYPE_CHECKING:
    import pytest

pytestmark = needs_native

keys = st.text("0123456789ABCDEF", min_size=1, max_size=32).map(lambda key: f"UNIQ_KEY\x01{key}\x02")
tags = st.sampled_from(["", "TAGS\x01paid\x02", "TAGS\x01paid\x02KEYS\x01k1  k2\x02", "WAIT\x01true\x02"])
odd_properties = st.sampled_from(
    [
        *("", "UNIQ_KEY\x01A", "\x02UNIQ_KEY\x01A\x02", "TAGS\x01\x02UNIQ_KEY\x01A\x02"),
        *("UNIQ_KEY\x01A\x02UNIQ_KEY\x01B\x02", "TAGS\x01a\x02UNIQ_KEY\x01A\x02TAGS\x01b\x02"),
        *("ä\x01ß\x02UNIQ_KEY\x01A\x02", "DELAY\x013\x02UNIQ_KEY\x01A\x02"),
    ]
)


@st.composite
def items(draw: st.DrawFn) -> list[tuple[int, bytes, bytes]]:
    is_odd = draw(st.integers(0, 5)) == 0
    properties = st.one_of(odd_properties, keys) if is_odd else st.tuples(keys, tags).map("".join)
    bodies = st.binary(min_size=0 if is_odd else 1, max_size=40)
    if draw(st.booleans()):
        # As most are: all alike, and so many that the general path takes them all at once.
        one = draw(bodies), draw(properties).encode()
        return [(0, *one)] * draw(st.integers(1, 40))
    item = st.tuples(st.sampled_from([0, 0, 7]), bodies, properties.map(str.encode))
    return draw(st.lists(item, min_size=0 if is_odd else 1, max_size=12))


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    body = encode_batch(draw(items()))
    damage = draw(st.integers(0, 20))
    if damage == 0:
        body = body[: draw(st.integers(0, len(body)))]
    fields = dict(zip("acdfgh", ("shop", "TBW102", "4", "0", "1700000000000", "0"), strict=True))
    fields |= {"b": draw(st.sampled_from(["orders", "bills"])), "e": draw(st.sampled_from("01"))}
    fields["i"] = draw(
        st.one_of(keys, st.sampled_from(["", "WAIT\x01true\x02", "UNIQ_KEY\x01a b\x02", "UNIQ_KEY\x01A"]))
    )
    fields["m"] = draw(st.sampled_from(["true"] * 9 + ["false"]))
    code, flag = draw(st.sampled_from([320] * 9 + [310])), draw(st.sampled_from([0, 0, 0, 2]))
    kind = draw(st.sampled_from([SerializeType.JSON, SerializeType.ROCKETMQ]))
    opaque = draw(st.integers(1, 1000))
    return Command(
        code, opaque, flag, ext_fields=fields, body=body, language=LanguageCode.GO, serialize_type=kind
    ).encode()


others = st.sampled_from([plain_send("orders", 0), plain_send("bills", 1)])


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], deadline=None)
@given(
    parts=st.lists(
        st.lists(st.one_of(batches(), batches(), others), min_size=1, max_size=6), min_size=1, max_size=3
    )
)
async def test_batches_are_stored_and_answered_alike(
    parts: list[list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    chunks = [[b"".join(frames)] for frames in parts]
    compiled, general = await lives_of_both(monkeypatch, chunks)
    assert compiled.answers == general.answers
    assert compiled.counted == general.counted
    assert compiled.stored == general.stored
