"""The compiled kernel and the general path are twins: whatever is sent, the same bytes are stored and answered."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orbitmq.protocol.codes import LanguageCode, RequestCode, SerializeType
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.frame import encode_frame
from support.broker.broker_harness import UNKNOWN_CODE
from support.native.marks import needs_native
from support.native.twin_brokers import TOPICS, Together, lives_of_both, plain_send

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

pytestmark = needs_native

END = Command(UNKNOWN_CODE, 1 << 30).encode()
HEADER = (
    b'{"code":310,"extFields":{"a":"shop","b":"orders","c":"TBW102","d":"4","e":"0","f":"0","g":"17","h":"0",'
    b'"i":"UNIQ_KEY\\u0001AB%b"},"flag":0,"language":"JAVA","opaque":5,"version":493}'
)
DAMAGED = [
    encode_frame(0, (HEADER % b"\\u0002")[:-1], b"body"),
    encode_frame(0, HEADER % b"\\u00g2", b"body"),
    encode_frame(0, HEADER % b"\x02", b"body"),
    encode_frame(0, HEADER % b"\xff\\u0002", b"body"),
    b"\0\0\0\3" + bytes(20),
    b"\0\0\0\x20\2" + bytes(40),
]
words = st.text('ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789 äß€\x01\x02"\\/\n', min_size=1, max_size=12)
names = st.sampled_from(
    [
        *("TAGS", "KEYS", "UNIQ_KEY", "WAIT", "a", "x y", "", "BUYER"),
        *("DELAY", "TRAN_MSG", "CLUSTER", "MSG_REGION", "TRACE_ON", "POP_CK", "_PRIORITY_", "TIMER_DELAY_SEC"),
    ]
)
values = st.one_of(
    words, st.sampled_from(["", "1", "true", "paid", "k1 k2", " k1  k2 ", "MODEL", "UNIQ_KEY\x01x", "7F00000100A"])
)
plain_properties = st.builds(
    lambda key, tags, keys, end: f"{key}WAIT\x01true\x02{tags}{keys}"[:end],
    st.one_of(
        st.just(""),  # the Node client sends none
        st.text("0123456789ABCDEF", min_size=1, max_size=32).map("UNIQ_KEY\x01{}\x02".format),
    ),
    st.sampled_from(["", "TAGS\x01paid\x02", "TAGS\x01AaBB and so on, 31 characters.\x02", "TAGS\x01已付款\x02"]),
    st.sampled_from(
        ["", "KEYS\x01k1\x02", "KEYS\x01k1 k2 k3\x02", "KEYS\x01k1  k2 \x02", "KEYS\x01größe 数 😀\x02"]
    ),
    st.sampled_from([None, None, -1]),
)
odd_properties = st.builds(
    lambda items, end: "\x02".join(f"{name}\x01{value}" for name, value in items) + end,
    st.lists(st.tuples(names, values), max_size=5),
    st.sampled_from(["\x02", "", "\x02\x02"]),
)
numbers = st.sampled_from(["0", "1", "7", "-1", "007", "2147483647", "2147483648", "", "x", "+1", "1.0"])


def mostly(usual: st.SearchStrategy[str], unusual: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.integers(0, 50).flatmap(lambda dice: unusual if dice == 50 else usual)


fields = st.fixed_dictionaries(
    {
        "a": mostly(st.just("shop"), words),
        "b": mostly(
            st.sampled_from(["orders", "bills"]), st.sampled_from(["%RETRY%shop", "TBW102", "neu", "a/b", ""])
        ),
        "c": st.just("TBW102"),
        "d": mostly(st.just("4"), numbers),
        "e": mostly(st.sampled_from(["0", "1"]), st.sampled_from(["2", "9", "01", "x", ""])),
        "f": mostly(st.sampled_from(["0", "1"]), st.one_of(numbers, st.integers(0, 1 << 12).map(str))),
        "g": mostly(st.just("1700000000000"), st.sampled_from(["0", "-1", "9999999999999999999", "abc"])),
        "h": mostly(st.just("0"), numbers),
        "i": mostly(plain_properties, odd_properties),
    },
    optional={
        "j": mostly(st.just("0"), numbers),
        "k": mostly(st.just("false"), st.sampled_from(["true", "TRUE", "x"])),
        "l": mostly(st.just("16"), numbers),
        "m": mostly(st.just("false"), st.sampled_from(["true", "x"])),
        "n": words,
        "more": words,
    },
)
LONG_NAMES = {
    "a": "producerGroup",
    "b": "topic",
    "c": "defaultTopic",
    "d": "defaultTopicQueueNums",
    "e": "queueId",
    "f": "sysFlag",
    "g": "bornTimestamp",
    "h": "flag",
    "i": "properties",
    "j": "reconsumeTimes",
    "k": "unitMode",
    "l": "maxReconsumeTimes",
    "m": "batch",
    "n": "bname",
    "more": "more",
}
"""Of the fields of SEND_MESSAGE, which the Go client sends."""


def unquoted(ext_fields: dict[str, str]) -> dict[str, Any]:
    """The fields as a client writes them that does not turn numbers and booleans into text, and has nulls."""
    values: dict[str, Any] = {"more": None}
    for name, text in ext_fields.items():
        is_number = text.isdecimal() and text.isascii() and str(int(text)) == text
        values[name] = int(text) if is_number else {"true": True, "false": False}.get(text, text)
    return values


bodies = st.one_of(st.binary(min_size=1, max_size=40), st.sampled_from([b"", b"x" * 513, b"y" * 3000, b"z" * 5000]))


@st.composite
def sends(draw: st.DrawFn) -> Callable[[int], bytes]:
    """What makes the frame of one send, given its opaque."""
    ext_fields = draw(fields)
    for name in draw(st.lists(st.sampled_from([*ext_fields]), max_size=1)):
        if draw(st.integers(0, 9)) == 9:
            del ext_fields[name]
    if ext_fields.get("b") not in TOPICS and "i" in ext_fields:
        # A message of a new topic waits for it. An id of its own would be made before or after those of others.
        ext_fields["i"] = f"UNIQ_KEY\x01AB\x02{ext_fields['i']}"
    ext_fields = dict(draw(st.permutations([*ext_fields.items()])))
    body = draw(bodies)
    flag = draw(st.sampled_from([0, 0, 0, 0, 2]))
    usual_code = draw(st.sampled_from([310, 310, 10]))
    if usual_code == 10 or draw(st.integers(0, 60)) == 0:
        ext_fields = {LONG_NAMES[name]: value for name, value in ext_fields.items()}
    if draw(st.integers(0, 2)) == 0:
        kind = SerializeType.ROCKETMQ
        return lambda opaque: Command(
            usual_code,
            opaque,
            flag,
            ext_fields=ext_fields,
            body=body,
            language=LanguageCode.GO,
            serialize_type=kind,
        ).encode()
    code = draw(st.sampled_from([usual_code] * 24 + [310, 10, RequestCode.HEART_BEAT, UNKNOWN_CODE]))
    values: dict[str, Any] = draw(st.sampled_from([ext_fields, ext_fields, unquoted(ext_fields)]))
    head: dict[str, Any] = {"code": int(code), "extFields": values, "flag": flag, "version": 493}
    head["language"] = draw(st.sampled_from(["JAVA"] * 6 + ["GO", "PYTHON", "ELVISH"]))
    head["serializeTypeCurrentRPC"] = "JSON"
    odd: list[dict[str, Any]] = [{"more": [1]}, {"flag": "0"}, {"remark": "\n"}]
    head.update(draw(st.sampled_from([{}] * 10 + [{"remark": None}, {"remark": ""}] * 5 + odd)))
    order = draw(st.permutations([*head, "opaque"]))
    if draw(st.booleans()):
        order = ["code", *order]
    how: dict[str, Any] = draw(
        st.sampled_from(
            [{"separators": (",", ":")}, {"separators": (",", ":"), "ensure_ascii": False}, {"indent": 1}]
        )
    )
    has_twice = draw(st.integers(0, 30)) == 30

    def frame(opaque: int) -> bytes:
        text = json.dumps({name: opaque if name == "opaque" else head[name] for name in order}, **how)
        header = text.encode("utf-8", "surrogatepass")
        return encode_frame(0, header.replace(b'"a":', b'"b":', 1) if has_twice else header, body)

    return frame


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], deadline=None)
@given(
    lives=st.lists(
        st.tuples(st.lists(sends(), min_size=1, max_size=12), st.sampled_from([b"", END, *DAMAGED])),
        min_size=1,
        max_size=3,
    ),
    cuts=st.lists(st.integers(1, 3000), max_size=3),
)
async def test_whatever_is_sent_is_stored_and_answered_alike(
    lives: list[tuple[list[Callable[[int], bytes]], bytes]], cuts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    opaques = itertools.count(1)
    parts = []
    for frames, end in lives:
        data = b"".join([frame(next(opaques)) for frame in frames])
        bounds = [0, *sorted({cut for cut in cuts if cut < len(data)}), len(data)]
        pieces = [data[start:stop] for start, stop in itertools.pairwise(bounds)]
        # In one piece: what a broker has not read when it closes would take its answers along.
        parts.append([*pieces[:-1], pieces[-1] + end])
    compiled, general = await lives_of_both(monkeypatch, parts)
    assert compiled.answers == general.answers
    assert compiled.counted == general.counted
    assert compiled.stored == general.stored


@st.composite
def plain_sends(draw: st.DrawFn) -> bytes:
    """The frame of a send that has nothing special about it."""
    topic = draw(st.sampled_from(["orders", "bills"]))
    ext_fields = {
        **dict(zip("acdfgh", ("shop", "TBW102", "4", "0", "1700000000000", "0"), strict=True)),
        "b": topic,
    }
    ext_fields |= {"e": draw(st.sampled_from(["0", "1"])), "i": draw(plain_properties)}
    return Command(
        *(310, draw(st.integers(0, 1 << 30)), draw(st.sampled_from([0, 0, 2]))),
        ext_fields=ext_fields,
        body=draw(st.binary(min_size=1, max_size=40)),
        serialize_type=draw(st.sampled_from(SerializeType)),
    ).encode()


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture], deadline=None)
@given(
    turns=st.lists(
        st.lists(
            # Nothing at the end that is stored by the general path: that comes behind what is plain of all.
            st.tuples(st.lists(plain_sends(), max_size=3), st.sampled_from([b"", b"", END, *DAMAGED[-2:]])),
            min_size=1,
            max_size=6,
        ),
        min_size=1,
        max_size=3,
    )
)
async def test_what_many_connections_send_at_once_is_stored_and_answered_alike(
    turns: list[list[tuple[list[bytes], bytes]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The kernel knows the queues already, and one log file has room for all: what it leaves would come later.
    known = [[plain_send(topic, queue_id)] for topic in TOPICS for queue_id in range(2)]
    parts = [Together([b"".join(frames) + end for frames, end in turn]) for turn in turns]
    compiled, general = await lives_of_both(monkeypatch, [*known, *parts], mappedFileSizeCommitLog=1 << 20)
    assert compiled.answers == general.answers
    assert compiled.counted == general.counted
    assert compiled.stored == general.stored
