"""The options of a write to topics, checked and typed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.client.config import name_server_list
from orbitmq.client.errors import InvalidMessageError
from orbitmq.client.validation import check_producer_group, check_topic_to_send
from orbitmq.protocol.message.compression import Compression
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.spark.errors import OptionError
from orbitmq.spark.topic_source.option_parser import OptionReader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

LOOK_AHEAD = 16
"""Maximum distance, in chunks, of an attempt of a task from its oldest chunk without an answer.

The next attempt has to check that many chunks for what was written. So this is a constant, and the option for
chunks in flight, which may differ between two runs of a query, stays below it.
"""

MAX_ROWS = 1 << 12
"""Rows of one chunk. The id of a message has two bytes for its place there, and all ids of a request are in the
header of its response: more would pass the limit of a header, and the write would fail after it was stored."""

MIN_BYTES, MAX_BYTES = 1 << 10, 1 << 30
"""Of a request: Arrow counts the bytes of an array in 31 bits."""

DEFAULT_GROUP = "ORBITMQ_SPARK"

ADDED_BY_SPARK = frozenset({"path", "checkpointlocation", "queryname"})
"""What Spark puts among the options of a format by itself."""

WRITING = (
    "nameserver", "topic", "producerGroup", "batchBytes", "batchRows", "maxInFlight", "sendTimeoutMs", "retries",
    "maxMessageSize", "compress", "idempotent", "writeId", "keepQueue", "ignoreExtraColumns",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """All options of a write. Times are seconds."""

    name_servers: tuple[str, ...]
    topic: str | None = None
    """Where all rows go, whatever their column ``topic`` says."""
    producer_group: str = DEFAULT_GROUP
    batch_bytes: int = 1 << 20
    batch_rows: int = 4096
    """What goes into one request. A broker does nothing else while it stores one, so more is not always better."""
    max_in_flight: int = 4
    send_timeout: float = 10.0
    """For one attempt to send one request."""
    retries: int = 15
    """Further attempts for each request, with pauses between them that grow to three seconds."""
    max_message_size: int = 4 << 20
    compress: Compression | None = None
    idempotent: bool = True
    """True if a task first checks what an earlier attempt of it has written."""
    write_id: str | None = None
    """The id of a batch write, by which a second run of the whole job finds what the first one wrote."""
    keep_queue: bool | None = None
    """True if ``queue_id`` and ``broker`` choose the queue of a row. None: unless the rows come from a topic."""
    ignore_extra_columns: bool = False

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SinkOptions:
        """Parse the options of a DataFrameWriter. Raises OptionError, which names the option."""
        reader = OptionReader(options, WRITING, "writing to topics", ADDED_BY_SPARK)
        made = cls(
            name_servers=_name_servers(reader.text("nameserver")),
            topic=_checked(reader, "topic", check_topic_of_rows),
            producer_group=_checked(reader, "producerGroup", check_producer_group) or DEFAULT_GROUP,
            batch_bytes=reader.size("batchBytes", 1 << 20),
            batch_rows=_whole(reader, "batchRows", 4096, 1, MAX_ROWS),
            max_in_flight=_whole(reader, "maxInFlight", 4, 1, LOOK_AHEAD),
            send_timeout=_whole(reader, "sendTimeoutMs", 10_000, 1, 86_400_000) / 1000,
            retries=_whole(reader, "retries", 15, 0, 10_000),
            max_message_size=reader.size("maxMessageSize", 4 << 20),
            compress=_compression(reader),
            idempotent=reader.boolean("idempotent", True),
            write_id=reader.text("writeId"),
            keep_queue=reader.boolean("keepQueue", False) if reader.has("keepQueue") else None,
            ignore_extra_columns=reader.boolean("ignoreExtraColumns", False),
        )
        for name, size in (("batchBytes", made.batch_bytes), ("maxMessageSize", made.max_message_size)):
            if not MIN_BYTES <= size <= MAX_BYTES:
                raise OptionError(f"{name}={size} is not possible: it is from {MIN_BYTES} to {MAX_BYTES}")
        if made.batch_bytes > made.max_message_size:
            raise OptionError(
                f"batchBytes={made.batch_bytes} is more than maxMessageSize={made.max_message_size}, which is what "
                "brokers take: lower the one, or raise the other here and in the brokers"
            )
        return made


def check_topic_of_rows(topic: str) -> None:
    """Raise InvalidMessageError for a topic that rows cannot be written to."""
    check_topic_to_send(topic)
    if topic.startswith(RETRY_PREFIX):
        raise InvalidMessageError(f"{topic!r} is the retry topic of a group: only its consumers write there")


def _checked(reader: OptionReader, name: str, check: Callable[[str], None]) -> str | None:
    text = reader.text(name)
    if text is not None:
        try:
            check(text)
        except InvalidMessageError as error:
            raise OptionError(f"{name} cannot be used: {error}") from None
    return text


def _name_servers(given: str | None) -> tuple[str, ...]:
    try:
        return name_server_list(given)
    except InvalidMessageError:
        raise OptionError(
            'nameserver is missing: give "host:port", several separated by ";", or set NAMESRV_ADDR'
        ) from None


def _compression(reader: OptionReader) -> Compression | None:
    kind = reader.one_of("compress", ("false", "true", *(kind.name.lower() for kind in Compression)))
    if kind in {None, "false"}:
        return None
    return Compression.ZLIB if kind == "true" else Compression[(kind or "").upper()]


def _whole(reader: OptionReader, name: str, default: int, least: int, most: int) -> int:
    text = reader.text(name)
    if text is None:
        return default
    if not text.isdecimal() or len(text) > 9 or not least <= int(text) <= most:
        raise OptionError(f"{name}={text} is not possible: it is a whole number from {least} to {most}")
    return int(text)
