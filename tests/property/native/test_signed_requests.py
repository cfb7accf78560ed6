"""Requests are verified natively only if the guard would let them pass, and usual ones are."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq import native
from orbitmq.auth.credentials import Credentials
from orbitmq.auth.requirements import RULES, Environment
from orbitmq.auth.signature import ACCESS_KEY, Signer, is_signed_by
from orbitmq.protocol.codes import SerializeType
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.fast_decode import decode_header
from orbitmq.protocol.command.frame import FrameError, FrameParser
from orbitmq.protocol.command.header import EXT_FIELDS, VERSION
from orbitmq.protocol.errors import ProtocolError
from support.native.marks import needs_native

pytestmark = needs_native

SECRET = b"alices-secret"
SOURCE = b"10.0.0.1"
SENDS = {310: "b", 320: "b", 10: "topic"}
READS = (11, 361, 200050, 200051)

names = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", min_size=1, max_size=6)
texts = st.one_of(
    st.text(max_size=20), st.sampled_from(["", "1", "a/b+c=", 'x"\\y\n', "UNIQ_KEY\x01AB\x02", "größer"])
)
plain = st.text("abcXYZ019_-%", min_size=1, max_size=8)


@st.composite
def requests(draw: st.DrawFn) -> Command:
    """Requests that the native code may verify, with fields that it does not know among theirs."""
    code = draw(st.sampled_from([*SENDS, *READS]))
    fields = draw(st.dictionaries(names, texts, max_size=12))
    fields |= {SENDS[code]: draw(plain)} if code in SENDS else {"topic": draw(plain), "consumerGroup": draw(plain)}
    fields.pop(ACCESS_KEY, None)
    body = draw(st.binary(max_size=150))
    serialize_type = draw(st.sampled_from([SerializeType.JSON, SerializeType.ROCKETMQ]))
    if serialize_type is SerializeType.ROCKETMQ and code >= 1 << 15:
        serialize_type = SerializeType.JSON
    return Command(code, 7, ext_fields=fields, body=body, serialize_type=serialize_type)


def signed(request: Command, secret: bytes = SECRET) -> bytes:
    Signer(Credentials("alice", secret.decode())).sign(request)
    return request.encode()


def verify(data: bytes, *, needs_grant: bool, grants: set[bytes] | None = None) -> tuple[int, Any]:
    keys = {b"alice": native.load().signing_key(SECRET, needs_grant)}
    return native.load().verify_requests(data, SOURCE, keys, set() if grants is None else grants)


def is_let_pass(frame: bytes) -> bool:
    """The guard's view of one frame: alice has signed it."""
    try:
        [(serialize_type, head, body)] = FrameParser().feed(frame)
        header = decode_header((serialize_type, head, body))
    except (ProtocolError, FrameError, ValueError):
        return False
    fields = header[EXT_FIELDS]
    return fields.get(ACCESS_KEY) == "alice" and is_signed_by(SECRET, fields, body, header[VERSION])


@given(st.lists(requests(), min_size=1, max_size=4))
def test_what_is_signed_is_verified(made: list[Command]) -> None:
    data = b"".join(map(signed, made))
    assert verify(data, needs_grant=False) == (len(data), None)
    assert verify(data[:-1], needs_grant=False)[0] == len(data) - len(made[-1].encode())


@given(requests(), st.text(min_size=1, max_size=100))
def test_secrets_of_any_length_sign(made: Command, secret: str) -> None:
    Signer(Credentials("alice", secret)).sign(made)
    keys = {b"alice": native.load().signing_key(secret.encode(), False)}
    frame = made.encode()
    assert native.load().verify_requests(frame, SOURCE, keys, set()) == (len(frame), None)


@given(requests(), st.sampled_from([b"alices-secre", b"alices-secret ", b"x"]))
def test_what_another_has_signed_is_not(made: Command, secret: bytes) -> None:
    assert verify(signed(made, secret), needs_grant=False) == (0, None)


@given(requests(), st.data())
def test_what_was_changed_behind_its_signer_is_verified_only_if_the_guard_agrees(
    made: Command, data: st.DataObject
) -> None:
    frame = bytearray(signed(made))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(8, len(frame) - 1))] = data.draw(st.integers(0, 255))
    changed = bytes(frame)
    if verify(changed, needs_grant=False)[0]:
        assert is_let_pass(changed)


@given(requests())
def test_a_right_is_for_the_names_in_the_request(made: Command) -> None:
    frame = signed(made)
    size, missing = verify(frame, needs_grant=True)
    fields = decode_header(FrameParser().feed(frame)[0])[EXT_FIELDS]
    topic = fields[SENDS.get(made.code, "topic")]
    group = "" if made.code in SENDS else fields["consumerGroup"]
    assert size == 0
    assert missing[1:] == (b"alice", made.code, topic.encode(), group.encode())
    assert verify(frame, needs_grant=True, grants={missing[0]}) == (len(frame), None)


def test_each_right_is_another_one() -> None:
    keys = set()
    usual = {"topic": "ab", "consumerGroup": "c"}
    for code, fields in [(11, usual), (361, usual), (11, {"topic": "a", "consumerGroup": "bc"})]:
        missing = verify(signed(Command(code, 7, ext_fields=dict(fields))), needs_grant=True)[1]
        keys.add(missing[0])
    assert len(keys) == 3


@pytest.mark.parametrize("code", [*SENDS, *READS])
def test_the_rule_of_a_verified_request_reads_its_topic_and_group_only(code: int) -> None:
    class Recording(dict[str, str]):
        read: set[str] = set()  # noqa: RUF012 - one for the test

        def get(self, key: str, default: Any = None) -> Any:
            self.read.add(key)
            return super().get(key, default)

    environment = Environment("c", lambda _: pytest.fail("looked at the log"))
    for topic, group in itertools.product(("orders", "%RETRY%shop", "RMQ_SYS_TRACE_TOPIC"), ("shop", "")):
        list(RULES[code](Recording(topic=topic, b=topic, consumerGroup=group), b"", environment))
    assert Recording.read <= ({SENDS[code]} if code in SENDS else {"topic", "consumerGroup"})


@pytest.mark.parametrize(
    "odd",
    [
        b'{"code":310,"code":310,"extFields":{%b},"opaque":7}',
        b'{"code":310,"extFields":{%b},"extFields":{},"opaque":7}',
        b'{"code":310,"extFields":{%b,"b":"other"},"opaque":7}',
        b'{"code":310,"extFields":{%b,"k":null},"opaque":7}',
        b'{"code":"310","extFields":{%b},"opaque":7}',
        b'{"code":24,"extFields":{%b},"opaque":7}',
        b'{"code":310,"extFields":{%b},"opaque":7} x',
    ],
)
def test_a_header_that_could_be_read_in_two_ways_is_for_the_guard(odd: bytes) -> None:
    request = Command(310, 7, ext_fields={"b": "T"})
    Signer(Credentials("alice", SECRET.decode())).sign(request)
    fields = b",".join(b'"%b":"%b"' % (name.encode(), value.encode()) for name, value in request.ext_fields.items())
    plain_header = b'{"code":310,"extFields":{%b},"opaque":7}' % fields
    assert verify(frame_of(plain_header), needs_grant=False)[0]
    assert verify(frame_of(odd.replace(b"%b", fields)), needs_grant=False) == (0, None)


def frame_of(header: bytes) -> bytes:
    return (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header


@given(st.binary(max_size=200))
def test_bytes_of_strangers_are_not_verified(data: bytes) -> None:
    assert verify(data, needs_grant=False) == (0, None)
