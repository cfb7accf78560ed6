"""Injected errors in background services: one failing record stops no service, and a full disk skips nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from faults.services.probes import Services, services
from orbitmq.broker import quarantine
from orbitmq.protocol.message.pop_receipt import pop_retry_topic
from support.broker.pop_harness import BACK_MS, bodies_of
from support.broker.requests import CONSUMERS, TOPIC, stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.store import StoredMessage

POISON = b"poison"
RETRY = pop_retry_topic(TOPIC, CONSUMERS, v2=False)


def break_poison(running: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every append of the poison body fail unexpectedly, and the native path always."""
    store = running.broker.store
    append, append_many = store.appender.append, store.appender.append_many

    def failing_append(message: StoredMessage, *, is_stored: bool = False) -> Any:
        if bytes(message.body) == POISON:
            raise RuntimeError("injected")
        return append(message, is_stored=is_stored)

    def failing_many(messages: Any) -> Any:
        if any(message.body == POISON for message in messages):
            raise RuntimeError("injected")
        return append_many(messages)

    def failing_native(*_: Any) -> Any:
        raise RuntimeError("injected")

    for name, function in (("append", failing_append), ("append_many", failing_many)):
        monkeypatch.setattr(store.appender, name, function)
        if name in vars(store):
            monkeypatch.setattr(store, name, function)
    monkeypatch.setattr(store.appender.native, "deliver_units", failing_native)
    assert running.broker.timer is not None
    if running.broker.timer._dequeue._fast_path is not None:
        monkeypatch.setattr(running.broker.timer._dequeue._fast_path, "_deliver", failing_native)


async def test_revive_skips_a_failing_message_and_redelivers_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with services() as running:
        for body in (b"one", POISON, b"two"):
            await running.popper.stores(body)
        assert len(await running.popper.gets()) == 3
        break_poison(running, monkeypatch)
        await running.run(BACK_MS + 10_000)
        assert [record.body for record in stored(running.broker, RETRY)] == [b"one", b"two"]
        assert running.skipped == {quarantine.REVIVE: 1}
        monkeypatch.undo()
        await running.probe()


@pytest.mark.parametrize(
    ("service", "waiting"),
    [(quarantine.TIMER, {"TIMER_DELAY_SEC": "3"}), (quarantine.SCHEDULE, {"DELAY": "1"})],
)
async def test_a_failing_deferred_message_is_skipped_and_the_others_are_delivered(
    monkeypatch: pytest.MonkeyPatch, service: str, waiting: dict[str, str]
) -> None:
    async with services() as running:
        for number, body in enumerate((b"one", POISON, b"two")):
            await running.popper.stores(body, properties={"UNIQ_KEY": f"K{number}", **waiting})
        break_poison(running, monkeypatch)
        for _ in range(10):
            await running.run(1000)
        assert [record.body for record in stored(running.broker)] == [b"one", b"two"]
        assert running.skipped == {service: 1}
        monkeypatch.undo()
        await running.probe()


async def test_a_failing_half_message_is_moved_aside_and_the_others_are_checked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with services() as running:
        for body in (b"one", POISON, b"two"):
            await running.producer.prepares(body, born=running.clock.now_ms())
        break_poison(running, monkeypatch)
        await running.run(10_000)
        assert await running.producer.questions() == 2
        assert running.skipped == {quarantine.TRANSACTIONS: 1}
        monkeypatch.undo()
        await running.probe()


@pytest.mark.parametrize(
    ("part", "fails"), [("_enqueue", "_enter"), ("_dequeue", "_deliver_oldest"), ("_dequeue", "_recall")]
)
async def test_a_timer_whose_step_fails_for_a_while_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, part: str, fails: str
) -> None:
    async with services() as running:
        timer = running.broker.timer
        assert timer is not None
        step = getattr(timer, part)
        works: Callable[..., Any] = getattr(step, fails)
        left = quarantine.MAX_ATTEMPTS - 1

        def failing(*args: Any) -> Any:
            nonlocal left
            if left:
                left -= 1
                raise RuntimeError("injected")
            return works(*args)

        monkeypatch.setattr(step, fails, failing)
        recall = str(running.clock.now_ms() + 3000)
        for number in range(5):
            properties = {"UNIQ_KEY": f"K{number}", "TIMER_DELIVER_MS": recall}
            if number == 4:
                properties |= {"UNIQ_KEY": "K2", "TIMER_DEL_UNIQKEY": "K2"}
            await running.popper.stores(b"%d" % number, properties=properties)
        await running.run(10_000)
        assert sorted(record.body for record in stored(running.broker)) == [b"0", b"1", b"3"]
        assert running.skipped == {}
        assert left == 0


async def test_services_retry_on_a_full_disk_and_skip_nothing() -> None:
    async with services() as running:
        await running.popper.stores(b"popped")
        assert bodies_of(await running.popper.gets()) == [b"popped"]
        await running.popper.stores(b"timed", properties={"UNIQ_KEY": "T", "TIMER_DELAY_SEC": "3"})
        await running.popper.stores(b"delayed", properties={"UNIQ_KEY": "D", "DELAY": "1"})
        await running.producer.prepares(b"half", born=running.clock.now_ms())
        gate = running.broker.store.appender.gate
        gate.close("disk", "the disk is full")
        for _ in range(quarantine.MAX_ATTEMPTS + 5):
            await running.run(10_000)
        assert running.skipped == {}
        assert await running.producer.questions() == 0
        gate.open("disk")
        running.broker.flow.update(0)  # as its timer does, which this loop may be too busy for
        await running.run(BACK_MS)
        assert sorted(record.body for record in stored(running.broker)) == [b"delayed", b"popped", b"timed"]
        assert [record.body for record in stored(running.broker, RETRY)] == [b"popped"]
        assert await running.producer.questions() == 1
        await running.probe()
