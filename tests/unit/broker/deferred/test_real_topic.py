"""Real topic and queue in the properties of deferred messages, and reading of deferred records."""

from __future__ import annotations

import pytest

from orbitmq.broker.deferred.real_topic import (
    real_queue_of,
    real_topic_of,
    with_property_and_real_topic,
    with_real_topic,
    without_real_topic,
)
from orbitmq.broker.deferred.record_copy import read_deferred
from orbitmq.protocol.message.properties import encode, parse, with_property
from orbitmq.store import StoredMessage
from orbitmq.testing import MemoryDisk
from support.store.stores import TOPIC, open_small

OWN = encode({"KEYS": "k", "TAGS": "a"})


@pytest.mark.parametrize(
    "properties", [OWN, b"", OWN[:-1], encode({"REAL_TOPIC": "old", "KEYS": "k", "REAL_QID": "9"})]
)
def test_a_real_queue_is_written_and_found_whatever_properties_were_there_before(properties: bytes) -> None:
    parked = with_real_topic(properties, "订单", 3)
    assert real_queue_of(parked) == ("订单", 3)
    assert real_topic_of(parked) == "订单"
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
def test_one_more_property_is_written_before_the_real_queue(properties: bytes) -> None:
    parked = with_property_and_real_topic(properties, b"MORE", b"1", "订单", 3)
    assert parked == with_real_topic(with_property(properties, b"MORE", b"1"), "订单", 3)
    assert parked.endswith("MORE\x011\x02REAL_TOPIC\x01订单\x02REAL_QID\x013\x02".encode())


def test_a_written_real_queue_is_removed_again() -> None:
    assert without_real_topic(with_real_topic(OWN, TOPIC, 3), TOPIC, 3) == OWN


def test_a_real_queue_elsewhere_in_the_properties_is_removed_too() -> None:
    apaches = encode({"REAL_TOPIC": TOPIC, "KEYS": "k", "REAL_QID": "3", "TAGS": "a"})
    assert without_real_topic(apaches, TOPIC, 3) == OWN


@pytest.mark.parametrize("number", ["", "x", "-1", "12345678901", "2147483648"])
def test_a_message_without_a_valid_queue_id_has_no_real_queue(number: str) -> None:
    assert real_queue_of(encode({"REAL_TOPIC": TOPIC, "REAL_QID": number})) is None


def test_a_message_without_a_topic_has_no_real_queue() -> None:
    assert real_queue_of(encode({"REAL_QID": "1"})) is None
    assert real_topic_of(OWN) == ""


@pytest.mark.parametrize("is_reopened", [False, True])
def test_a_deferred_record_is_read_with_and_without_its_size(is_reopened: bool) -> None:
    disk = MemoryDisk()
    store = open_small("/store", disk=disk)
    appended = store.append(StoredMessage(TOPIC, 1, b"hello", OWN))
    if is_reopened:
        store.close()
        store = open_small("/store", disk=disk)
    for size in (appended.size, 0):
        found = read_deferred(store, appended.offset, size)
        assert found is not None
        assert (found.body, found.properties, found.topic, found.queue_id) == (b"hello", OWN, TOPIC, 1)
    assert read_deferred(store, appended.offset + 1, appended.size - 1) is None
    assert read_deferred(store, appended.offset + appended.size) is None
    store.close()
