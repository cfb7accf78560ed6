"""The two ids of a message, both upper-case hex of 16 bytes (IPv4) or 28 bytes (IPv6).

The *offset id* is made by the broker: store host and physical offset. The *unique id* is made by the
client (property ``UNIQ_KEY``): address, process, class loader, time in the month and a counter. Nothing in
an id tells which of the two it is.
"""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import struct
from typing import TYPE_CHECKING

from orbitmq.lazy_import import lazy_module
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.hosts import MAX_PORT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import numpy as np
    import numpy.typing as npt
else:
    np = lazy_module("numpy")

_SIZES = (16, 28)

_FEW = 16
"""Fewer ids are made one by one."""

_UNIQUE_TAIL = struct.Struct(">HIIH")

_CLOCK_SET_BACK = 1_000_000
"""A clock up to this many milliseconds before the start of the month was set back, and counts as 0."""


def encode_offset_id(store_host: bytes, physical_offset: int) -> str:
    """The offset id of the record at this offset of the broker with these host bytes."""
    return f"{store_host.hex().upper()}{physical_offset:016X}"


def join_offset_ids(store_host: bytes, physical_offsets: Sequence[int] | npt.NDArray[np.int64]) -> str:
    """``encode_offset_id`` of many records of one broker, with commas between them."""
    host = store_host.hex().upper()
    if len(physical_offsets) < _FEW:
        return ",".join([f"{host}{offset:016X}" for offset in physical_offsets])
    digits = np.asarray(physical_offsets, ">i8").tobytes().hex().upper().encode()
    ids = np.empty((len(physical_offsets), len(host) + 17), np.uint8)
    ids[:, : len(host)] = np.frombuffer(host.encode(), np.uint8)
    ids[:, len(host) : -1] = np.frombuffer(digits, np.uint8).reshape(-1, 16)
    ids[:, -1] = ord(",")
    return ids.tobytes()[:-1].decode("ascii")


def decode_offset_id(text: str) -> tuple[bytes, int]:
    """Store host bytes and physical offset of an offset id."""
    data = _unhex(text)
    port = int.from_bytes(data[-12:-8], "big")
    offset = int.from_bytes(data[-8:], "big", signed=True)
    if port > MAX_PORT or offset < 0:
        raise ProtocolError(f"{text!r} is not an offset id: port {port}, offset {offset}")
    return data[:-8], offset


@dataclasses.dataclass(frozen=True, slots=True)
class UniqueId:
    """The parts of a unique id."""

    address: bytes
    pid: int
    class_loader_hash: int
    month_millis: int
    """Milliseconds since the first of the month, in the local time of the client."""
    counter: int

    def time_ms(self, now_ms: int, zone: datetime.tzinfo | None = None) -> int:
        """When the id was made, if that was in the month before ``now_ms``.

        The id does not say which month. As in RocketMQ's tools it is the present one, or the one before
        if that would be in the future. ``zone`` is the client's; None is this machine's.
        """
        start = month_start(now_ms, zone)
        if start + self.month_millis >= now_ms:
            start = month_start(start - 1, zone)
        return start + self.month_millis


def decode_unique_id(text: str) -> UniqueId:
    """The parts of a unique id."""
    data = _unhex(text)
    return UniqueId(data[:-12], *_UNIQUE_TAIL.unpack(data[-12:]))


class UniqueIdFactory:
    """Makes unique ids as Java clients do.

    ``address`` has 4 or 16 bytes. Java takes the hash of the class loader so that two clients in one
    process differ; any number that does this will do. ``clock`` gives milliseconds since the epoch.
    The ids of one factory differ as long as it makes at most 65536 a millisecond.
    """

    __slots__ = ("_clock", "_counter", "_head", "_head_ms", "_next_month", "_prefix", "_start", "_zone")

    def __init__(
        self,
        address: bytes,
        pid: int,
        class_loader_hash: int,
        clock: Callable[[], int],
        counter: Iterator[int] | None = None,
        zone: datetime.tzinfo | None = None,
    ) -> None:
        if len(address) not in {4, 16}:
            raise ProtocolError(f"{len(address)} bytes are not an address: it has 4 or 16")
        self._prefix = f"{address.hex().upper()}{pid & 0xFFFF:04X}{class_loader_hash & 0xFFFFFFFF:08X}"
        self._clock = clock
        self._counter = itertools.count() if counter is None else counter
        self._zone = zone
        self._begin_month(clock())
        self._head_ms: int | None = None
        """The millisecond of the last id, and the part of it that all ids of that millisecond have."""
        self._head = ""

    def __call__(self) -> str:
        now = self._clock()
        if now != self._head_ms:
            self._begin_millisecond(now)
        return f"{self._head}{next(self._counter) & 0xFFFF:04X}"

    def _begin_millisecond(self, now: int) -> None:
        if now >= self._next_month:
            self._begin_month(now)
        millis = now - self._start
        if -_CLOCK_SET_BACK < millis < 0:
            millis = 0
        self._head = f"{self._prefix}{millis & 0xFFFFFFFF:08X}"
        self._head_ms = now

    def _begin_month(self, now: int) -> None:
        self._start = month_start(now, self._zone)
        # 32 days after a first of the month is in the next month, whichever month and clock change.
        self._next_month = month_start(self._start + 32 * 86_400_000, self._zone)


def month_start(now_ms: int, zone: datetime.tzinfo | None = None) -> int:
    """Midnight before the first of the month of ``now_ms``, in milliseconds since the epoch."""
    local = datetime.datetime.fromtimestamp(now_ms / 1000, zone)
    first = local.replace(day=1, hour=0, minute=0, second=0, microsecond=0, fold=0)
    return round(first.timestamp() * 1000)


def _unhex(text: str) -> bytes:
    try:
        data = bytes.fromhex(text)
    except ValueError as error:
        raise ProtocolError(f"{text!r} is not an id: it is not hex") from error
    if len(data) not in _SIZES or len(text) != 2 * len(data):
        raise ProtocolError(f"an id has 32 or 56 characters, not {len(text)}")
    return data
