"""A store on a disk that is full or fails: what it refuses, what it keeps, and what it never claims."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from orbitmq.protocol.message.record import decode_record
from orbitmq.store import (
    AppendRefusedError,
    DiskFaultError,
    FlushFailedError,
    MessageStore,
    PutStatus,
    StoredMessage,
)
from orbitmq.store.message_store import INDEX_BATCH
from orbitmq.testing import MemoryDisk
from support.store.stores import LOG_FILE, SYNC, TOPIC, offsets_of, open_small, read_all, send

ROOMY: dict[str, Any] = {"max_index_num": 3000, "mapped_file_size_consume_queue": 8000}
"""Files in which the messages of a test all fit."""

FIRST_QUEUE_FILE = f"/store/consumequeue/{TOPIC}/0/{0:020d}"


@pytest.fixture
def disk() -> MemoryDisk:
    return MemoryDisk()


def send_until_refused(store: MessageStore, match: str, *, size: int = 0) -> list[int]:
    """Append messages with keys of their own until one is refused; returns the offsets of the others."""
    sent: list[int] = []
    with pytest.raises(AppendRefusedError, match=match):  # noqa: PT012
        while len(sent) < 2000:
            sent += send(store, size=size, UNIQ_KEY=f"u{len(sent)}")
    return sent


def found_by_key(store: MessageStore, number: int) -> list[int]:
    return [decode_record(record).physical_offset for record in store.query(TOPIC, f"u{number}").records]


def test_after_a_failed_flush_appends_and_flushes_are_refused(disk: MemoryDisk) -> None:
    store = open_small("/store", disk=disk, **SYNC)
    send(store, 2)
    store.flush()
    send(store)
    disk.fail("sync", path_contains="commitlog")
    with pytest.raises(FlushFailedError, match="check the disk, then restart"):
        store.flush()
    with pytest.raises(AppendRefusedError, match="the disk failed to store the log") as refused:
        store.append(StoredMessage(TOPIC, 0, b""))
    assert refused.value.status is PutStatus.SERVICE_NOT_AVAILABLE
    assert len(read_all(store)) == 2
    # A second sync succeeds, because the kernel has forgotten the pages: it proves nothing.
    with pytest.raises(FlushFailedError):
        store.flush()
    assert len(read_all(store)) == 2
    with pytest.raises(FlushFailedError):
        store.close()
    assert disk.stat("/store/abort") is not None
    with open_small("/store", disk=disk.power_cut(), **SYNC) as again:
        assert not again.recovery.clean
        assert len(read_all(again)) in {2, 3}


def test_queues_that_cannot_be_written_stop_appends_until_they_can(disk: MemoryDisk) -> None:
    store = open_small("/store", disk=disk, **ROOMY)
    disk.fail("pwrite", error=errno.ENOSPC, times=2, path_contains="consumequeue")
    sent = len(send_until_refused(store, "consume queues of consumequeue cannot be written"))
    send(store)
    assert len(read_all(store)) == sent + 1
    store.close()
    with open_small("/store", disk=disk, **ROOMY) as again:
        assert again.recovery.clean
        assert len(read_all(again)) == sent + 1


@pytest.mark.parametrize("closed_meanwhile", [False, True])
def test_an_index_that_cannot_be_written_lacks_nothing_once_it_can(
    disk: MemoryDisk, closed_meanwhile: bool
) -> None:
    store = open_small("/store", disk=disk, **ROOMY)
    disk.fail("create", error=errno.ENOSPC, times=3, path_contains="index")
    sent = send_until_refused(store, "index")
    if closed_meanwhile:
        disk.heal()
        store.close()
        store = open_small("/store", disk=disk, **ROOMY)
    while len(sent) < 2000:
        try:
            sent += send(store, UNIQ_KEY=f"u{len(sent)}")
        except AppendRefusedError:
            continue
    for number, offset in enumerate(sent):
        assert found_by_key(store, number) == [offset]
    store.close()


@pytest.mark.parametrize("closed_meanwhile", [False, True])
def test_an_index_that_fails_while_many_records_become_visible_lacks_nothing_later(
    disk: MemoryDisk, closed_meanwhile: bool
) -> None:
    """Queues that can be written meanwhile do not make the fault forgotten."""
    store = open_small("/store", disk=disk, **ROOMY, **SYNC)
    sent = [offset for number in range(1500) for offset in send(store, UNIQ_KEY=f"u{number}")]
    disk.fail("create", error=errno.ENOSPC, path_contains="index")
    store.flush()
    assert store.max_offset(TOPIC, 0) == 1500
    if closed_meanwhile:
        store.close()
        store = open_small("/store", disk=disk, **ROOMY, **SYNC)
        assert store.recovery.clean
    else:
        sent += send(store, UNIQ_KEY="u1500")
        store.flush()
    for number, offset in enumerate(sent):
        assert found_by_key(store, number) == [offset], number
    store.close()


def recovered_without_index(disk: MemoryDisk, count: int) -> tuple[MessageStore, MemoryDisk, list[int]]:
    """A store that a crash left with so many keyed messages, opened while no index file could be made.

    With it its disk, which is well again, and where the messages are.
    """
    store = open_small("/store", disk=disk, **ROOMY)
    sent = [offset for number in range(count) for offset in send(store, UNIQ_KEY=f"u{number}")]
    store.flush()
    left = disk.kill()
    left.fail("create", error=errno.ENOSPC, path_contains="index")
    store = open_small("/store", disk=left, **ROOMY)
    left.heal()
    return store, left, sent


# Records that recovery takes one by one wait for some more: few of them ask the disk for nothing yet.
@pytest.mark.parametrize("count", [10, INDEX_BATCH + 100])
def test_keys_that_the_index_refused_during_recovery_are_found_though_nothing_is_sent(
    disk: MemoryDisk, count: int
) -> None:
    store, _, sent = recovered_without_index(disk, count)
    for number, offset in enumerate(sent):
        assert found_by_key(store, number) == [offset]
    store.close()


def test_an_index_that_still_cannot_be_written_fails_no_query(disk: MemoryDisk) -> None:
    store, left, sent = recovered_without_index(disk, INDEX_BATCH + 100)
    left.fail("create", error=errno.ENOSPC, path_contains="index", times=3)
    assert [found_by_key(store, len(sent) - 1) for _ in range(2)] == [[], []]
    left.heal()
    for number, offset in enumerate(sent):
        assert found_by_key(store, number) == [offset]
    store.close()


def test_what_the_index_lacks_is_not_forgotten_while_the_log_cannot_be_read(disk: MemoryDisk) -> None:
    store, left, sent = recovered_without_index(disk, INDEX_BATCH + 100)
    store.log.files.close()
    left.fail("map", error=errno.EMFILE, path_contains="commitlog", after=2, times=2)
    with pytest.raises(AppendRefusedError, match="Too many open files"):
        send(store)
    left.heal()
    for number, offset in enumerate(sent):
        assert found_by_key(store, number) == [offset]
    store.close()


def test_what_a_failed_round_did_not_sync_is_synced_by_the_next(disk: MemoryDisk) -> None:
    store = open_small("/store", disk=disk)
    send(store, 5, UNIQ_KEY="u")
    store.flush()
    disk.fail("create", error=errno.ENOSPC, path_contains="index")
    with pytest.raises(DiskFaultError):
        store.sync_queues()
    store.sync_queues()
    assert disk.durable_bytes(FIRST_QUEUE_FILE) == disk.read(FIRST_QUEUE_FILE)
    assert any(disk.read(FIRST_QUEUE_FILE))
    store.close()


def test_a_failed_sync_of_queues_makes_the_next_start_distrust_them(disk: MemoryDisk) -> None:
    store = open_small("/store", disk=disk)
    offsets = send(store, 5)
    store.flush()
    checkpoint = store.checkpoint.logics_physical_offset
    disk.fail("sync", path_contains="consumequeue")
    with pytest.raises(OSError, match="/store/consumequeue"):
        store.sync_queues()
    store.sync_queues()
    assert store.checkpoint.logics_physical_offset == checkpoint
    store.close()
    with open_small("/store", disk=disk.power_cut()) as again:
        assert not again.recovery.clean
        assert offsets_of(read_all(again)) == offsets


def test_a_full_disk_refuses_messages_and_a_restart_finds_those_it_took() -> None:
    disk = MemoryDisk(capacity=20 * LOG_FILE)
    store = open_small("/store", disk=disk, message_index_enable=False)
    sent = send_until_refused(store, "is full|cannot be written", size=1000)
    assert sent
    store.abandon()
    disk.capacity = None
    with open_small("/store", disk=disk, message_index_enable=False) as again:
        assert offsets_of(read_all(again)) == sent


def test_a_read_only_disk_is_named_when_a_store_is_opened(disk: MemoryDisk) -> None:
    with open_small("/store", disk=disk) as store:
        send(store, 3)
    disk.read_only = True
    with pytest.raises(DiskFaultError, match="/store cannot be opened for writing"):
        open_small("/store", disk=disk)
    disk.heal()
    with open_small("/store", disk=disk) as store:
        assert len(read_all(store)) == 3
