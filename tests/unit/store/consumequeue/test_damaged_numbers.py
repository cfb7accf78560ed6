"""No CRC covers a record's queue offset: a bit that flips there costs that record, never its neighbours."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.message.batch import encode_batch
from orbitmq.protocol.message.properties import encode
from orbitmq.store import StoredMessage
from support.store.stores import TOPIC, edit_log, open_small, read_all, send

if TYPE_CHECKING:
    from pathlib import Path

QUEUE_OFFSET_AT = 20
DAMAGED = 12
"""Number of the record that is damaged."""


def damage(root: Path, offset: int, number: int) -> None:
    """Write another queue offset into the record at a physical offset, and let the queues be built again."""
    edit_log(root, offset + QUEUE_OFFSET_AT, number.to_bytes(8, "big", signed=True))
    for folder in ("consumequeue", "batchconsumequeue", "index"):
        shutil.rmtree(root / folder, ignore_errors=True)


@pytest.mark.parametrize("number", [-(1 << 63), -1, 1, 4, 13, 14, 28, 44, 1 << 20, 1 << 40, 1 << 62])
def test_a_damaged_queue_offset_costs_its_record_only(number: int, tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 30)
    damage(tmp_path, offsets[DAMAGED], number)
    with open_small(tmp_path) as store:
        assert (store.min_offset(TOPIC, 0), store.max_offset(TOPIC, 0)) == (0, 30)
        found = [record.physical_offset for record in read_all(store)]
        assert found == offsets[:DAMAGED] + offsets[DAMAGED + 1 :]
        assert store.append(StoredMessage(TOPIC, 0, b"next")).queue_offset == 30


@pytest.mark.parametrize("number", [5, 1 << 40])
def test_a_damaged_first_record_does_not_hide_the_others(number: int, tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 30)
    damage(tmp_path, offsets[0], number)
    with open_small(tmp_path) as store:
        assert (store.min_offset(TOPIC, 0), store.max_offset(TOPIC, 0)) == (1, 30)
        assert [record.physical_offset for record in read_all(store)] == offsets[1:]


@pytest.mark.parametrize("number", [-(1 << 63), 1, 2, 3, 5, 6, 9, 10, 1 << 40])
def test_a_damaged_offset_in_a_batch_queue_costs_its_record_only(number: int, tmp_path: Path) -> None:
    batch = encode_batch([(0, b"one", b""), (0, b"two", b"")])
    with open_small(tmp_path, batch_topics=["TopicB"]) as store:
        offsets = [
            store.append_inner_batch(StoredMessage("TopicB", 0, batch, encode({"UNIQ_KEY": f"id{number}"}))).offset
            for number in range(6)
        ]
    damage(tmp_path, offsets[2], number)
    with open_small(tmp_path, batch_topics=["TopicB"]) as store:
        assert (store.min_offset("TopicB", 0), store.max_offset("TopicB", 0)) == (0, 12)
        found = [record.physical_offset for record in read_all(store, "TopicB")]
        assert found == offsets[:2] + offsets[3:]
