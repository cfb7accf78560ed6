"""The options of a reader of topics, checked and typed."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING

from orbitmq.client.config import name_server_list
from orbitmq.client.errors import InvalidMessageError
from orbitmq.client.validation import check_group, check_topic
from orbitmq.filter import SQL92, TAG, FilterError, compile_sql, parse_tags
from orbitmq.spark.body.decoder import BODY_OPTIONS, FORMATS, MODES
from orbitmq.spark.errors import OptionError
from orbitmq.spark.schema.columns import column_names
from orbitmq.spark.topic_source.offset_bounds import (
    Moment,
    PerQueue,
    QueueEdge,
    json_object,
    milliseconds,
    moment_of,
)
from orbitmq.spark.topic_source.option_parser import OptionReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.spark.topic_source.offset_bounds import Where

READING = (
    "nameserver", "subscribe", "subscribePattern", "assign", "topic",
    "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy",
    "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition",
    "failOnDataLoss", "groupId", "includeProperties", "columns", "tags", "sql92", "keys",
    "retrySeconds", "pollMillis", "pushFilters", *BODY_OPTIONS,
)  # fmt: skip
ENDING = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
TRIGGERS = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")

IGNORED = frozenset(
    name.lower()
    for name in (
        # Options of Spark.
        "checkpointLocation",
        # Options of the sink: a view has one set of options for reading and for inserting.
        "producerGroup", "batchBytes", "batchRows", "maxInFlight", "sendTimeoutMs", "retries", "compress",
        "idempotent", "ignoreExtraColumns", "keepQueue", "maxMessageSize", "writeId",
    )
)  # fmt: skip

OF_CATALOG = "option."
"""The prefix of options of a catalog table."""

DEFAULT_GROUP = "orbitmq-spark"
"""The default group of pulls. One for all readers: brokers keep each group that has ever pulled."""
DEFAULT_TRIGGER_DELAY = 15 * 60.0
DEFAULT_RETRY_SECONDS = 60.0
DEFAULT_POLL_MS = 100

_DURATION = re.compile(r"(\d+)\s*(ms|milliseconds?|s|seconds?|m|min|minutes?|h|hours?|d|days?)?")
_SECONDS = {"ms": 0.001, "mi": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclasses.dataclass(frozen=True, slots=True)
class Subscribed:
    """The subscribed topics and queues: by names, by a pattern, or queue by queue."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, frozenset[int] | Mapping[str, frozenset[int]]] | None = None
    """Queue numbers by topic, on all brokers or by broker."""

    def wants_topic(self, topic: str) -> bool:
        if self.pattern is not None:
            return re.fullmatch(self.pattern, topic) is not None
        return topic in self.topics

    def wants(self, queue: MessageQueue) -> bool:
        if self.assigned is None:
            return self.wants_topic(queue.topic)
        numbers = self.assigned.get(queue.topic, frozenset())
        if not isinstance(numbers, frozenset):
            numbers = numbers.get(queue.broker_name, frozenset())
        return queue.queue_id in numbers

    def __str__(self) -> str:
        return f"the pattern {self.pattern!r}" if self.pattern is not None else ", ".join(map(repr, self.topics))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """All options of a reader. Times are seconds unless the name says otherwise."""

    given: Mapping[str, str]
    """The options as given, by names in lower case: body formats have options of their own."""
    nameserver: str
    subscribed: Subscribed
    starting: Where | None = None
    """None: the default, which differs between streams and batches."""
    ending: Where | None = None
    late_start: str = "error"
    """The fallback of a start time after the last message: ``error`` or ``latest``."""
    max_offsets: int | None = None
    min_offsets: int | None = None
    max_trigger_delay: float = DEFAULT_TRIGGER_DELAY
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    group: str | None = None
    include_properties: bool = True
    columns: tuple[str, ...] | None = None
    expression: str = "*"
    expression_type: str = TAG
    tags: frozenset[str] | None = None
    keys: frozenset[str] | None = None
    body_format: str | None = None
    mode: str = "FAILFAST"
    retry_seconds: float = DEFAULT_RETRY_SECONDS
    poll_seconds: float = DEFAULT_POLL_MS / 1000
    push_filters: bool = False
    """True if filters of a query narrow what is read. Spark (4.3) plans the reads of a DataFrame once for all its
    uses, and gives what the filters of one use left to the others. So a DataFrame has to be used only once."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """Raises OptionError, which names the option."""
        if any(name.lower().startswith(OF_CATALOG) for name in options):
            raise OptionError(
                "a table of a catalog cannot be a topic, since Spark keeps its options to itself when it is read: "
                "make a view of it, CREATE TEMPORARY VIEW … USING orbitmq OPTIONS (…)"
            )
        if path := next((value for name, value in options.items() if name.lower() == "path"), None):
            raise OptionError(
                f"load({path!r}) is not possible: a topic is read with .option('subscribe', topic).load(), a store "
                "directory with format('orbitmq-store')"
            )
        reader = OptionReader(options, READING, "reading topics", IGNORED)
        tags, sql = reader.text("tags"), reader.text("sql92")
        if tags is not None and sql is not None:
            raise OptionError("tags and sql92 are both given: use one of them")
        body_format = reader.one_of("bodyFormat", FORMATS)
        made = cls(
            given=reader.given,
            nameserver=_nameserver(reader.text("nameserver")),
            subscribed=_subscribed(reader),
            starting=_where(reader, "starting"),
            ending=_where(reader, "ending"),
            late_start=reader.one_of("startingOffsetsByTimestampStrategy", ("error", "latest")) or "error",
            max_offsets=reader.whole("maxOffsetsPerTrigger", 1),
            min_offsets=reader.whole("minOffsetsPerTrigger", 1),
            max_trigger_delay=duration("maxTriggerDelay", reader.text("maxTriggerDelay") or "15m"),
            min_partitions=reader.whole("minPartitions", 1),
            max_records_per_partition=reader.whole("maxRecordsPerPartition", 1),
            fail_on_data_loss=reader.boolean("failOnDataLoss", True),
            group=_group(reader.text("groupId")),
            include_properties=reader.boolean("includeProperties", True),
            columns=_columns(reader),
            expression=sql or tags or "*",
            expression_type=TAG if sql is None else SQL92,
            tags=_tags(tags),
            keys=frozenset(reader.names("keys")) or None,
            body_format=body_format,
            mode=reader.one_of("mode", MODES) or MODES[0],
            retry_seconds=reader.number("retrySeconds", DEFAULT_RETRY_SECONDS),
            push_filters=push_filters(reader),
            poll_seconds=(reader.whole("pollMillis", 0) or 0) / 1000
            if reader.has("pollMillis")
            else DEFAULT_POLL_MS / 1000,
        )
        _check_sql(sql)
        made._check_together(reader)
        return made

    def _check_together(self, reader: OptionReader) -> None:
        if self.min_offsets is not None and self.max_offsets is not None and self.min_offsets > self.max_offsets:
            raise OptionError(
                f"minOffsetsPerTrigger={self.min_offsets} is more than maxOffsetsPerTrigger={self.max_offsets}"
            )
        if reader.has("maxTriggerDelay") and self.min_offsets is None:
            raise OptionError("maxTriggerDelay limits the wait of minOffsetsPerTrigger: give that option as well")
        if self.body_format is None and (lost := [name for name in BODY_OPTIONS if reader.has(name)]):
            raise OptionError(f"{lost[0]} needs bodyFormat: give that option as well")
        if self.columns is not None and self.body_format not in {None, "string"}:
            raise OptionError(
                f"columns cannot be given with bodyFormat={self.body_format}: name them in the schema"
            )

    def for_batch(self) -> SourceOptions:
        """The options with the defaults of a batch. Raises OptionError for options of streams."""
        for name in TRIGGERS:
            if name.lower() in self.given:
                raise OptionError(
                    f"{name} is for streams: a batch reads everything from startingOffsets to endingOffsets"
                )
        starting = self.starting or QueueEdge.EARLIEST
        ending = self.ending or QueueEdge.LATEST
        if starting is QueueEdge.LATEST or (isinstance(starting, PerQueue) and starting.has_latest):
            raise OptionError("startingOffsets of a batch cannot be latest (-1): there would be nothing to read")
        if ending is QueueEdge.EARLIEST or (isinstance(ending, PerQueue) and ending.has_earliest):
            raise OptionError("endingOffsets cannot be earliest (-2): there would be nothing to read")
        return dataclasses.replace(self, starting=starting, ending=ending)

    def for_stream(self) -> SourceOptions:
        """The options with the defaults of a stream. Raises OptionError for options of batches."""
        for name in ENDING:
            if name.lower() in self.given:
                raise OptionError(f"{name} is for batches: a stream has no end")
        return dataclasses.replace(self, starting=self.starting or QueueEdge.LATEST)

    @property
    def pull_group(self) -> str:
        return self.group or DEFAULT_GROUP


def _nameserver(given: str | None) -> str:
    try:
        return ";".join(name_server_list(given))
    except InvalidMessageError:
        raise OptionError(
            'nameserver is missing: give "host:port", several separated by ";", or set NAMESRV_ADDR'
        ) from None


def _subscribed(reader: OptionReader) -> Subscribed:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if reader.has(name)]
    if not ways and reader.has("topic"):
        # The name of the sink option, so that one set of options reads and writes.
        ways = ["topic"]
    if len(ways) != 1:
        given = f"{' and '.join(ways)} are given" if ways else "none is given"
        raise OptionError(f"one of subscribe, subscribePattern and assign says what to read: {given}")
    (way,) = ways
    if way in {"subscribe", "topic"}:
        topics = reader.names(way)
        for topic in topics:
            _check_topic(way, topic)
        return Subscribed(topics)
    text = reader.text(way) or ""
    if way == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"subscribePattern={text} is not a regular expression: {error}") from None
        return Subscribed(pattern=text)
    return _assigned(text)


def _check_topic(option: str, topic: str) -> None:
    try:
        check_topic(topic)
    except InvalidMessageError as error:
        raise OptionError(f"{option} cannot be used: {error}") from None


def _assigned(text: str) -> Subscribed:
    """``{"topic": [0, 1]}`` or ``{"topic": {"broker": [0, 1]}}``."""
    found: dict[str, frozenset[int] | Mapping[str, frozenset[int]]] = {}
    for topic, value in json_object("assign", text).items():
        _check_topic("assign", topic)
        if isinstance(value, dict) and value:
            found[topic] = {broker: _numbers(topic, numbers) for broker, numbers in value.items()}
        else:
            found[topic] = _numbers(topic, value)
    if not found:
        raise OptionError("assign names no queue")
    return Subscribed(tuple(found), assigned=found)


def _numbers(topic: str, value: object) -> frozenset[int]:
    if not isinstance(value, list) or not value or not all(type(one) is int and one >= 0 for one in value):
        raise OptionError(
            f"assign cannot be read at {topic!r}: queues are a list of numbers, on all brokers "
            '({"topic": [0, 1]}) or by broker ({"topic": {"broker-a": [0, 1]}})'
        )
    return frozenset(value)


def _where(reader: OptionReader, side: str) -> Where | None:
    """The first of: a time for all queues, times by queue, offsets."""
    if text := reader.text(f"{side}Timestamp"):
        return Moment(milliseconds(f"{side}Timestamp", text))
    option = f"{side}OffsetsByTimestamp"
    if text := reader.text(option):
        return PerQueue.of(option, text, is_time=True)
    option = f"{side}Offsets"
    text = reader.text(option)
    if text is None:
        return None
    if text.lower() in {edge.value for edge in QueueEdge}:
        return QueueEdge(text.lower())
    if text.startswith("{"):
        return PerQueue.of(option, text)
    return moment_of(option, text)


def _columns(reader: OptionReader) -> tuple[str, ...] | None:
    text = reader.text("columns")
    if text is None:
        return None
    try:
        return tuple(column_names(text))
    except OptionError as error:
        raise OptionError(f"columns={text} cannot be used: {error}") from None


def _tags(text: str | None) -> frozenset[str] | None:
    if text is None:
        return None
    try:
        parsed = parse_tags(text)
    except FilterError as error:
        raise OptionError(f"tags={text} cannot be read: {error}") from None
    return None if parsed.matches_all else frozenset(parsed.tags)


def _check_sql(text: str | None) -> None:
    if text is None:
        return
    try:
        compile_sql(text)
    except FilterError as error:
        raise OptionError(f"sql92={text} cannot be read: {error}") from None


def push_filters(given: OptionReader) -> bool:
    """Raises OptionError for ``true``, with which a second use of a DataFrame could lack rows."""
    value = given.one_of("pushFilters", ("false", "once", "true"))
    if value == "true":
        raise OptionError(
            "pushFilters=true is not possible: Spark plans the reads of a DataFrame once, and the filters of its "
            "first use would take rows from the next; give pushFilters=once if it is used in one place of one query"
        )
    return value == "once"


def _group(text: str | None) -> str | None:
    if text is not None:
        try:
            check_group(text)
        except InvalidMessageError as error:
            raise OptionError(f"groupId cannot be used: {error}") from None
    return text


def duration(option: str, text: str) -> float:
    """Seconds; a number alone is milliseconds. Raises OptionError."""
    found = _DURATION.fullmatch(text.lower())
    if found is None:
        raise OptionError(f"{option}={text} is not a time: write 500ms, 30s, 15m, 2h or 1d")
    unit = found[2] or "ms"
    return (
        int(found[1]) * _SECONDS["m" if unit.startswith("min") else unit[:2] if unit[:2] in _SECONDS else unit[0]]
    )
