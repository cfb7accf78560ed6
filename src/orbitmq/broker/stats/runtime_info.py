"""GET_BROKER_RUNTIME_INFO: the table of runtime figures that tools show.

All values are text, formatted as RocketMQ does. There are no thread pools here: their queues are always empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.stats.samples import total_text
from orbitmq.protocol.bodies import KVTable
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.fastjson import java_double
from orbitmq.protocol.names import SCHEDULE_TOPIC
from orbitmq.protocol.versions import CURRENT_VERSION, version_name
from orbitmq.remoting.processor import handler_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.config.loader import BrokerSettings
    from orbitmq.broker.schedule.service import ScheduleService
    from orbitmq.broker.send.flow_control import SendFlow
    from orbitmq.broker.stats.counters import BrokerStats
    from orbitmq.broker.timer.service import TimerService
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, Handler
    from orbitmq.store import Clock, MessageStore

NO_POOL = 2**31 - 1
"""Free buffers of a transient store pool that is not used."""

TIMER_BOUNDS = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)
"""Upper bounds in seconds of the delay ranges in which deferred messages are counted."""

NOTABLE_LAG_MS = 100


class RuntimeInfo:
    """Collects the figures on request."""

    def __init__(
        self,
        settings: BrokerSettings,
        store: MessageStore,
        stats: BrokerStats,
        schedule: ScheduleService,
        timer: TimerService | None,
        flow: SendFlow,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._store = store
        self._stats = stats
        self._schedule = schedule
        self._timer = timer
        self._flow = flow
        self._clock = clock
        self._booted = clock.now_ms()
        self.of_replicas: Callable[[], dict[str, str]] = dict
        """Figures of slaves and of the master."""

    @property
    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.GET_BROKER_RUNTIME_INFO: handler_of(self.answer)}

    def answer(self, request: Command, _: Connection) -> Command:
        return request.response(ResponseCode.SUCCESS, body=KVTable(self.table()).encode())

    def _skipped(self) -> dict[str, str]:
        """Records that background services skipped, for those that did."""
        figures = self._stats.quarantine.figures()
        if self._store.skipped_records:
            figures["quarantined_reput"] = str(self._store.skipped_records)
        return figures

    def table(self) -> dict[str, str]:
        """All figures by name."""
        return (
            self._counted()
            | self._messages_by_day()
            | self._log_and_disks()
            | self._delayed()
            | self._empty_queues()
            | self._skipped()
            | self.of_replicas()
            | {
                "brokerActive": "true" if self._store.is_open else "false",
                "brokerVersionDesc": version_name(CURRENT_VERSION),
                "bootTimestamp": str(self._booted),
                "runtime": _spent(self._clock.now_ms() - self._booted),
                # A timer is always slightly late; operators watch for a blocked event loop.
                "pageCacheLockTimeMills": str(self._flow.lag_ms if self._flow.lag_ms >= NOTABLE_LAG_MS else 0),
                "startAcceptSendRequestTimeStamp": str(self._settings.broker.start_accept_send_request_time_stamp),
            }
        )

    def _counted(self) -> dict[str, str]:
        stats = self._stats
        puts = max(stats.puts.nums, 1)  # RocketMQ's total is at least one
        return {
            "putMessageTimesTotal": str(puts),
            "putMessageFailedTimes": str(stats.failed_puts),
            "putMessageSizeTotal": str(stats.puts.size),
            "putMessageAverageSize": java_double(stats.puts.size / puts),
            "putMessageDistributeTime": stats.put_times.distribution(),
            "putMessageEntireTimeMax": str(stats.put_times.longest_ms),
            "putLatency99": f"{stats.put_times.percentile(0.99):.2f}",
            "putLatency999": f"{stats.put_times.percentile(0.999):.2f}",
            "getMessageEntireTimeMax": str(stats.longest_get_ms),
            "putTps": stats.put_rate.text(),
            "getFoundTps": stats.found_rate.text(),
            "getMissTps": stats.miss_rate.text(),
            "getTotalTps": total_text(stats.found_rate, stats.miss_rate),
            "getTransferredTps": stats.transfer_rate.text(),
        }

    def _messages_by_day(self) -> dict[str, str]:
        stats = self._stats
        figures = {}
        for what, mornings, now in (
            ("msgPut", stats.put_mornings, stats.user_puts),
            ("msgGet", stats.get_mornings, stats.user_gets),
        ):
            figures[f"{what}TotalYesterdayMorning"] = str(mornings[0])
            figures[f"{what}TotalTodayMorning"] = str(mornings[1])
            figures[f"{what}TotalTodayNow"] = str(now)
        return figures

    def _log_and_disks(self) -> dict[str, str]:
        store, config = self._store, self._store.config
        log = store.log
        ratios = {path: self._used(path) for path in config.commit_log_dirs}
        earliest = store.reader.store_timestamp(log.start)
        figures = {
            "commitLogMinOffset": str(log.start if len(log.files) else -1),
            "commitLogMaxOffset": str(log.end),
            "commitLogDiskRatio": java_double(min(ratios.values())),
            "consumeQueueDiskRatio": java_double(self._used(config.path("consumequeue"))),
            "dispatchBehindBytes": str(max(log.committed - store.dispatcher.position, 0)),
            "dispatchMaxBuffer": "0",
            "earliestMessageTimeStamp": str(-1 if earliest is None else earliest),
            "remainHowManyDataToFlush": _readable(max(log.committed - log.flushed, 0)),
            "remainTransientStoreBufferNumbs": str(NO_POOL),
        }
        if config.transient_store_pool_enable:
            figures["remainHowManyDataToCommit"] = _readable(log.end - log.committed)
            held = -(-(log.end - log.committed) // log.file_size)
            figures["remainTransientStoreBufferNumbs"] = str(max(config.transient_store_pool_size - held, 0))
        for path, ratio in ratios.items():
            figures[f"commitLogDiskRatio_{path}"] = java_double(ratio)
        try:
            space = store.disk.space(config.store_path_root_dir)
        except OSError:
            return figures
        free = space.total - space.used
        figures["commitLogDirCapacity"] = f"Total : {_readable(space.total)}, Free : {_readable(free)}."
        return figures

    def _used(self, path: str) -> float:
        try:
            return self._store.disk.space(path).ratio
        except OSError:
            return -1.0

    def _delayed(self) -> dict[str, str]:
        offsets = self._schedule.offsets
        figures = {
            f"scheduleMessageOffset_{level}": f"{offset},{self._store.max_offset(SCHEDULE_TOPIC, level - 1)}"
            for level, offset in offsets.items()
        }
        timer = self._timer
        entered, delivered = (0.0, 0.0) if timer is None else timer.rates.per_second()
        return figures | {
            "timerReadBehind": str(0 if timer is None else timer.behind_ms // 1000),
            "timerOffsetBehind": str(0 if timer is None else timer.behind_messages),
            "timerCongestNum": str(0 if timer is None else timer.waiting),
            "timerEnqueueTps": java_double(entered),
            "timerDequeueTps": java_double(delivered),
            **({} if timer is None or not timer.waiting else {"timerMessageSnapshot": self._due_within(timer)}),
        }

    def _due_within(self, timer: TimerService) -> str:
        """Number of messages due within the next seconds, minutes and hours.

        Apache's broker exports it to Prometheus only, as ``rocketmq_timer_message_snapshot``; here it is formatted
        like put times.
        """
        now = self._clock.now_ms()
        counts = timer.files.wheel.waiting_until(now, [now + bound * 1000 for bound in TIMER_BOUNDS])
        return " ".join(f"[{bound}]:{count}" for bound, count in zip(TIMER_BOUNDS, counts, strict=True))

    def _empty_queues(self) -> dict[str, str]:
        config = self._settings.broker
        figures = {
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": str(config.end_transaction_pool_queue_capacity),
        }
        for name, capacity in (
            ("send", config.send_thread_pool_queue_capacity),
            ("pull", config.pull_thread_pool_queue_capacity),
            ("litePull", config.lite_pull_thread_pool_queue_capacity),
            ("query", config.query_thread_pool_queue_capacity),
            ("ack", config.ack_thread_pool_queue_capacity),
        ):
            figures[f"{name}ThreadPoolQueueSize"] = "0"
            figures[f"{name}ThreadPoolQueueCapacity"] = str(capacity)
            figures[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        return figures


def _spent(ms: int) -> str:
    days, rest = divmod(max(ms, 0), 86_400_000)
    hours, rest = divmod(rest, 3_600_000)
    minutes, rest = divmod(rest, 60_000)
    return f"[ {days:,} days, {hours} hours, {minutes} minutes, {rest // 1000} seconds ]"


def _readable(size: int) -> str:
    if size < 1024:
        return f"{size} B"
    exponent = min((size.bit_length() - 1) // 10, 6)
    return f"{size / 1024**exponent:.1f} {'KMGTPE'[exponent - 1]}iB"
