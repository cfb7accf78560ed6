"""Frames of the HA connection in controller mode (RocketMQ: AutoSwitchHAConnection, AutoSwitchHAClient).

The slave begins with a handshake, the master answers with its epochs. Then the slave acknowledges the end of its
log and the master sends parts of its log, none of which spans two epochs or two files. Pure: bytes in, values out.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.platform.settings import INT64_MAX
from orbitmq.store.replication.epochs import MAX_ENTRIES, Epoch, EpochError, Epochs
from orbitmq.store.replication.frames import FrameError
from orbitmq.store.replication.settings import MAX_FRAME_BODY

if TYPE_CHECKING:
    from collections.abc import Iterator

HANDSHAKE, TRANSFER = 1, 2
"""States of RocketMQ's connection, which begin every frame."""

STATE = struct.Struct(">i")
SLAVE_HANDSHAKE = struct.Struct(">ihhq")
SLAVE_ACK = struct.Struct(">iq")
MASTER_HANDSHAKE = struct.Struct(">iiqi")
EPOCH_ENTRY = struct.Struct(">iq")
TRANSFER_HEAD = struct.Struct(">iiqiqq")

MAX_BODY = MAX_FRAME_BODY - TRANSFER_HEAD.size + 12
"""Log bytes of one frame: Apache's slave reads a frame with its head into a buffer of 4 MiB."""


class SlaveHandshake(NamedTuple):
    """The first frame of a slave."""

    is_from_last_file: bool
    is_learner: bool
    broker_id: int

    def encode(self) -> bytes:
        return SLAVE_HANDSHAKE.pack(HANDSHAKE, self.is_from_last_file, self.is_learner, self.broker_id)


class Ack(NamedTuple):
    """The end of a slave's log."""

    end: int

    def encode(self) -> bytes:
        return SLAVE_ACK.pack(TRANSFER, self.end)


class MasterHandshake(NamedTuple):
    """The answer of a master: the end of its log and its epochs."""

    end: int
    epochs: Epochs

    def encode(self) -> bytes:
        entries = [EPOCH_ENTRY.pack(*one) for one in self.epochs]
        size = len(entries) * EPOCH_ENTRY.size
        return MASTER_HANDSHAKE.pack(HANDSHAKE, size, self.end, self.epochs.last_epoch) + b"".join(entries)


class Transfer(NamedTuple):
    """A part of the log, perhaps of one that began in an earlier call; empty for a heartbeat."""

    offset: int
    epoch: Epoch
    confirmed: int
    """The log up to here is on all replicas that count."""
    data: memoryview


def transfer_head(size: int, offset: int, epoch: Epoch, confirmed: int) -> bytes:
    """The head of a frame of ``size`` log bytes."""
    return TRANSFER_HEAD.pack(TRANSFER, size, offset, epoch.epoch, epoch.start, confirmed)


class SlaveStream:
    """Parser of what a slave sends."""

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes | memoryview) -> Iterator[SlaveHandshake | Ack]:
        """The complete frames in what was received. Raises FrameError."""
        received, at = self._rest + bytes(data), 0
        while len(received) - at >= STATE.size:
            (state,) = STATE.unpack_from(received, at)
            kind = {HANDSHAKE: SLAVE_HANDSHAKE, TRANSFER: SLAVE_ACK}.get(state)
            if kind is None:
                raise FrameError(f"a frame of state {state}: the peer is not a slave in controller mode")
            if len(received) - at < kind.size:
                break
            fields = kind.unpack_from(received, at)
            at += kind.size
            if fields[-1] < 0:
                raise FrameError(f"a slave with id or log end {fields[-1]}")
            if state == HANDSHAKE:
                yield SlaveHandshake(bool(fields[1]), bool(fields[2]), fields[3])
            else:
                yield Ack(fields[1])
        self._rest = received[at:]


class MasterStream:
    """Parser of what a master sends. Holds at most one head or handshake: log bytes are passed on as they come."""

    __slots__ = ("_confirmed", "_epoch", "_held", "_left", "_offset")

    def __init__(self) -> None:
        self._held = b""
        self._left = 0
        self._offset = 0
        self._epoch = Epoch(0, 0)
        self._confirmed = 0

    def feed(self, data: bytes | memoryview) -> Iterator[MasterHandshake | Transfer]:
        """The next frames and parts of frames; parts are slices of ``data``. Raises FrameError."""
        view, at = memoryview(data), 0
        while at < len(view):
            if self._left:
                part = view[at : at + self._left]
                at += len(part)
                offset = self._offset
                self._offset += len(part)
                self._left -= len(part)
                yield Transfer(offset, self._epoch, self._confirmed, part)
                continue
            part = view[at : at + self._wanted() - len(self._held)]
            at += len(part)
            self._held += part
            if len(self._held) < self._wanted():
                continue
            held, self._held = self._held, b""
            if STATE.unpack_from(held)[0] == HANDSHAKE:
                yield _handshake(held)
                continue
            self._begin(held)
            if not self._left:
                yield Transfer(self._offset, self._epoch, self._confirmed, view[:0])

    def _wanted(self) -> int:
        """Bytes that the frame at the start of ``_held`` needs before it is known or complete."""
        held = self._held
        if len(held) < STATE.size:
            return STATE.size
        (state,) = STATE.unpack_from(held)
        if state == TRANSFER:
            return TRANSFER_HEAD.size
        if state != HANDSHAKE:
            raise FrameError(f"a frame of state {state}: the peer is not a master in controller mode")
        if len(held) < MASTER_HANDSHAKE.size:
            return MASTER_HANDSHAKE.size
        size = MASTER_HANDSHAKE.unpack_from(held)[1]
        if size % EPOCH_ENTRY.size or not 0 <= size <= MAX_ENTRIES * EPOCH_ENTRY.size:
            raise FrameError(f"a handshake with {size} bytes of epochs")
        return MASTER_HANDSHAKE.size + int(size)

    def _begin(self, head: bytes) -> None:
        _, size, offset, epoch, start, confirmed = TRANSFER_HEAD.unpack(head)
        if not 0 <= size <= MAX_BODY or not 0 <= offset <= INT64_MAX - size:
            raise FrameError(f"a frame of {size} bytes for offset {offset}")
        # Apache's master names the next epoch already in the last frame of one.
        if size and (epoch < 0 or not 0 <= start <= offset + size):
            raise FrameError(f"a frame for offset {offset} of epoch {epoch}, which begins at {start}")
        self._left, self._offset = size, offset
        self._epoch, self._confirmed = Epoch(epoch, start), confirmed


def _handshake(held: bytes) -> MasterHandshake:
    _, _, end, _ = MASTER_HANDSHAKE.unpack_from(held)
    entries = [Epoch(*one) for one in EPOCH_ENTRY.iter_unpack(held[MASTER_HANDSHAKE.size :])]
    if end < 0:
        raise FrameError(f"a master whose log ends at {end}")
    try:
        return MasterHandshake(end, Epochs(entries))
    except EpochError as error:
        raise FrameError(f"a handshake with {error}") from None
