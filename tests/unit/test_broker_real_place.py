"""Where a parked message belongs, written into its properties and read from them; and how parked ones are read."""

from __future__ import annotations

import pytest

from orbitmq.broker.real_place import place_in, topic_in, with_one_and_place, with_place, without_place
from orbitmq.broker.rebuilding import read_parked
from orbitmq.protocol.properties import encode, parse, with_property
from orbitmq.testing import MemoryDisk
from stores import TOPIC, open_small

OWN = encode({"KEYS": "k", "TAGS": "a"})


@pytest.mark.parametrize(
    "properties", [OWN, b"", OWN[:-1], encode({"REAL_TOPIC": "old", "KEYS": "k", "REAL_QID": "9"})]
)
def test_a_place_is_written_and_found_whatever_was_there_before(properties: bytes) -> None:
    parked = with_place(properties, "订单", 3)
    assert place_in(parked) == ("订单", 3)
    assert topic_in(parked) == "订单"
    before = parse(properties)
    assert parse(parked) == before | {"REAL_TOPIC": "订单", "REAL_QID": "3"}


@pytest.mark.parametrize(
    "properties",
    [
        OWN,
        b"",
        OWN[:-1],
        encode({"REAL_TOPIC": "old", "MORE": "m"}),
        encode({"MORE": "m", "KEYS": "k"}),
        b"MORE\x01",
    ],
)
def test_one_more_property_is_written_in_front_of_the_place(properties: bytes) -> None:
    parked = with_one_and_place(properties, b"MORE", b"1", "订单", 3)
    assert parked == with_place(with_property(properties, b"MORE", b"1"), "订单", 3)
    assert parked.endswith("MORE\x011\x02REAL_TOPIC\x01订单\x02REAL_QID\x013\x02".encode())


def test_a_place_that_was_written_is_taken_out_again() -> None:
    assert without_place(with_place(OWN, TOPIC, 3), TOPIC, 3) == OWN


def test_a_place_that_stands_elsewhere_is_taken_out_too() -> None:
    apaches = encode({"REAL_TOPIC": TOPIC, "KEYS": "k", "REAL_QID": "3", "TAGS": "a"})
    assert without_place(apaches, TOPIC, 3) == OWN


@pytest.mark.parametrize("number", ["", "x", "-1", "12345678901", "2147483648"])
def test_a_message_that_does_not_say_its_queue_has_no_place(number: str) -> None:
    assert place_in(encode({"REAL_TOPIC": TOPIC, "REAL_QID": number})) is None


def test_a_message_without_a_topic_has_no_place() -> None:
    assert place_in(encode({"REAL_QID": "1"})) is None
    assert topic_in(OWN) == ""


@pytest.mark.parametrize("is_reopened", [False, True])
def test_a_parked_record_is_read_with_its_size_and_without(is_reopened: bool) -> None:
    disk = MemoryDisk()
    store = open_small("/store", disk=disk)
    appended = store.append(TOPIC, 1, b"hello", OWN)
    if is_reopened:
        store.close()
        store = open_small("/store", disk=disk)
    for size in (appended.size, 0):
        found = read_parked(store, appended.offset, size)
        assert found is not None
        assert (found.body, found.properties, found.topic, found.queue_id) == (b"hello", OWN, TOPIC, 1)
    assert read_parked(store, appended.offset + 1, appended.size - 1) is None
    assert read_parked(store, appended.offset + appended.size) is None
    store.close()
