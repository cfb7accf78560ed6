"""What can go wrong with a store, as one small tree. Every message says what to do about it."""

from __future__ import annotations

import enum


class StoreError(Exception):
    """A store cannot do what was asked."""


class StoreLockedError(StoreError):
    """Another process has this store open."""


class StoreDamagedError(StoreError):
    """The files contradict each other in a way that recovery does not repair by itself."""


class DiskFaultError(StoreError):
    """The disk refused an operation: full, read-only, or failing."""


class FlushFailedError(DiskFaultError):
    """An fsync failed. What it covered may be lost, so nothing of it was acknowledged."""


class PutStatus(enum.Enum):
    """RocketMQ's outcomes of an append (``PutMessageStatus``), with the response code a broker sends for each."""

    PUT_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    FLUSH_SLAVE_TIMEOUT = 12
    SLAVE_NOT_AVAILABLE = 11
    SERVICE_NOT_AVAILABLE = 14
    MESSAGE_ILLEGAL = 13
    # Names below share a response code with another status; a tuple keeps them distinct members.
    PROPERTIES_SIZE_EXCEEDED = (13, "properties")
    CREATE_MAPPED_FILE_FAILED = (1, "file")
    UNKNOWN_ERROR = (1, "unknown")
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = (1, "lmq")
    WHEEL_TIMER_MSG_ILLEGAL = (13, "timer")
    WHEEL_TIMER_FLOW_CONTROL = (1, "timers")

    @property
    def response_code(self) -> int:
        value = self.value
        return value if isinstance(value, int) else int(value[0])


class AppendRefusedError(StoreError):
    """The store did not take a message; nothing of it was written."""

    def __init__(self, status: PutStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status
