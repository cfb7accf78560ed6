"""The store's settings, with RocketMQ's names and defaults, and the reader of ``broker.conf``.

A field is the snake_case form of the Java key (``mapped_file_size_commit_log`` is ``mappedFileSizeCommitLog``),
so that a ``broker.conf`` of a running cluster loads as it is and an operator finds the knob under the name that
the RocketMQ documentation uses.
"""

from __future__ import annotations

import dataclasses
import enum
import os
import re
from typing import TYPE_CHECKING, Any, get_type_hints

from orbitmq.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


class ConfigError(StoreError):
    """A setting has a value it cannot have."""


class FlushDiskType(enum.Enum):
    """When an append counts as stored."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    """In the page cache: survives the process, not the machine."""
    SYNC_FLUSH = "SYNC_FLUSH"
    """On the disk: an fsync covers it before it is acknowledged or shown to a reader."""


@dataclasses.dataclass(slots=True, kw_only=True)
class StoreConfig:
    """Settings of one store. Sizes are bytes, times milliseconds unless the name says otherwise."""

    store_path_root_dir: str = ""
    store_path_commit_log: str = ""
    """One directory, or several separated by commas; empty means ``commitlog`` below the root."""
    read_only_commit_log_store_paths: str = ""

    mapped_file_size_commit_log: int = 1024 * 1024 * 1024
    mapped_file_size_consume_queue: int = 300_000 * 20
    mapper_file_size_batch_consume_queue: int = 300_000 * 46
    mapped_file_size_consume_queue_ext: int = 48 * 1024 * 1024
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    message_index_enable: bool = True

    flush_disk_type: FlushDiskType = FlushDiskType.ASYNC_FLUSH
    flush_interval_commit_log: int = 500
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval: int = 10_000
    flush_interval_consume_queue: int = 1_000
    flush_consume_queue_least_pages: int = 2
    flush_consume_queue_thorough_interval: int = 60_000
    sync_flush_timeout: int = 5_000
    transient_store_pool_enable: bool = False
    transient_store_pool_size: int = 5
    commit_interval_commit_log: int = 200

    max_message_size: int = 4 * 1024 * 1024
    auto_message_version_on_topic_len: bool = True
    enabled_append_prop_crc: bool = dataclasses.field(default=False, metadata={"java": "enabledAppendPropCRC"})
    force_verify_prop_crc: bool = dataclasses.field(default=False, metadata={"java": "forceVerifyPropCRC"})
    enable_lmq: bool = False
    enable_multi_dispatch: bool = False
    max_lmq_consume_queue_num: int = 20_000
    message_delay_level: str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

    max_transfer_bytes_on_message_in_memory: int = 256 * 1024
    max_transfer_count_on_message_in_memory: int = 32
    max_transfer_bytes_on_message_in_disk: int = 64 * 1024
    max_transfer_count_on_message_in_disk: int = 8
    access_message_in_memory_max_ratio: int = 40
    max_filter_message_size: int = 16_000
    max_msgs_num_batch: int = 64
    default_query_max_num: int = 32

    file_reserved_time: int = 72
    """Hours."""
    delete_when: str = "04"
    """Local hours of the day in which expired files are removed, separated by ``;``."""
    delete_file_batch_max: int = 10
    disk_max_used_space_ratio: int = 75
    disk_space_clean_forcibly_ratio: int = 85
    disk_space_warning_level_ratio: int = 90
    clean_file_forcibly_enable: bool = True
    clean_resource_interval: int = 10_000

    broker_ip1: str = dataclasses.field(default="127.0.0.1", metadata={"java": "brokerIP1"})
    listen_port: int = 10_911

    def __post_init__(self) -> None:
        for name, unit in (
            ("mapped_file_size_consume_queue", 20),
            ("mapper_file_size_batch_consume_queue", 46),
        ):
            rounded = -(-getattr(self, name) // unit) * unit
            setattr(self, name, rounded)
        for name in (
            "mapped_file_size_commit_log",
            "mapped_file_size_consume_queue",
            "mapper_file_size_batch_consume_queue",
            "max_hash_slot_num",
            "max_index_num",
            "max_message_size",
        ):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{java_key(name)} must be greater than 0")
        for hour in self.delete_hours_text():
            if not hour.isdigit() or not 0 <= int(hour) <= 23:
                raise ConfigError(f"deleteWhen has {hour!r}; give hours 00 to 23 separated by ';'")

    @property
    def commit_log_dirs(self) -> tuple[str, ...]:
        """The commit log's directories, sorted as RocketMQ assigns files to them."""
        named = [part.strip() for part in self.store_path_commit_log.split(",") if part.strip()]
        return tuple(sorted(named)) or (os.path.join(self.store_path_root_dir, "commitlog"),)

    @property
    def read_only_dirs(self) -> frozenset[str]:
        parts = self.read_only_commit_log_store_paths.split(",")
        return frozenset(part.strip() for part in parts if part.strip())

    def delete_hours_text(self) -> list[str]:
        return [hour.strip() for hour in self.delete_when.split(";") if hour.strip()]

    @property
    def delete_hours(self) -> frozenset[int]:
        return frozenset(int(hour) for hour in self.delete_hours_text())

    def path(self, *parts: str) -> str:
        """A path below the store's root."""
        return os.path.join(self.store_path_root_dir, *parts)


def java_key(field_name: str) -> str:
    """The Java spelling of a field's name."""
    head, *rest = field_name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def _java_fields() -> dict[str, str]:
    return {
        str(field.metadata.get("java") or java_key(field.name)): field.name
        for field in dataclasses.fields(StoreConfig)
    }


_FIELD_OF_KEY = _java_fields()
_TYPES: dict[str, Any] = {}


_ENTRY = re.compile(r"((?:\\.|[^\\=:\s])*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u.{0,4}|.)", re.DOTALL)
_ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_conf(text: str) -> dict[str, str]:
    """Read a Java properties file as Java does, except that blanks at the end of a value are dropped."""
    settings: dict[str, str] = {}
    for line in _logical_lines(text):
        entry = _ENTRY.match(line)
        assert entry is not None, "every part of the pattern may be empty"
        settings[_unescape(entry[1])] = _unescape(entry[2].rstrip())
    return settings


def _logical_lines(text: str) -> Iterator[str]:
    """Lines that are no comments; one that ends with a backslash goes on in the next."""
    pending: str | None = None
    for natural in re.split(r"\r\n|\r|\n", text):
        line = natural.lstrip(" \t\f")
        if pending is None and (not line or line[0] in "#!"):
            continue
        line = (pending or "") + line
        pending = None
        if (len(line) - len(line.rstrip("\\"))) % 2:
            pending = line[:-1]
        else:
            yield line
    if pending:
        yield pending


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_unescaped, text)


def _unescaped(escape: re.Match[str]) -> str:
    code = escape[1]
    if code[0] != "u":
        return _ESCAPED.get(code, code)
    if not re.fullmatch("u[0-9a-fA-F]{4}", code):
        raise ConfigError(f"\\{code} is no character: four hexadecimal digits follow \\u")
    return chr(int(code[1:], 16))


def from_settings(settings: Mapping[str, str], **overrides: object) -> tuple[StoreConfig, Iterable[str]]:
    """Build a config from Java keys. Returns it and the keys that are not the store's."""
    if not _TYPES:
        _TYPES.update(get_type_hints(StoreConfig))
    values: dict[str, Any] = {}
    unknown: list[str] = []
    for key, text in settings.items():
        name = _FIELD_OF_KEY.get(key)
        if name is None:
            unknown.append(key)
        else:
            values[name] = _typed(key, text, _TYPES[name])
    values.update(overrides)
    return StoreConfig(**values), unknown


def _typed(key: str, text: str, kind: type) -> object:
    if kind is bool:
        return text.lower() == "true"
    if kind is int:
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"{key}={text}: a whole number is expected") from None
    if kind is FlushDiskType:
        try:
            return FlushDiskType(text)
        except ValueError:
            raise ConfigError(f"{key}={text}: ASYNC_FLUSH or SYNC_FLUSH is expected") from None
    return text


def delay_levels(text: str) -> dict[int, int]:
    """The table of ``messageDelayLevel``: level (from 1) to milliseconds."""
    units = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    levels: dict[int, int] = {}
    for level, part in enumerate(text.split(), start=1):
        if part[-1:] not in units or not part[:-1].isdigit():
            raise ConfigError(f"messageDelayLevel has {part!r}; give numbers with s, m, h or d")
        levels[level] = int(part[:-1]) * units[part[-1]]
    return levels
