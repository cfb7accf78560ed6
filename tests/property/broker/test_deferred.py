"""The fast decoder of deferred messages returns what the full decoder returns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.broker.deferred.reader import DeferredMessage, DeferredReader
from orbitmq.broker.deferred.real_topic import _parse_real_queue, real_queue_of
from orbitmq.broker.deferred.record_copy import read_deferred
from orbitmq.protocol.message.properties import find, parse, values_of
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.store import StoredMessage
from orbitmq.testing.simulation.disk import MemoryDisk
from support.store.stores import open_small

if TYPE_CHECKING:
    from orbitmq.store import MessageStore

NAMES = st.sampled_from([b"REAL_TOPIC", b"REAL_QID", b"XREAL_TOPIC", b"k", b""])
VALUES = st.sampled_from(
    [b"", b"T", "Ä".encode(), b"\xff", b"0", b"12", b"-1", b"x", b"9" * 11, b"a\x01b", b"t" * 300]
)
PROPERTIES = st.lists(st.tuples(NAMES, VALUES, st.sampled_from([b"\x02", b"\x02", b""])), max_size=6).map(
    lambda entries: b"".join(name + b"\x01" + value + end for name, value, end in entries)
)
HOSTS = st.sampled_from([bytes((10, 0, 0, 1, 0, 0, 4, 5)), bytes(range(20))])


@given(PROPERTIES)
def test_the_real_queue_at_the_end_of_the_properties_wins(properties: bytes) -> None:
    assert real_queue_of(properties) == _parse_real_queue(properties)


@given(PROPERTIES)
def test_parsed_properties_equal_single_lookups(properties: bytes) -> None:
    values = values_of(properties)
    assert all(find(properties, name) == value for name, value in values.items() if b"\x01" not in name)
    assert len(parse(properties)) == len(values)


@given(st.binary(max_size=90), PROPERTIES, HOSTS, st.booleans(), st.integers(-1, 1))
@settings(max_examples=60, deadline=None)
def test_a_deferred_message_is_read_like_a_whole_record(
    body: bytes, properties: bytes, born_host: bytes, has_crc: bool, wrong: int
) -> None:
    disk = MemoryDisk(check_reservations=False)
    with open_small("/store", disk=disk, enabled_append_prop_crc=has_crc) as store:
        store.append(StoredMessage(TIMER_TOPIC, 0, b"before"))
        at = store.append(StoredMessage(
            TIMER_TOPIC, 0, body, properties, flag=3, sys_flag=1, born_timestamp=5, born_host=born_host,
            reconsume_times=2,
        ))  # fmt: skip
        store.append(StoredMessage("Other", 0, b"behind"))
        parked = DeferredReader(store, TIMER_TOPIC)
        behind = at.offset + at.size
        for offset, size in (
            (at.offset, at.size + wrong),
            (at.offset, 0),
            (0, 40),
            (behind, store.log.end - behind),
            (store.log.end, 100),
        ):
            assert parked.read(offset, size) == read_wholly(store, offset, size)


def read_wholly(store: MessageStore, offset: int, size: int) -> DeferredMessage | None:
    whole = read_deferred(store, offset, size)
    if whole is None or whole.topic != TIMER_TOPIC:
        return None
    return DeferredMessage(
        whole.body, whole.properties, whole.flag, whole.sys_flag, whole.born_timestamp, whole.born_host,
        whole.reconsume_times,
    )  # fmt: skip
