"""RocketMQ's files: commit log, consume queues, key index, checkpoint, configuration.

Here belongs everything that reads or writes a store directory, byte for byte as Apache RocketMQ does, and the
seams through which the world comes in (``Disk``, ``Clock``). Sockets, request codes and what a topic is allowed
to do belong to the broker; the layout of a single record to ``orbitmq.protocol``.
"""

from orbitmq.settings import ConfigError, parse_conf
from orbitmq.store.appending import Appended
from orbitmq.store.clock import Clock, SystemClock
from orbitmq.store.config import BrokerRole, FlushDiskType, StoreConfig, from_settings
from orbitmq.store.disk import Disk, LocalDisk
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
from orbitmq.store.reading import Boundary, GetResult, GetStatus, QueryResult

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
    "SystemClock",
    "from_settings",
    "parse_conf",
]
