"""A message as it is handed to the store: everything a record holds except its position."""

from __future__ import annotations

from typing import NamedTuple

LOCAL_HOST = bytes((127, 0, 0, 1, 0, 0, 0, 0))


class StoredMessage(NamedTuple):
    """One message and the queue it goes to.

    A NamedTuple, because positional construction costs 0.5 µs (a frozen dataclass 3 µs) of about 14 µs per append.
    """

    topic: str
    queue_id: int
    body: bytes | memoryview
    properties: bytes = b""
    flag: int = 0
    sys_flag: int = 0
    born_timestamp: int = 0
    born_host: bytes = LOCAL_HOST
    """Address and port: 8 bytes for IPv4, 20 for IPv6."""
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
