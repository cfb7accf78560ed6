"""GET_BROKER_RUNTIME_INFO: the table of runtime figures."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast

import pytest

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.config.loader import BrokerSettings
from orbitmq.broker.config.persistence import ConfigWriter
from orbitmq.broker.schedule.service import ScheduleService
from orbitmq.broker.send.flow_control import SendFlow
from orbitmq.broker.stats.counters import BrokerStats
from orbitmq.broker.stats.runtime_info import RuntimeInfo
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.message.properties import encode
from orbitmq.store import FlushFailedError, StoredMessage
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.runtimes import runtime_of
from support.store.stores import T0, open_small, send
from support.wire_captures import captured

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = "/store"
TOPIC = "TopicA"


class Informed:
    """The sources of the figures."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock(T0)
        self.disk = MemoryDisk(capacity=252 << 30)
        self.store = open_small(ROOT, disk=self.disk, clock=self.clock, **settings)
        self.settings = BrokerSettings(BrokerConfig(), self.store.config)
        self.stats = BrokerStats(self.clock, "DefaultCluster")
        self.flow = SendFlow(self.settings.broker, self.store, self.clock)
        writer = ConfigWriter(self.disk, f"{ROOT}/config", self._run)
        self.schedule = ScheduleService(
            runtime_of(self.store, writer, self.stats, config=self.settings.broker, flushed=self._flushed)
        )
        self.schedule.load()
        self.info = RuntimeInfo(self.settings, self.store, self.stats, self.schedule, None, self.flow, self.clock)

    async def _run(self, work: Callable[[], Any]) -> Any:
        return work()

    async def _flushed(self, _: int) -> None:
        raise FlushFailedError("nothing is flushed here")

    def __getitem__(self, key: str) -> str:
        return self.info.table()[key]


@pytest.fixture
def informed() -> Informed:
    return Informed()


THEIRS = next(
    json.loads(frame.frame[2])["table"]
    for frame in captured("admin")
    if frame.request_code == RequestCode.GET_BROKER_RUNTIME_INFO
)


def generic(name: str) -> str:
    return (
        name.partition("_")[0] + "_" if name.startswith(("scheduleMessageOffset_", "commitLogDiskRatio_")) else name
    )


def park(informed: Informed, level: int) -> None:
    parked = informed.schedule.defer(encode({"DELAY": str(level)}), TOPIC, 0)
    assert parked is not None
    informed.store.append(StoredMessage(parked[0], parked[1], b"body", parked[2]))


def test_the_names_are_those_of_apache(informed: Informed) -> None:
    send(informed.store)
    park(informed, 1)
    answer = informed.info.answer(Command(RequestCode.GET_BROKER_RUNTIME_INFO, 7), cast("Any", None))
    assert (answer.code, answer.opaque) == (ResponseCode.SUCCESS, 7)
    assert answer.body is not None
    ours = json.loads(answer.body)["table"]
    assert {generic(name) for name in ours} == {generic(name) for name in THEIRS}
    assert all(isinstance(value, str) for value in ours.values())
    assert informed.info.handlers.keys() == {RequestCode.GET_BROKER_RUNTIME_INFO}


def test_the_values_are_formatted_as_by_apache(informed: Informed) -> None:
    send(informed.store)
    for second in range(601):
        informed.stats.put(TOPIC, 0, 1, 311)
        informed.stats.got("CG_a", TOPIC, 0, 3, 900)
        informed.stats.missed_get()
        informed.clock.advance(997 + second % 7)
        informed.stats.sample_rates()
    ours = informed.info.table()
    for name, value in THEIRS.items():
        if name in ours:
            assert shape(ours[name]) == shape(value), name
    same = [name for name in THEIRS if re.search("ThreadPool|EndTrans|timer|Version", name)]
    assert {name: ours[name] for name in same} == {name: THEIRS[name] for name in same}


def shape(value: str) -> str:
    """A value with its digits replaced; a plain zero may stand for a decimal number."""
    return re.sub(r"\d+(\.\d+)?(E-?\d+)?", lambda found: "1.1" if "." in found[0] else "1", value)


def test_a_new_broker_has_no_rates_yet(informed: Informed) -> None:
    table = informed.info.table()
    assert table["putTps"] == table["getFoundTps"] == table["getMissTps"] == table["getTransferredTps"] == "  "
    assert table["getTotalTps"] == "0.0 0.0 0.0"
    assert table["putMessageDistributeTime"] == "null"
    assert (table["putMessageTimesTotal"], table["putMessageAverageSize"]) == ("1", "0.0")
    assert table["earliestMessageTimeStamp"] == "-1"
    assert (table["commitLogMinOffset"], table["commitLogMaxOffset"]) == ("-1", "0")
    assert table["putLatency99"] == table["putLatency999"] == "1.00"


def test_runtime_info_has_put_and_get_counts(informed: Informed) -> None:
    informed.stats.put(TOPIC, 0, 3, 1000)
    informed.stats.put("SCHEDULE_TOPIC_XXXX", 0, 1, 1)
    informed.stats.got("CG_a", TOPIC, 0, 2, 700)
    informed.stats.put_failed()
    informed.stats.put_took(358)
    informed.stats.get_took(221)
    assert informed["putMessageTimesTotal"] == "4"
    assert informed["putMessageSizeTotal"] == "1001"
    assert informed["putMessageAverageSize"] == "250.25"
    assert informed["putMessageFailedTimes"] == "1"
    assert informed["putMessageEntireTimeMax"] == "358"
    assert informed["getMessageEntireTimeMax"] == "221"
    assert (informed["msgPutTotalTodayNow"], informed["msgGetTotalTodayNow"]) == ("3", "2")
    assert (informed["msgPutTotalTodayMorning"], informed["msgGetTotalYesterdayMorning"]) == ("0", "0")


def test_runtime_info_has_the_uptime(informed: Informed) -> None:
    assert informed["runtime"] == "[ 0 days, 0 hours, 0 minutes, 0 seconds ]"
    informed.clock.advance(((1234 * 24 + 5) * 60 + 6) * 60_000 + 7_999)
    assert informed["runtime"] == "[ 1,234 days, 5 hours, 6 minutes, 7 seconds ]"
    assert informed["bootTimestamp"] == str(T0)


def test_runtime_info_has_log_offsets_and_unflushed_bytes(informed: Informed) -> None:
    send(informed.store, 20)
    end = informed.store.log.end
    assert informed["commitLogMaxOffset"] == str(end)
    assert informed["remainHowManyDataToFlush"] == f"{end / 1024:.1f} KiB"
    assert informed["earliestMessageTimeStamp"] == str(T0)
    informed.store.flush()
    assert informed["remainHowManyDataToFlush"] == "0 B"
    assert informed["dispatchBehindBytes"] == "0"
    assert "remainHowManyDataToCommit" not in informed.info.table()


def test_runtime_info_has_the_uncommitted_bytes_of_a_transient_pool() -> None:
    informed = Informed(transient_store_pool_enable=True)
    send(informed.store, 1, size=500)
    size = informed.store.log.end
    assert informed["remainHowManyDataToCommit"] == f"{size} B"
    assert informed["remainTransientStoreBufferNumbs"] == "4"
    informed.store.log.commit()
    assert informed["remainHowManyDataToCommit"] == "0 B"
    assert informed["remainTransientStoreBufferNumbs"] == "5"
    assert informed["dispatchBehindBytes"] == str(size)
    informed.store.catch_up()
    assert informed["dispatchBehindBytes"] == "0"


def test_runtime_info_has_disk_usage() -> None:
    informed = Informed(store_path_commit_log="/a/commitlog,/b/commitlog")
    assert informed["commitLogDiskRatio"] == informed["consumeQueueDiskRatio"] == "0.01"
    assert informed["commitLogDiskRatio_/a/commitlog"] == informed["commitLogDiskRatio_/b/commitlog"] == "0.01"
    assert re.fullmatch(r"Total : 252\.0 GiB, Free : 25[12]\.\d GiB\.", informed["commitLogDirCapacity"])
    informed.disk.fail("space", times=4)
    table = informed.info.table()
    assert table["commitLogDiskRatio"] == table["consumeQueueDiskRatio"] == "-1.0"
    assert "commitLogDirCapacity" not in table


def test_runtime_info_has_the_offsets_of_delay_levels(informed: Informed) -> None:
    park(informed, 1)
    park(informed, 18)
    informed.clock.advance(1000)
    informed.schedule.deliver_due()
    table = informed.info.table()
    assert {name: value for name, value in table.items() if name.startswith("scheduleMessageOffset_")} == {
        "scheduleMessageOffset_1": "1,1",
        "scheduleMessageOffset_18": "0,1",
    }


def test_runtime_info_has_the_lag_of_the_event_loop(informed: Informed) -> None:
    informed.flow.update(1234)
    assert informed["pageCacheLockTimeMills"] == "1234"
    informed.settings.broker.start_accept_send_request_time_stamp = T0
    assert informed["startAcceptSendRequestTimeStamp"] == str(T0)
    assert informed["brokerActive"] == "true"
    informed.store.close()
    assert informed["brokerActive"] == "false"
