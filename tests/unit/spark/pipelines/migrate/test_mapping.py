"""Records of Kafka as messages and back: nothing is lost, whatever is in them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.protocol.message import property_names as names
from orbitmq.spark.pipelines.migrate.mapping import (
    NOT_COPIED,
    ROCKETMQ_BORN,
    Content,
    Record,
    bytes_of,
    carried,
    digest_of,
    origin_of,
    text_of,
    to_message,
    to_record,
)
from orbitmq.spark.sink import row_encoder as sink_rows

BINARY = st.binary(max_size=12) | st.text(max_size=12).map(str.encode)
SPECIAL = st.sampled_from(["KEYS", "TAGS", "KAFKA_KEY", "KAFKA_TIMESTAMP", "ROCKETMQ_BORN", "DELAY", "a", "b"])
RECORDS = st.builds(
    Record,
    st.none() | BINARY,
    st.none() | BINARY,
    st.lists(st.tuples(SPECIAL | st.text(max_size=6), st.none() | BINARY), max_size=5).map(tuple),
    st.integers(0, 1 << 50),
)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=8)
MESSAGES = st.builds(
    Content,
    st.binary(min_size=1, max_size=12),
    st.dictionaries(st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "__SHARDINGKEY"]) | TEXT, TEXT, max_size=5).map(
        lambda given: carried(given.items())
    ),
    st.integers(0, 1 << 50),
)


@given(RECORDS)
def test_every_record_comes_back_as_it_was(record: Record) -> None:
    message = to_message(record)
    assert message.body
    assert carried(message.properties.items()) == message.properties
    assert not any("\x02" in name + value or "\x01" in name for name, value in message.properties.items())
    assert to_record(message) == record


@given(RECORDS, TEXT)
def test_the_id_that_a_stored_message_has_got_does_not_matter(record: Record, unique: str) -> None:
    message = to_message(record)
    if names.UNIQUE_KEY not in message.properties:
        message.properties[names.UNIQUE_KEY] = unique
        assert to_record(message) == record


@given(MESSAGES)
def test_every_message_comes_back_as_it_was(message: Content) -> None:
    back = to_message(to_record(message))
    assert back.body == message.body
    assert back.properties == {ROCKETMQ_BORN: str(message.born_ms), **message.properties}


@given(BINARY)
def test_bytes_are_texts_without_separators(data: bytes) -> None:
    assert bytes_of(text_of(data)) == data
    assert not set(text_of(data)) & {"\x00", "\x01", "\x02"}


def test_a_record_is_found_by_its_key_and_its_headers() -> None:
    properties = to_message(Record(b"order-7", b"v", (("trace", b"abc"), ("TAGS", b"t")), 5)).properties
    assert properties[names.KEYS] == properties[names.SHARDING_KEY] == properties["KAFKA_KEY"] == "order-7"
    assert properties["trace"] == "abc"
    assert names.TAGS not in properties
    assert names.KEYS not in to_message(Record(b"two words", b"v", (), 5)).properties


def test_tombstones_and_empty_values_have_a_body_here() -> None:
    for value, name in ((None, "KAFKA_NULL"), (b"", "KAFKA_EMPTY")):
        message = to_message(Record(b"k", value, (), 5))
        assert (message.body, message.properties[name]) == (b"\x00", "true")
    plain = to_message(Record(b"k", b"\x00", (), 5))
    assert not {"KAFKA_NULL", "KAFKA_EMPTY"} & plain.properties.keys()


def test_a_message_has_its_keys_and_properties_in_kafka() -> None:
    message = Content(b"b", {names.KEYS: "k1 k2", names.TAGS: "paid", "colour": "red", names.UNIQUE_KEY: "U"}, 77)
    record = to_record(message)
    assert (record.key, record.value, record.timestamp_ms) == (b"k1 k2", b"b", 77)
    assert record.headers[0] == (ROCKETMQ_BORN, b"77")
    assert dict(record.headers)["TAGS"] == b"paid"
    assert dict(record.headers)["UNIQ_KEY"] == b"U"


def test_where_a_message_comes_from_is_no_part_of_it() -> None:
    marks = origin_of("it", "orders", "0", 7)
    record = Record(b"k", b"v", (("a", b"1"), *((name, value.encode()) for name, value in marks.items())), 5)
    assert record.without_origin() == Record(b"k", b"v", (("a", b"1"),), 5)
    assert record.origin() == marks
    assert carried({"a": "1", **marks}.items()) == {"a": "1"}


def test_digests_tell_contents_apart_and_nothing_else() -> None:
    one = Record(b"k", b"v", (("a", b"1"),), 5)
    assert digest_of(one) == digest_of(Record(b"k", b"v", (("a", b"1"),), 6))
    others = [Record(None, b"v", one.headers, 5), Record(b"k", None, one.headers, 5), Record(b"k", b"v", (), 5)]
    assert len({digest_of(each) for each in (one, *others, Record(b"k", b"", one.headers, 5))}) == 5
    message = Content(b"v", {"a": "1", "b": "2"})
    assert digest_of(message) == digest_of(Content(b"v", {"b": "2", "a": "1", names.UNIQUE_KEY: "U"}))
    assert digest_of(message) != digest_of(Content(b"v", {"a": "1"}))


def test_what_is_not_copied_is_what_the_sink_leaves_out() -> None:
    assert NOT_COPIED == sink_rows._NOT_COPIED
