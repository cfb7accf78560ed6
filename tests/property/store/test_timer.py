"""The timer's codecs and files: what is written is read again, and no bytes make reading fail in other ways."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.broker.timer.deliver_time import delivery_time
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.properties import encode, values_of
from orbitmq.protocol.message.recall_handle import RecallHandle, decode_recall_handle
from orbitmq.store.timer.checkpoint import TimerCheckpoint
from orbitmq.store.timer.files import TimerFiles
from orbitmq.store.timer.timer_log import DEFAULT, DELETE, UNIT_SIZE
from orbitmq.testing import MemoryDisk
from support.store.stores import small_config

PARTS = st.text(st.characters(blacklist_characters=" ", blacklist_categories=["Cs"]), min_size=1)
LOG = "/store/timerlog/00000000000000000000"
NOW = 1_700_000_000_000


@given(PARTS, PARTS, PARTS, PARTS)
def test_a_handle_is_read_as_it_was_written(topic: str, broker: str, timestamp: str, key: str) -> None:
    handle = RecallHandle(topic, broker, timestamp, key)
    assert decode_recall_handle(handle.encode()) == handle


@given(st.text())
def test_no_text_makes_a_handle_fail_otherwise(text: str) -> None:
    with contextlib.suppress(ProtocolError):
        decode_recall_handle(text)


@given(st.binary(max_size=5000))
def test_no_bytes_make_a_checkpoint_fail(data: bytes) -> None:
    disk = MemoryDisk()
    disk.write("/timercheck", data)
    found = TimerCheckpoint.load(disk, "/timercheck")
    assert all(value >= 0 for value in (found.read_time_ms, found.log_end, found.queue_offset, found.slot_position))


@given(st.lists(st.integers(0, (1 << 63) - 1), min_size=10, max_size=10))
def test_a_checkpoint_is_read_as_it_was_written(values: list[int]) -> None:
    disk = MemoryDisk()
    point = TimerCheckpoint(*values)
    point.store(disk, "/timercheck")
    assert TimerCheckpoint.load(disk, "/timercheck") == point


@given(
    st.sampled_from(["TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"]),
    st.text(st.characters(blacklist_characters="\x01\x02", blacklist_categories=["Cs"]), min_size=1),
)
def test_a_time_is_a_number_or_refused(name: str, text: str) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(delivery_time(values_of(encode({name: text})), NOW), int)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=60),
    st.integers(0, 60),
    st.integers(0, 52),
    st.binary(min_size=1, max_size=200),
    st.booleans(),
)
def test_damage_behind_the_checkpoint_leaves_what_is_before_it(
    units: list[tuple[int, bool]], saved: int, within: int, damage: bytes, has_wheel: bool
) -> None:
    """Whatever stands in the timer log from somewhere behind the checkpoint on."""
    disk = MemoryDisk()
    config = small_config("/store", mapped_file_size_timer_log=4096)
    files = TimerFiles(disk, config)
    files.open(lambda _: 1 << 60)
    saved = min(saved, len(units))
    for number, (second, is_marker) in enumerate(units):
        if number == saved:
            files.save(files.take_unsaved(TimerCheckpoint(version_counter=1, own_counter=1)))
        magic = DEFAULT | DELETE if is_marker else DEFAULT
        files.add(NOW + second * 1000, magic, NOW, number * 100, 100, 7)
    if saved == len(units):
        files.save(files.take_unsaved(TimerCheckpoint(version_counter=1, own_counter=1)))
    files.close()
    if disk.stat(LOG) is not None:
        disk.pwrite(LOG, saved * UNIT_SIZE + within, damage[: max(4096 - saved * UNIT_SIZE - within, 0)] or b"")
    if not has_wheel and disk.stat("/store/timerwheel") is not None:
        disk.remove("/store/timerwheel")

    again = TimerFiles(disk, config)
    again.open(lambda _: 1 << 60)
    assert again.log.end == saved * UNIT_SIZE
    for second in range(6):
        wanted = [number for number in range(saved) if units[number][0] == second]
        slot = again.wheel.slot(NOW + second * 1000)
        assert (slot is None) == (not wanted)
        if slot is not None:
            assert (slot.first, slot.last) == (wanted[0] * UNIT_SIZE, wanted[-1] * UNIT_SIZE)
            assert slot.waiting == sum(-1 if units[number][1] else 1 for number in wanted)
    again.close()
