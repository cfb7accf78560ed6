"""Injected errors in the services of a store: reput and retention go on behind what they cannot process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.store import StoredMessage
from orbitmq.store.dispatch import reput
from orbitmq.store.dispatch.native_reput import NativeReput
from orbitmq.testing import MemoryDisk
from support.store.running_store import ALWAYS, BUSY, IDLE, Running
from support.store.stores import SYNC, TOPIC, open_small, read_all, send
from support.store.watched_disk import inline, until

if TYPE_CHECKING:
    from orbitmq.store.commitlog.scanner import Seen

POISON = b"poison"


@pytest.mark.parametrize("is_native", [True, False])
async def test_reput_skips_a_failing_record_and_dispatches_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, is_native: bool
) -> None:
    store = open_small("/store", disk=MemoryDisk(), **{**BUSY, **SYNC})
    dispatch, attempts = store.dispatcher.dispatch_scanned, 0

    def failing(seen: Seen, *, to_index: bool = True) -> None:
        nonlocal attempts
        if POISON in bytes(store.log.slice(seen.offset, seen.size) or b""):
            attempts += 1
            raise RuntimeError("injected")
        dispatch(seen, to_index=to_index)

    def failing_native(*_: Any) -> Any:
        raise RuntimeError("injected")

    monkeypatch.setattr(store.dispatcher, "dispatch_scanned", failing)
    if is_native:
        monkeypatch.setattr(NativeReput, "take", failing_native)
    else:
        monkeypatch.setattr(NativeReput, "of", lambda *_, **__: None)
    running = Running()
    await running(store, inline)
    offsets = send(store, 2)
    poison = store.append(StoredMessage(TOPIC, 1, POISON)).offset
    offsets += send(store, 2)
    await until(lambda: store.max_offset(TOPIC, 0) == 4)
    assert [record.physical_offset for record in read_all(store)] == offsets
    assert (attempts, store.skipped_records) == (reput.MAX_ATTEMPTS, 1)
    assert f"reput: skipped the record at {poison} of b'{TOPIC}' queue 1 after 3 attempts" in caplog.text
    monkeypatch.undo()
    send(store)
    await until(lambda: store.max_offset(TOPIC, 0) == 5)
    await running.stop_all()


async def test_a_queue_that_cannot_follow_retention_keeps_no_other_queue(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_small("/store", disk=MemoryDisk(), **{**IDLE, **ALWAYS})
    for queue_id in (0, 1, 2):
        send(store, 6, queue_id=queue_id, size=1000)
    for queue_id in (0, 1, 2):
        send(store, 6, queue_id=queue_id, size=1000)
    store.flush()
    queue_type = type(store.queues.get(TOPIC, 1))
    expire = queue_type.expire

    def failing(queue: Any, start: int) -> int:
        if queue.queue_id == 1:
            raise RuntimeError("injected")
        return expire(queue, start)

    running = Running()
    service = await running(store, inline)
    service.retention.request()
    with monkeypatch.context() as patch:
        patch.setattr(queue_type, "expire", failing)
        with pytest.raises(RuntimeError):
            service.retention.run()
    assert store.log.start > 0
    assert [store.min_offset(TOPIC, queue_id) > 0 for queue_id in (0, 1, 2)] == [True, False, True]
    assert f"retention: queue {TOPIC}/1 skipped: injected" in caplog.text
    send(store, 9, size=1000)
    store.flush()
    service.retention.run()
    assert store.min_offset(TOPIC, 1) > 0
    await running.stop_all()
