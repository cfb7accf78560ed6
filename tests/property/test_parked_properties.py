"""What is read of parked messages in the short way is what the long way reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.broker.parked import Parked, ParkedMessages
from orbitmq.broker.real_place import _place_in, place_in
from orbitmq.broker.rebuilding import read_parked
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.protocol.properties import find, parse, values_of
from orbitmq.testing.disk import MemoryDisk
from stores import open_small

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
def test_the_place_at_the_end_is_the_place_that_counts(properties: bytes) -> None:
    assert place_in(properties) == _place_in(properties)


@given(PROPERTIES)
def test_properties_taken_apart_are_those_that_are_found_one_by_one(properties: bytes) -> None:
    values = values_of(properties)
    assert all(find(properties, name) == value for name, value in values.items() if b"\x01" not in name)
    assert len(parse(properties)) == len(values)


@given(st.binary(max_size=90), PROPERTIES, HOSTS, st.booleans(), st.integers(-1, 1))
@settings(max_examples=60, deadline=None)
def test_a_parked_message_is_read_as_a_whole_record_is(
    body: bytes, properties: bytes, born_host: bytes, has_crc: bool, wrong: int
) -> None:
    disk = MemoryDisk(check_reservations=False)
    with open_small("/store", disk=disk, enabled_append_prop_crc=has_crc) as store:
        store.append(TIMER_TOPIC, 0, b"before")
        at = store.append(
            TIMER_TOPIC, 0, body, properties, flag=3, sys_flag=1, born_timestamp=5, born_host=born_host,
            reconsume_times=2,
        )  # fmt: skip
        store.append("Other", 0, b"behind")
        parked = ParkedMessages(store, TIMER_TOPIC)
        behind = at.offset + at.size
        for offset, size in (
            (at.offset, at.size + wrong),
            (at.offset, 0),
            (0, 40),
            (behind, store.log.end - behind),
            (store.log.end, 100),
        ):
            assert parked.read(offset, size) == read_wholly(store, offset, size)


def read_wholly(store: MessageStore, offset: int, size: int) -> Parked | None:
    whole = read_parked(store, offset, size)
    if whole is None or whole.topic != TIMER_TOPIC:
        return None
    return Parked(
        whole.body, whole.properties, whole.flag, whole.sys_flag, whole.born_timestamp, whole.born_host,
        whole.reconsume_times,
    )  # fmt: skip
