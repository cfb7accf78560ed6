"""Running queries: SQL over topics as streams, with a result per micro-batch."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import threading
import time
from typing import TYPE_CHECKING, Any

from orbitmq.spark.errors import OptionError
from orbitmq.spark.pipelines.sql.errors import QueryError, query_error
from orbitmq.spark.pipelines.sql.topics import RETRY_SECONDS
from orbitmq.spark.pipelines.sql.views import stream_start, with_all_columns
from orbitmq.spark.topic_source.offsets import described

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from orbitmq.spark.pipelines.sql.archive_live_boundary import Seam
    from orbitmq.spark.pipelines.sql.query import Queries, Use
    from orbitmq.spark.pipelines.sql.topics import TopicPlaces

COMPLETE, APPEND = "complete", "append"
EARLIEST = "earliest"
LOOK_SECONDS = 0.2
MAX_WAITING_BATCHES = 4
"""Maximum number of batches whose rows have not been fetched yet; the query then waits."""


@dataclasses.dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a running query."""

    begin: str = EARLIEST
    """``earliest``, ``latest`` or a time."""
    once: bool = False
    """Whether it ends when it has read what was there when it began."""
    seconds: float | None = None
    """The duration of the query; None: until it is stopped."""
    checkpoint: str | None = None
    """Where Spark keeps how far it is, so that the same query goes on there."""
    most_rows: int = 100
    """Of a batch, that are brought here."""


@dataclasses.dataclass(frozen=True, slots=True)
class Batch:
    """The result of one batch. ``is_all`` is True if it has all rows of the result, False for the new ones."""

    number: int
    columns: list[tuple[str, str]]
    """Their names and types."""
    rows: list[Any]
    has_more: bool
    is_all: bool


def stream_view(spark: SparkSession, places: TopicPlaces, use: Use, begin: str) -> DataFrame:
    """A topic as a stream: from the begin of its archive on, if there is one, and the live messages after that."""
    seam = use.seam
    parts = []
    start = begin
    if begin == EARLIEST and use.moment is not None and seam.archived:
        from orbitmq.spark.pipelines.sql.archive_stream import archived_stream  # noqa: PLC0415 - needs Spark

        parts.append(archived_stream(spark, use.moment, seam.topic, use.columns))
        start = stream_start(seam)
    if places.nameserver is not None and seam.queues:
        live = spark.readStream.format("orbitmq").options(
            nameserver=places.nameserver,
            subscribe=seam.topic,
            startingOffsets=start,
            # A start time after the last message is valid in a stream.
            startingOffsetsByTimestampStrategy="latest",
            retrySeconds=f"{RETRY_SECONDS:g}",
            columns=",".join(use.columns),
        )
        parts.append(live.load())
    if not parts:
        raise OptionError(f"the topic {seam.topic!r} is only in the archive, of which {begin} has nothing")
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part)
    return with_all_columns(whole, use.columns)


class RunningQuery:
    """A query that runs until it is stopped or done. Iterate over it for its batches."""

    def __init__(
        self,
        spark: SparkSession,
        queries: Queries,
        places: TopicPlaces,
        text: str,
        options: StreamOptions,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Starts it. Raises QueryError, and OrbitMQError."""
        self._text = text
        self._options = options
        self._batches: queue.Queue[tuple[int, list[tuple[str, str]], list[Any], bool]] = queue.Queue(
            MAX_WAITING_BATCHES
        )
        self._is_stopped = threading.Event()
        self._counted: dict[int, int] = {}
        self._ends_at = None if options.seconds is None else time.monotonic() + options.seconds
        if options.begin != EARLIEST and places.archive is not None:
            raise OptionError(f"--from {options.begin} reads only from brokers: leave the archive out")
        uses, is_query = queries.uses(text)
        if not is_query or not uses:
            raise QueryError("a running query is a SELECT over topics, which this is not")
        for use in uses:
            for warning in _left_behind(use.seam):
                warn(warning)
            queries.register(use, stream_view(spark, places, use, options.begin))
        self._mode, self._query = self._started(queries.run(text))

    def _started(self, answer: DataFrame) -> tuple[str, StreamingQuery]:
        """Start with complete output for an aggregate, else with new rows only; Spark decides which applies."""
        from pyspark.errors import AnalysisException  # noqa: PLC0415

        try:
            return COMPLETE, self._writer(answer, COMPLETE).start()
        except AnalysisException as first:
            if "complete" not in str(first).lower():
                raise query_error(first, self._text) from None
        try:
            return APPEND, self._writer(answer, APPEND).start()
        except AnalysisException as error:
            raise query_error(error, self._text) from None

    def _writer(self, answer: DataFrame, mode: str) -> Any:
        options = self._options
        writer = answer.writeStream.outputMode(mode).foreachBatch(self._take)
        if options.checkpoint is not None:
            writer = writer.option("checkpointLocation", options.checkpoint)
        return writer.trigger(availableNow=True) if options.once else writer

    def _take(self, batch: DataFrame, number: int) -> None:
        """Called by Spark, in a thread of its own."""
        most = self._options.most_rows
        rows = batch.limit(most + 1).collect()
        taken = number, batch.dtypes, rows[:most], len(rows) > most
        while not self._is_stopped.is_set():
            with contextlib.suppress(queue.Full):
                self._batches.put(taken, timeout=LOOK_SECONDS)
                return

    def __iter__(self) -> Iterator[Batch]:
        """Raises QueryError where the query fails."""
        from pyspark.errors import StreamingQueryException  # noqa: PLC0415

        while True:
            is_over = not self._query.isActive
            try:
                number, columns, rows, has_more = self._batches.get(timeout=0 if is_over else LOOK_SECONDS)
            except queue.Empty:
                if is_over:
                    break
                if self._ends_at is not None and time.monotonic() >= self._ends_at:
                    self.stop()
                continue
            yield Batch(number, columns, rows, has_more, self._mode == COMPLETE)
        if not self._is_stopped.is_set():
            try:
                self._query.awaitTermination()
            except StreamingQueryException as error:
                raise query_error(error, self._text) from None

    def read(self) -> int:
        """The number of messages read in finished batches."""
        # Spark remembers the last hundred.
        self._counted |= {one["batchId"]: int(one["numInputRows"]) for one in self._query.recentProgress}
        return sum(self._counted.values())

    def stop(self) -> None:
        """End the query. Rows that were computed but not fetched remain available."""
        self._is_stopped.set()
        self._query.stop()


def _left_behind(seam: Seam) -> list[str]:
    """Warnings about messages that only brokers have and that are older than the end of the archive."""
    return [
        f"the offsets {start} to {end - 1} of {described([of])} are not archived though later ones are: a running "
        "query leaves them out"
        for of, archived in seam.archive_ends.items()
        for start, end in seam.live.get(of, [])
        if start < archived
    ]
