"""Exceptions of the store. Every message says what to do about it."""

from __future__ import annotations

import enum

from orbitmq.platform.errors import DiskFaultError, StoreDamagedError, StoreError
from orbitmq.protocol.remarks import hide_paths

__all__ = [
    "AppendRefusedError",
    "DiskFaultError",
    "FlushFailedError",
    "PutStatus",
    "StoreDamagedError",
    "StoreError",
    "StoreLockedError",
]


class StoreLockedError(StoreError):
    """Another process has this store open."""


class FlushFailedError(DiskFaultError):
    """An fsync failed. The bytes it covered may be lost, so none of them were acknowledged."""


class NotCopiedError(StoreError):
    """Replicas in sync lack the end of the log: another master may be elected that does not have it."""


class PutStatus(enum.Enum):
    """RocketMQ's outcomes of an append (``PutMessageStatus``), with the response code a broker sends for each."""

    PUT_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    FLUSH_SLAVE_TIMEOUT = 12
    SLAVE_NOT_AVAILABLE = 11
    SERVICE_NOT_AVAILABLE = 14
    MESSAGE_ILLEGAL = 13
    # Statuses below share a response code with another one; a tuple keeps them distinct members.
    PROPERTIES_SIZE_EXCEEDED = (13, "properties")
    CREATE_MAPPED_FILE_FAILED = (1, "file")
    UNKNOWN_ERROR = (1, "unknown")
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = 2017
    WHEEL_TIMER_MSG_ILLEGAL = (13, "timer")
    WHEEL_TIMER_FLOW_CONTROL = (1, "timers")

    @property
    def response_code(self) -> int:
        value = self.value
        return value if isinstance(value, int) else int(value[0])


class AppendRefusedError(StoreError):
    """The store refused a message; nothing of it was written.

    The reason goes to the client, so it names no directory of the server; the log line does.
    """

    def __init__(self, status: PutStatus, reason: str) -> None:
        super().__init__(hide_paths(reason))
        self.status = status
