"""Consume queue units that point to no record of their queue: found by reads, repaired from the log."""

from __future__ import annotations

import logging
import os
import random
from typing import TYPE_CHECKING

import pytest

from orbitmq import native
from orbitmq.native.python.gather_records import gather_records
from orbitmq.protocol.java import tags_code
from orbitmq.store import GetStatus
from orbitmq.store import reader as reading
from orbitmq.store.background.service import StoreService
from orbitmq.store.consumequeue import known_tags
from support.store.stores import (
    LOG_FILE,
    QUEUE_FILE,
    TOPIC,
    edit_log,
    offsets_of,
    open_small,
    read_all,
    record_at,
    send,
    served,
    tree,
)

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.store import MessageStore

MANY = 60
QUEUES = 3


@pytest.fixture(params=["native", "python"], autouse=True)
def either_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "python":
        monkeypatch.setattr(reading, "_gather_records", gather_records)
    elif not native.load().is_compiled:
        pytest.skip("the native extension was not built or is switched off")


def filled(root: Path) -> list[list[int]]:
    """A closed store with some queues whose records alternate; where they lie in the log."""
    offsets: list[list[int]] = [[] for _ in range(QUEUES)]
    with open_small(root) as store:
        for number in range(MANY * QUEUES):
            offsets[number % QUEUES] += send(store, queue_id=number % QUEUES, size=100, TAGS=f"t{number % 5}")
    return offsets


def flip(root: Path, queue_id: int, unit: int, bit: int) -> None:
    position = unit * 20
    path = root / "consumequeue" / TOPIC / str(queue_id) / f"{position - position % QUEUE_FILE:020d}"
    data = bytearray(path.read_bytes())
    data[position % QUEUE_FILE + bit // 8] ^= 0x80 >> bit % 8
    path.write_bytes(data)


def everything(store: MessageStore) -> list[list[int]]:
    return [offsets_of(read_all(store, queue_id=queue_id)) for queue_id in range(QUEUES)]


@pytest.mark.parametrize("bit", [0, 21, 45, 60, 63, 64, 80, 95])
def test_a_flipped_bit_in_the_offset_or_size_of_a_unit_loses_no_message(tmp_path: Path, bit: int) -> None:
    offsets = filled(tmp_path)
    whole = tree(tmp_path, "consumequeue")
    flip(tmp_path, 1, 17, bit)
    with open_small(tmp_path) as store:
        assert everything(store) == offsets
        assert store.repairs.repaired or store.recovery.rebuilt_queues
        assert not store.repairs.lost
    assert tree(tmp_path, "consumequeue") == whole


@pytest.mark.parametrize("bit", [98, 127])
def test_a_tags_code_that_is_no_hash_is_found_by_a_reader_that_filters(tmp_path: Path, bit: int) -> None:
    filled(tmp_path)
    flip(tmp_path, 1, 17, bit)
    record = 17 * QUEUES + 1
    with open_small(tmp_path) as store:
        result = store.get(TOPIC, 1, 17, matches_code={tags_code(f"t{record % 5}")}.__contains__)
        assert served(result)[0].queue_offset == 17


@pytest.mark.parametrize("bit", [126, 140, 150])
def test_a_wrong_hash_of_tags_is_found_by_a_reader_that_filters(tmp_path: Path, bit: int) -> None:
    filled(tmp_path)
    whole = tree(tmp_path, "consumequeue")
    flip(tmp_path, 1, 17, bit)
    wanted = {tags_code(f"t{(17 * QUEUES + 1) % 5}")}
    with open_small(tmp_path) as store:
        found, offset = [], 0
        while offset < MANY:
            result = store.get(TOPIC, 1, offset, matches_code=wanted.__contains__)
            found += [record.queue_offset for record in served(result)]
            assert result.next_begin_offset > offset
            offset = result.next_begin_offset
        assert found == list(range(2, MANY, 5))
        assert (store.repairs.repaired, store.repairs.lost) == (1, 0)
    assert tree(tmp_path, "consumequeue") == whole


def test_a_hash_of_other_tags_is_found_by_every_reader_of_the_record(tmp_path: Path) -> None:
    filled(tmp_path)
    whole = tree(tmp_path, "consumequeue")
    flip(tmp_path, 1, 17, 159)
    with open_small(tmp_path) as store:
        read_all(store, queue_id=1)
        assert (store.repairs.repaired, store.repairs.lost) == (1, 0)
    assert tree(tmp_path, "consumequeue") == whole


def test_a_topic_of_very_many_tags_is_read_in_steps_and_no_longer_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step, checked = known_tags.MAX_DOUBTS, 4 * known_tags.MAX_DOUBTS
    monkeypatch.setattr(known_tags, "MAX_CODES", checked)
    with open_small(tmp_path, mapped_file_size_consume_queue=4000) as store:
        for number in range(2 * checked):
            send(store, TAGS=f"unique{number}")
    with open_small(tmp_path, mapped_file_size_consume_queue=4000) as store:
        steps, offset = [], 0
        while offset < 2 * checked:
            result = store.get(TOPIC, 0, offset, matches_code={1}.__contains__)
            assert result.status is GetStatus.NO_MATCHED_MESSAGE
            steps.append(result.next_begin_offset - offset)
            offset = result.next_begin_offset
        assert steps == [step, step, step, checked + step]
        assert store.repairs.repaired == 0


def test_many_flipped_bits_in_a_closed_store_cost_no_message(tmp_path: Path) -> None:
    offsets = filled(tmp_path)
    rng = random.Random(7)
    for _ in range(30):
        flip(tmp_path, rng.randrange(QUEUES), rng.randrange(MANY), rng.randrange(96))
    with open_small(tmp_path) as store:
        assert everything(store) == offsets
        assert not store.repairs.lost


def test_repairs_are_logged_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    filled(tmp_path)
    flip(tmp_path, 2, 5, 60)
    with open_small(tmp_path) as store, caplog.at_level(logging.WARNING):
        read_all(store, queue_id=2)
        assert (store.repairs.repaired, store.repairs.lost) == (1, 0)
    assert f"consume queue {TOPIC}/2: units 5 to 5 point to no record of it" in caplog.text
    assert "units 5 to 5 repaired from the log, 0 of them without a record" in caplog.text


def test_a_unit_whose_record_is_damaged_too_is_passed(tmp_path: Path) -> None:
    offsets = filled(tmp_path)
    flip(tmp_path, 1, 17, 60)
    edit_log(tmp_path, offsets[1][17] + 4, b"\0\0\0\0")
    with open_small(tmp_path) as store:
        assert everything(store)[1] == offsets[1][:17] + offsets[1][18:]
        assert store.repairs.lost == 1
        assert everything(store)[1] == offsets[1][:17] + offsets[1][18:]
        assert store.repairs.lost == 1


@pytest.mark.parametrize("size", [0, 7, 20, 133])
def test_a_queue_file_truncated_under_the_running_store_costs_no_message(tmp_path: Path, size: int) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 600, size=100)
        store.sync_queues()
        os.truncate(tmp_path / "consumequeue" / TOPIC / "0" / f"{2 * QUEUE_FILE:020d}", size)
        assert offsets_of(read_all(store)) == offsets
        assert store.repairs.repaired == (QUEUE_FILE - size) // 20 + (1 if size % 20 else 0)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("size", [1, 20, 133])
def test_a_queue_file_found_truncated_at_the_start_costs_no_message(
    tmp_path: Path, size: int, is_clean: bool
) -> None:
    offsets = filled(tmp_path)
    if not is_clean:
        open_small(tmp_path).abandon()
    os.truncate(tmp_path / "consumequeue" / TOPIC / "1" / f"{2 * QUEUE_FILE:020d}", size)
    with open_small(tmp_path) as store:
        assert everything(store) == offsets
        assert (TOPIC, 1) in store.recovery.rebuilt_queues


async def test_with_a_service_a_reader_waits_for_the_repair_and_skips_nothing(tmp_path: Path) -> None:
    offsets = filled(tmp_path)
    store = open_small(tmp_path)
    flip(tmp_path, 0, 30, 40)
    service = StoreService(store)
    await service.start()
    arrivals = []
    store.dispatcher.on_arrival = lambda queue, *_: arrivals.append(queue.queue_id)
    found = store.get(TOPIC, 0, 30)
    assert (found.status.name, found.next_begin_offset) == ("OFFSET_FOUND_NULL", 30)
    before = store.get(TOPIC, 0, 28)
    assert (before.count, before.next_begin_offset) == (2, 30)
    await service._repair_queues()
    assert arrivals == [0]
    assert [record.physical_offset for record in served(store.get(TOPIC, 0, 30, 1))] == [offsets[0][30]]
    await service.stop()


# Records whose topic is damaged


def damage_topic(root: Path, offset: int, bits: int) -> None:
    path = root / "commitlog" / f"{offset // LOG_FILE * LOG_FILE:020d}"
    data = bytearray(path.read_bytes())
    at = data.index(TOPIC.encode(), offset % LOG_FILE)
    data[at + 2] ^= bits
    path.write_bytes(data)


@pytest.mark.parametrize("bits", [1, 3])
def test_a_flipped_bit_in_the_topic_of_a_record_is_put_right(
    tmp_path: Path, bits: int, caplog: pytest.LogCaptureFixture
) -> None:
    offsets = filled(tmp_path)
    damage_topic(tmp_path, offsets[1][9], bits)
    with open_small(tmp_path) as store:
        assert everything(store) == offsets
        assert {record.topic for record in read_all(store, queue_id=1)} == {TOPIC}
        assert record_at(store, offsets[1][9]).topic == TOPIC
    assert f"restored the topic of the record at {offsets[1][9]}" in caplog.text


def test_a_record_of_quite_another_topic_is_not_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    offsets = filled(tmp_path)
    damage_topic(tmp_path, offsets[1][9], 0x1F)
    with open_small(tmp_path) as store:
        assert everything(store)[1] == offsets[1][:9] + offsets[1][10:]
        assert store.reader.damaged == 1
    assert f"skipped record at {offsets[1][9]} of {TOPIC} queue 1" in caplog.text


def test_after_a_crash_a_record_with_a_flipped_topic_stays_in_its_queue(tmp_path: Path) -> None:
    store = open_small(tmp_path)
    offsets = send(store, 12, size=100)
    store.flush()
    store.abandon()
    damage_topic(tmp_path, offsets[7], 1)
    damage_topic(tmp_path, offsets[11], 4)
    with open_small(tmp_path) as again:
        assert again.queues.names() == [TOPIC]
        assert offsets_of(read_all(again)) == offsets


NEIGHBOURS = ("TopicA", "TopicC", "TopicE")
"""Names that differ in one bit."""


def send_alternately(store: MessageStore, count: int) -> dict[str, list[int]]:
    """As many messages to each of the topics; where they lie in the log."""
    offsets: dict[str, list[int]] = {topic: [] for topic in NEIGHBOURS}
    for _ in range(count):
        for topic in NEIGHBOURS:
            offsets[topic] += send(store, topic=topic, size=100)
    return offsets


@pytest.mark.parametrize("at", [0, 4, 10])
@pytest.mark.parametrize("damage", [b"\0\0\0\0", None])
def test_a_lost_record_moves_none_behind_it_into_a_topic_of_nearly_the_same_name(
    tmp_path: Path, at: int, damage: bytes | None
) -> None:
    store = open_small(tmp_path)
    offsets = send_alternately(store, 12)
    store.flush()
    store.abandon()
    lost = offsets["TopicA"].pop(at)
    if damage is None:
        edit_log(tmp_path, lost + 12, b"\0\0\0\1")  # queue 1
    else:
        edit_log(tmp_path, lost + 4, damage)
    with open_small(tmp_path) as again:
        for topic in NEIGHBOURS:
            assert offsets_of(read_all(again, topic)) == offsets[topic]
        assert {record.topic for topic in NEIGHBOURS for record in read_all(again, topic)} == set(NEIGHBOURS)


@pytest.mark.parametrize("at", [3, 7, 10])
def test_after_a_crash_a_topic_flipped_into_another_one_is_restored(tmp_path: Path, at: int) -> None:
    store = open_small(tmp_path)
    for topic, ahead in zip(NEIGHBOURS, (0, 2, 5), strict=True):
        send(store, ahead, topic=topic)
    offsets = {topic: [record.physical_offset for record in read_all(store, topic)] for topic in NEIGHBOURS}
    for topic, more in send_alternately(store, 12).items():
        offsets[topic] += more
    store.flush()
    store.abandon()
    damage_topic_from(tmp_path, offsets["TopicC"][at], b"TopicC", b"TopicA")
    with open_small(tmp_path) as again:
        for topic in NEIGHBOURS:
            assert offsets_of(read_all(again, topic)) == offsets[topic]


def damage_topic_from(root: Path, offset: int, topic: bytes, other: bytes) -> None:
    path = root / "commitlog" / f"{offset // LOG_FILE * LOG_FILE:020d}"
    data = path.read_bytes()
    at = data.index(topic, offset % LOG_FILE)
    edit_log(root, offset // LOG_FILE * LOG_FILE + at, other)
