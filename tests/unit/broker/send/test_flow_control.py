"""When a broker takes messages, and what it says when it does not."""

from __future__ import annotations

import asyncio
import time

import pytest

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.send.flow_control import SendFlow
from orbitmq.protocol.codes import ResponseCode
from orbitmq.store.retention.retention import Retention
from orbitmq.testing import ManualClock, MemoryDisk
from support.remoting_harness import eventually
from support.store.stores import T0, open_small, send


class Flow(SendFlow):
    """The flow of a small store, looked at when a test says so."""

    def __init__(self, disk: MemoryDisk | None = None, **settings: int) -> None:
        self.clock = ManualClock(T0)
        self.disk = disk or MemoryDisk()
        self.store = open_small("/store", disk=self.disk, clock=self.clock)
        self.config = BrokerConfig(**settings)  # type: ignore[arg-type]
        super().__init__(self.config, self.store, self.clock)

    @property
    def code(self) -> int | None:
        """The code that a message is refused with now."""
        return None if self.refusal is None else self.refusal[0]


@pytest.fixture
def flow() -> Flow:
    return Flow()


def test_sends_are_accepted_by_default(flow: Flow) -> None:
    assert flow.code is None
    flow.update(0)
    assert flow.code is None


def test_a_closed_gate_refuses_with_the_reason(flow: Flow) -> None:
    flow.store.appender.gate.close("disk", "the disk is 95% full: free space")
    flow.update(0)
    assert flow.refusal is not None
    code, remark = flow.refusal
    assert code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert remark.startswith("service not available now. It may be caused by one of the following reasons: the bro")
    assert remark.endswith("etc. (the disk is 95% full: free space)")
    flow.store.appender.gate.open("disk")
    flow.update(0)
    assert flow.code is None


def test_a_full_disk_refuses_until_there_is_room() -> None:
    disk = MemoryDisk(capacity=1 << 20)
    flow = Flow(disk)
    send(flow.store, 1)
    retention = Retention(flow.store)
    used = (1 << 20) - disk.space("/store").usable
    disk.capacity = int(used / 0.95)
    retention.run()
    flow.update(0)
    assert flow.refusal is not None
    assert flow.refusal[0] == 14
    assert "[CL:  0.9" in flow.refusal[1]
    disk.capacity = 1 << 20
    retention.run()
    flow.update(0)
    assert flow.code is None


def test_another_reason_is_in_the_refusal_as_soon_as_it_applies(flow: Flow) -> None:
    flow.store.appender.gate.close("disk", "one")
    flow.update(0)
    flow.store.appender.gate.close("flush", "two")
    flow.store.appender.gate.open("disk")
    flow.update(0)
    assert flow.refusal is not None
    assert flow.refusal[1].endswith("(two)")


def test_a_disk_that_does_not_say_how_full_it_is_still_has_a_reason(flow: Flow) -> None:
    flow.disk.fail("space", times=3)
    assert "CL: -1.00 CQ: -1.00 INDEX: -1.00" in flow.unavailable("why")


def test_a_lagging_event_loop_refuses_sends_until_it_has_caught_up(flow: Flow) -> None:
    limit = flow.store.config.os_page_cache_busy_time_out_mills
    flow.update(limit)
    assert flow.code is None
    flow.update(limit + 1)
    assert flow.lag_ms == limit + 1
    assert flow.refusal == (
        ResponseCode.SYSTEM_BUSY,
        "[REJECTREQUEST]system busy, start flow control for a while",
    )
    flow.update(3)
    assert flow.code is None
    assert flow.lag_ms == 3


def test_a_lagging_event_loop_takes_precedence_over_the_gate(flow: Flow) -> None:
    flow.store.appender.gate.close("disk", "full")
    flow.update(5000)
    assert flow.code == ResponseCode.SYSTEM_BUSY
    flow.update(0)
    assert flow.code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_sends_are_refused_before_the_configured_start_time() -> None:
    flow = Flow(start_accept_send_request_time_stamp=T0 + 1500)
    flow.update(0)
    local = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(T0 // 1000 + 1))
    assert flow.refusal == (ResponseCode.SYSTEM_ERROR, f"broker unable to service, until {local},500")
    flow.clock.advance(1500)
    flow.update(0)
    assert flow.code is None
    flow.config.start_accept_send_request_time_stamp = T0 + 10_000
    flow.update(0)
    assert flow.refusal is not None


async def test_it_looks_by_itself_while_it_runs(flow: Flow) -> None:
    flow.store.appender.gate.close("disk", "full")
    flow.start()
    assert flow.refusal is not None
    flow.store.appender.gate.open("disk")
    await eventually(lambda: flow.refusal is None)
    flow.stop()
    flow.stop()
    flow.store.appender.gate.close("disk", "full")
    await asyncio.sleep(0)
    assert flow.code is None


async def test_a_loop_that_was_held_up_is_noticed(flow: Flow) -> None:
    flow.store.config.os_page_cache_busy_time_out_mills = 10
    flow.start()
    loop = asyncio.get_running_loop()
    seen: list[tuple[int, str]] = []

    def hold_up() -> None:
        end = time.monotonic() + 0.3
        while time.monotonic() < end:
            pass
        loop.call_soon(watch)

    def watch() -> None:
        if flow.refusal is not None:
            seen.append(flow.refusal)
        loop.call_later(0.001, watch)

    loop.call_soon(hold_up)
    await eventually(lambda: seen)
    assert seen[0][0] == ResponseCode.SYSTEM_BUSY
    await eventually(lambda: flow.refusal is None)
    flow.stop()


def test_a_refusal_is_logged_once_with_its_reason_and_its_end(flow: Flow, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "orbitmq.broker")
    flow.store.appender.gate.close("disk", "the disk is 91% full: free space")
    for _ in range(3):
        flow.update(0)
    flow.store.appender.gate.open("disk")
    flow.update(0)
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert caplog.messages[0].startswith("send: refused: ")
    assert "91% full" in caplog.messages[0]
    assert caplog.messages[1] == "send: accepted again"
