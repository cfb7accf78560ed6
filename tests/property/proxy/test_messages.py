"""What is sent over gRPC and stored comes back, and no record or handle makes the decoders fail otherwise."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.pop_receipt import Receipt
from orbitmq.protocol.message.record import decode_record, encode_record
from orbitmq.proxy.config import GrpcConfig
from orbitmq.proxy.errors import StatusError
from orbitmq.proxy.messages.from_stored import delivered, resource_of
from orbitmq.proxy.messages.popped import Handle
from orbitmq.proxy.messages.reserved import RESERVED
from orbitmq.proxy.messages.to_stored import outgoing
from orbitmq.proxy.messages.validation import check_message
from orbitmq.proxy.proto import definition_pb2 as pb

CONFIG = GrpcConfig()
HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
words = st.text(st.characters(exclude_categories=["C", "Z"], exclude_characters="|"), min_size=1, max_size=20)
values = st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=20)


@st.composite
def messages(draw: st.DrawFn) -> pb.Message:
    message = pb.Message(topic=pb.Resource(name="orders"), body=draw(st.binary(min_size=1, max_size=100)))
    user = draw(st.dictionaries(words.filter(lambda name: name not in RESERVED), values, max_size=5))
    message.user_properties.update(user)
    system = message.system_properties
    system.message_id = draw(words)
    system.keys.extend(draw(st.lists(words, max_size=3)))
    system.body_encoding = draw(st.sampled_from([pb.IDENTITY, pb.GZIP]))
    system.born_timestamp.seconds = draw(st.integers(0, 1 << 33))
    if draw(st.booleans()):
        system.tag = draw(words)
    if draw(st.booleans()):
        system.message_group = draw(st.text("abc", min_size=1, max_size=9))
    if draw(st.booleans()):
        system.priority = draw(st.integers(0, 9))
    return message


def stored(message: pb.Message) -> bytes:
    form = outgoing(message, "10.0.0.1:1", 0)
    return encode_record(
        topic=b"orders",
        queue_id=1,
        body=form.body,
        properties=form.properties.encode(),
        sys_flag=form.sys_flag,
        born_timestamp=form.born_ms,
        born_host=HOST,
        store_host=HOST,
    )


@given(messages())
def test_a_message_survives_its_storage(message: pb.Message) -> None:
    check_message(message, CONFIG, 0)
    found = delivered(decode_record(stored(message)), "orders")
    sent, system = message.system_properties, found.system_properties
    assert found.body == message.body
    assert {name: value for name, value in message.user_properties.items() if value}.items() <= (
        dict(found.user_properties).items()
    )
    for field in ("message_id", "tag", "message_group", "body_encoding", "priority"):
        assert getattr(system, field) == getattr(sent, field)
        if field not in {"message_id", "body_encoding"}:
            assert system.HasField(field) == sent.HasField(field)
    assert list(system.keys) == list(sent.keys)
    assert system.born_timestamp == sent.born_timestamp
    assert system.born_host == "10.0.0.1:1"


@given(st.binary(max_size=300))
def test_no_properties_make_a_delivery_fail(properties: bytes) -> None:
    record = encode_record(
        topic=b"t", queue_id=0, body=b"x", properties=properties, born_host=HOST, store_host=HOST
    )
    assert delivered(decode_record(record), "t").SerializeToString()


@given(st.text(max_size=80))
def test_no_handle_makes_the_parser_fail_otherwise(text: str) -> None:
    with contextlib.suppress(StatusError):
        handle = Handle.parse(text)
        assert Handle.parse(str(handle)) == handle


@given(st.integers(0, 1 << 60), st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.integers(-1, 1 << 60))
def test_a_handle_is_read_as_it_was_written(start: int, time: int, invisible: int, physical: int) -> None:
    handle = Handle(Receipt(start, time, invisible, 3, "1", "broker-a", 2, 9), physical)
    assert Handle.parse(str(handle)) == handle
    assert handle.fields("t", "g")["topic"] == "%RETRY%g_t"


@given(st.text(max_size=40))
def test_every_topic_has_a_namespace_and_a_name(topic: str) -> None:
    with contextlib.suppress(ProtocolError):
        namespace, name = resource_of(topic)
        assert not namespace or "%" in topic
        assert len(name) <= len(topic)
