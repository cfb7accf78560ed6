"""Where messages are shown when they are on the disk, the compiled kernel and the general path are twins too."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orbitmq.protocol.codes import SerializeType
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.message.batch import encode_batch
from support.native.marks import needs_native
from support.native.twin_brokers import Flushed, lives_of_both, plain_send

pytestmark = needs_native

SYNC: dict[str, Any] = {"flushDiskType": "SYNC_FLUSH"}
POOL: dict[str, Any] = {"transientStorePoolEnable": "true", "transientStorePoolSize": "2"}
KNOWN = [Flushed([plain_send(topic, queue_id)]) for topic in ("orders", "bills") for queue_id in range(2)]

keys = st.text("0123456789ABCDEF", min_size=1, max_size=32)
properties = st.builds(
    lambda key, *others: f"UNIQ_KEY\x01{key}\x02" + "".join(others),
    keys,
    st.sampled_from(["", "WAIT\x01true\x02", "WAIT\x01true\x02", "WAIT\x01false\x02", "AWAIT\x01false\x02"]),
    st.sampled_from(["", "", "TAGS\x01paid\x02", "KEYS\x01k1 k2\x02", "DELAY\x012\x02", "TRAN_MSG\x01true\x02"]),
)
bodies = st.one_of(st.binary(min_size=1, max_size=40), st.sampled_from([b"", b"y" * 3000, b"z" * 5000]))


@st.composite
def requests(draw: st.DrawFn) -> tuple[int, int, dict[str, str], bytes, SerializeType]:
    """Code, flag, fields, body and kind of a send."""
    fields = dict(zip("acdfgh", ("shop", "TBW102", "4", "0", "1700000000000", "0"), strict=True))
    fields |= {"b": draw(st.sampled_from(["orders", "bills"])), "e": draw(st.sampled_from(["0", "0", "1", "9"]))}
    fields["i"] = draw(properties)
    code, body = 310, draw(bodies)
    if draw(st.integers(0, 3)) == 0:
        code, fields["m"] = 320, "true"
        one = st.tuples(
            st.just(0),
            st.binary(min_size=1, max_size=40),
            keys.map(lambda key: b"UNIQ_KEY\x01%s\x02" % key.encode()),
        )
        body = encode_batch(draw(st.lists(one, min_size=1, max_size=6)))
    return code, draw(st.sampled_from([0, 0, 0, 2])), fields, body, draw(st.sampled_from(SerializeType))


parts = st.lists(st.lists(requests(), min_size=1, max_size=12), min_size=1, max_size=3)


def chunks_of(parts: list[list[tuple[int, int, dict[str, str], bytes, SerializeType]]]) -> list[Flushed]:
    opaques = iter(range(1, 1000))
    return KNOWN + [
        Flushed(
            [
                b"".join(
                    Command(code, next(opaques), flag, ext_fields=fields, body=body, serialize_type=kind).encode()
                    for code, flag, fields, body, kind in part
                )
            ]
        )
        for part in parts
    ]


@pytest.mark.parametrize("kind", [SYNC, POOL], ids=["on the disk", "out of a transient pool"])
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], deadline=None)
@given(parts=parts)
async def test_what_is_shown_later_is_stored_and_answered_alike(
    kind: dict[str, Any],
    parts: list[list[tuple[int, int, dict[str, str], bytes, SerializeType]]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled, general = await lives_of_both(monkeypatch, chunks_of(parts), **kind)
    assert compiled.answers == general.answers
    assert compiled.counted == general.counted
    assert compiled.stored == general.stored
