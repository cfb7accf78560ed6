"""RocketMQ's files: commit log, consume queues, key index, checkpoint, configuration.

Here belongs everything that reads or writes a store directory, byte for byte as Apache RocketMQ does, and the
seams through which the world comes in (``Disk``, ``Clock``). Sockets, request codes and what a topic is allowed
to do belong to the broker; the layout of a single record to ``orbitmq.protocol``.
"""

from orbitmq.platform.clock import Clock, SystemClock
from orbitmq.platform.disk import Disk
from orbitmq.platform.local_disk import LocalDisk
from orbitmq.platform.settings import ConfigError, parse_conf
from orbitmq.store.append.appender import Appended
from orbitmq.store.append.stored_message import StoredMessage
from orbitmq.store.config import FlushDiskType, StoreConfig, from_settings
from orbitmq.store.errors import (
    AppendRefusedError,
    DiskFaultError,
    FlushFailedError,
    PutStatus,
    StoreDamagedError,
    StoreError,
    StoreLockedError,
)
from orbitmq.store.message_store import MessageStore
from orbitmq.store.reader import Boundary, GetResult, GetStatus, QueryResult
from orbitmq.store.replication.settings import BrokerRole

__all__ = [
    "AppendRefusedError",
    "Appended",
    "Boundary",
    "BrokerRole",
    "Clock",
    "ConfigError",
    "Disk",
    "DiskFaultError",
    "FlushDiskType",
    "FlushFailedError",
    "GetResult",
    "GetStatus",
    "LocalDisk",
    "MessageStore",
    "PutStatus",
    "QueryResult",
    "StoreConfig",
    "StoreDamagedError",
    "StoreError",
    "StoreLockedError",
    "StoredMessage",
    "SystemClock",
    "from_settings",
    "parse_conf",
]
