"""The files under ``config/``: what each holds, how it is read, how it is replaced without ever being lost.

A table is replaced as a whole. The new contents are first written and synced under another name; then the old file
becomes ``.bak`` and the new one takes its place. So at every moment, and after a crash at any moment, the file or
its ``.bak`` is complete, and a disk that is full refuses before anything was touched. RocketMQ moves the old file
away before it writes the new one; what lies on the disk afterwards is the same.

Reading takes the file, or its ``.bak`` if the file is missing, empty or unreadable. In the last two cases the
file is removed, as RocketMQ does, because the next replacement would otherwise make it the ``.bak``; but only
after the ``.bak`` was read, so the last copy that could be read, or repaired, stays. With neither file there the
table is new. A file that cannot be read and has no readable ``.bak`` is a ``StoreDamagedError`` and nothing is
touched.
"""

import dataclasses
import os
from dataclasses import field
from typing import Any, ClassVar, Generic, TypeVar

from orbitmq.protocol.bodies import (
    Body,
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    LmqConsumerOffsetSerializeWrapper,
    MessageRequestModeSerializeWrapper,
    SubscriptionGroupWrapper,
    TimerMetricsSerializeWrapper,
    TopicConfigSerializeWrapper,
    TopicQueueMappingSerializeWrapper,
    TransactionMetricsSerializeWrapper,
)
from orbitmq.protocol.bodies.codec import java
from orbitmq.protocol.errors import ProtocolError
from orbitmq.store.disk import Disk
from orbitmq.store.errors import DiskFaultError, StoreDamagedError

BodyT = TypeVar("BodyT", bound=Body)


@dataclasses.dataclass(frozen=True, slots=True)
class ConfigFile(Generic[BodyT]):
    """One file of the ``config`` directory and the table it holds."""

    name: str
    shape: type[BodyT]
    pretty: bool = True
    """Tables are pretty; the two metrics files are compact and standard JSON."""

    def load(self, disk: Disk, directory: str, *, read_only: bool = False) -> BodyT:
        """Read the table; with ``read_only`` a useless file is passed over but not removed."""
        path = os.path.join(directory, self.name)
        try:
            table, complaint = self._read(disk, path)
            if table is not None:
                return table
            backup, backup_complaint = self._read(disk, path + ".bak")
            if backup is not None:
                if not read_only and disk.stat(path) is not None:
                    disk.remove(path)
                    disk.sync_dir(directory)
                return backup
        except OSError as error:
            raise DiskFaultError(f"cannot read {path}: {error}") from error
        damage = backup_complaint or complaint
        if damage is not None:
            raise StoreDamagedError(
                f"{path} cannot be read and neither can a .bak beside it ({damage});"
                " restore one of them, or remove both to start with an empty table"
            )
        return self.shape()

    def persist(self, disk: Disk, directory: str, table: BodyT) -> None:
        """Replace the table. When this returns, it is durable."""
        self.replace(disk, directory, self.encode(table))

    def replace(self, disk: Disk, directory: str, data: bytes) -> None:
        """``persist`` for a table that was encoded before, which is all that has to happen where it may change."""
        path = os.path.join(directory, self.name)
        try:
            disk.write(path + ".tmp", data)
            disk.sync(path + ".tmp")
            present = disk.stat(path)
            # An empty file is none: it must not push a .bak out that holds something.
            if present is not None and present.size > 0:
                disk.rename(path, path + ".bak")
            disk.rename(path + ".tmp", path)
            disk.sync_dir(directory)
        except OSError as error:
            raise DiskFaultError(f"cannot write {path}: {error}") from error

    def encode(self, table: BodyT) -> bytes:
        """The bytes of the file."""
        return table.encode(pretty=self.pretty, browser_compatible=not self.pretty)

    def _read(self, disk: Disk, path: str) -> tuple[BodyT | None, str | None]:
        """The table, or what is wrong with the file; neither if it is missing or empty."""
        found = disk.stat(path)
        if found is None or found.size == 0:
            return None, None
        try:
            return self.shape.decode(disk.read(path)), None
        except ProtocolError as error:
            return None, f"{os.path.basename(path)}: {error}"


# --- tables that are only ever kept on disk ---


@dataclasses.dataclass(slots=True)
class BloomFilterData(Body):
    """The bits of a group in the Bloom filter of its topic."""

    bit_pos: tuple[int, ...] | None = None
    bit_num: int = 0


@dataclasses.dataclass(slots=True)
class ConsumerFilterData(Body):
    """A group's expression for a topic; dead since ``dead_time`` if that is not before ``born_time``."""

    consumer_group: str = ""
    topic: str = ""
    expression: str | None = None
    expression_type: str | None = None
    born_time: int = 0
    dead_time: int = 0
    bloom_filter_data: BloomFilterData | None = None
    client_version: int = 0

    DERIVED: ClassVar[dict[str, str]] = {"dead": "dead"}

    @property
    def dead(self) -> bool:
        return self.dead_time >= self.born_time


@dataclasses.dataclass(slots=True)
class FilterDataMapByTopic(Body):
    """The expressions of all groups for a topic."""

    group_filter_data: dict[str, ConsumerFilterData] = field(default_factory=dict)
    topic: str = ""


@dataclasses.dataclass(slots=True)
class ConsumerFilterTable(Body):
    """All expressions that are not plain tags, by topic."""

    filter_data_by_topic: dict[str, FilterDataMapByTopic] = field(default_factory=dict)


@dataclasses.dataclass(slots=True)
class OrderInfo(Body):
    """What an orderly pop of a queue has handed out: the first offset, then the distance of each further one."""

    pop_time: int = 0
    invisible_time: int | None = field(default=None, metadata=java("i", "invisibleTime"))
    offset_list: tuple[int, ...] | None = field(default=None, metadata=java("o", "offsetList"))
    offset_next_visible_time: dict[int, int] | None = field(
        default=None, metadata=java("ot", "offsetNextVisibleTime")
    )
    offset_consumed_count: dict[int, int] | None = field(default=None, metadata=java("oc", "offsetConsumedCount"))
    last_consume_timestamp: int = field(default=0, metadata=java("l", "lastConsumeTimestamp"))
    commit_offset_bit: int = field(default=0, metadata=java("cm", "commitOffsetBit"))
    attempt_id: str | None = field(default=None, metadata=java("a", "attemptId"))


@dataclasses.dataclass(slots=True)
class ConsumerOrderInfoTable(Body):
    """Orderly pops by ``topic@group`` and queue id."""

    table: dict[str, dict[int, OrderInfo]] = field(default_factory=dict)

    DERIVED: ClassVar[dict[str, str]] = {
        "orderInfoCount": "order_info_count",
        "orderedConsumptionLevel": "ordered_consumption_level",
    }

    @property
    def order_info_count(self) -> int:
        return len(self.table)

    @property
    def ordered_consumption_level(self) -> str:
        return "QUEUE"


TOPICS = ConfigFile("topics.json", TopicConfigSerializeWrapper)
SUBSCRIPTION_GROUPS = ConfigFile("subscriptionGroup.json", SubscriptionGroupWrapper)
CONSUMER_OFFSETS = ConfigFile("consumerOffset.json", ConsumerOffsetSerializeWrapper)
LMQ_CONSUMER_OFFSETS = ConfigFile("lmqConsumerOffset.json", LmqConsumerOffsetSerializeWrapper)
DELAY_OFFSETS = ConfigFile("delayOffset.json", DelayOffsetSerializeWrapper)
CONSUMER_FILTERS = ConfigFile("consumerFilter.json", ConsumerFilterTable)
CONSUMER_ORDER_INFO = ConfigFile("consumerOrderInfo.json", ConsumerOrderInfoTable)
MESSAGE_REQUEST_MODES = ConfigFile("messageRequestMode.json", MessageRequestModeSerializeWrapper)
TOPIC_QUEUE_MAPPINGS = ConfigFile("topicQueueMapping.json", TopicQueueMappingSerializeWrapper)
TIMER_METRICS = ConfigFile("timermetrics", TimerMetricsSerializeWrapper, pretty=False)
TRANSACTION_METRICS = ConfigFile("transactionMetrics", TransactionMetricsSerializeWrapper, pretty=False)

ALL: tuple[ConfigFile[Any], ...] = (
    TOPICS,
    SUBSCRIPTION_GROUPS,
    CONSUMER_OFFSETS,
    LMQ_CONSUMER_OFFSETS,
    DELAY_OFFSETS,
    CONSUMER_FILTERS,
    CONSUMER_ORDER_INFO,
    MESSAGE_REQUEST_MODES,
    TOPIC_QUEUE_MAPPINGS,
    TIMER_METRICS,
    TRANSACTION_METRICS,
)
