"""The options of a reader of a store directory, checked and typed."""

from __future__ import annotations

import dataclasses
import urllib.parse
from typing import TYPE_CHECKING

from orbitmq.protocol.names import is_system_topic
from orbitmq.spark.errors import OptionError
from orbitmq.spark.schema.columns import COLUMNS, column_names
from orbitmq.spark.topic_source.offset_bounds import milliseconds
from orbitmq.spark.topic_source.option_parser import OptionReader
from orbitmq.spark.topic_source.options import push_filters

if TYPE_CHECKING:
    from collections.abc import Mapping

READING = (
    "path", "topic", "topics", "keys", "startingTimestamp", "endingTimestamp", "columns", "includeProperties",
    "includeSystemTopics", "broker", "splitSize", "checkCrc", "failOnDamage", "pushFilters",
)  # fmt: skip

DEFAULT_SPLIT = 64 << 20
"""The bytes of a partition: a second or less of work, and sixteen partitions per log file of the default size."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """All options of a reader of a store."""

    path: str
    topics: frozenset[str] | None = None
    """None: all of them."""
    keys: frozenset[str] | None = None
    """Only messages with one of these keys."""
    starting_ms: int | None = None
    ending_ms: int | None = None
    """The range of store times; the end is exclusive."""
    columns: tuple[str, ...] = tuple(COLUMNS)
    include_system_topics: bool = False
    broker: str | None = None
    split_size: int = DEFAULT_SPLIT
    check_crc: bool = True
    fail_on_damage: bool = True
    push_filters: bool = False
    """True if filters of a query narrow what is read, as in ``SourceOptions``."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> StoreOptions:
        """Raises OptionError, which names the option."""
        reader = OptionReader(options, READING, "reading a store")
        if reader.has("topic") and reader.has("topics"):
            raise OptionError("topic and topics are both given: they mean the same")
        topics = reader.names("topic") or reader.names("topics")
        made = cls(
            path=_path(reader.text("path")),
            topics=frozenset(topics) or None,
            keys=frozenset(reader.names("keys")) or None,
            starting_ms=_time(reader, "startingTimestamp"),
            ending_ms=_time(reader, "endingTimestamp"),
            columns=_columns(reader),
            include_system_topics=reader.boolean("includeSystemTopics", False),
            broker=reader.text("broker"),
            split_size=reader.size("splitSize", DEFAULT_SPLIT),
            check_crc=reader.boolean("checkCrc", True),
            fail_on_damage=reader.boolean("failOnDamage", True),
            push_filters=push_filters(reader),
        )
        if made.starting_ms is not None and made.ending_ms is not None and made.starting_ms > made.ending_ms:
            raise OptionError(
                f"startingTimestamp={made.starting_ms} is after endingTimestamp={made.ending_ms}: swap them"
            )
        return made

    def wants_topic(self, topic: str) -> bool:
        if self.topics is not None:
            return topic in self.topics
        return self.include_system_topics or not is_system_topic(topic)


def _path(given: str | None) -> str:
    if given is None:
        raise OptionError("path is missing: say load(directory), the one that holds commitlog")
    parts = urllib.parse.urlsplit(given)
    if parts.scheme == "file":
        return urllib.parse.unquote(parts.path)
    if parts.scheme and "://" in given:
        raise OptionError(
            f"path={given} is not on a file system: give a directory of this machine or a mounted one"
        )
    return given


def _time(reader: OptionReader, name: str) -> int | None:
    text = reader.text(name)
    return None if text is None else milliseconds(name, text)


def _columns(reader: OptionReader) -> tuple[str, ...]:
    given = reader.text("columns")
    if given is not None:
        return tuple(column_names(given))
    has_properties = reader.boolean("includeProperties", True)
    return tuple(name for name in COLUMNS if name != "properties" or has_properties)
