"""AutoSwitchConnection (RocketMQ: AutoSwitchHAConnection): the master's end of an HA connection with a handshake.

The slave gets the epochs of the log first and cuts its own where they begin to differ. A frame has bytes of one
epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.ha.slave_connection import UNKNOWN, SlaveConnection
from orbitmq.store.replication.autoswitch_frames import (
    MAX_BODY,
    Ack,
    MasterHandshake,
    SlaveHandshake,
    SlaveStream,
    transfer_head,
)
from orbitmq.store.replication.epochs import Epoch

if TYPE_CHECKING:
    from orbitmq.broker.autoswitch.master import AutoSwitchMaster

MIN_ID = 1


class AutoSwitchConnection(SlaveConnection):
    """One connected slave in controller mode."""

    def __init__(self, master: AutoSwitchMaster) -> None:
        super().__init__(master)
        self._autoswitch = master
        self._stream = SlaveStream()
        self.broker_id = 0
        """Its id at the controller; 0 before the handshake."""
        self.is_learner = False
        self._is_from_last_file = False
        self._end_at_push = UNKNOWN
        self._epoch_at: tuple[Epoch, int] | None = None
        self._confirmed_sent = UNKNOWN

    @property
    def counts(self) -> bool:
        """True if it may be in the sync state set."""
        return self.broker_id >= MIN_ID and not self.is_learner and self.next != UNKNOWN

    @property
    def is_at_end(self) -> bool:
        """True if it has everything that the log had when the last part of it was sent."""
        return self.acked >= min(self._end_at_push, self._store.log.committed) and self.next != UNKNOWN

    def _read(self, data: bytes) -> int | None:
        end: int | None = None
        for frame in self._stream.feed(data):
            if isinstance(frame, Ack):
                end = frame.end
            else:
                self._greet(frame)
        return end

    def _report(self, end: int) -> None:
        if not self.broker_id:
            self.close("it acknowledges before its handshake: the slave is not in controller mode")
            return
        super()._report(end)

    def _greet(self, handshake: SlaveHandshake) -> None:
        if handshake.broker_id < MIN_ID or handshake.broker_id == self._autoswitch.own_id:
            self.close(f"it has the id {handshake.broker_id}: ids of replicas are above 0 and differ")
            return
        if self.next != UNKNOWN:
            self.close("it repeats its handshake while it copies the log")
            return
        self.broker_id = handshake.broker_id
        self.is_learner, self._is_from_last_file = handshake.is_learner, handshake.is_from_last_file
        self._autoswitch.greeted(self)
        self._write([MasterHandshake(self._store.log.committed, self._autoswitch.epochs).encode()])

    @property
    def _starts_at_last_file(self) -> bool:
        return self._is_from_last_file or super()._starts_at_last_file

    def push(self) -> None:
        self._end_at_push = self._store.log.committed
        super().push()

    def _head(self, size: int) -> tuple[bytes, int]:
        """The head of a frame that ends where its epoch does."""
        found = self._epoch_at
        epochs = self._autoswitch.epochs
        if found is None or not found[0].start <= self.next < found[1] or found[0].epoch != epochs.last_epoch:
            found = self._epoch_at = epochs.at(self.next) or (Epoch(0, 0), self.next + size)
        epoch, end = found
        size = min(size, end - self.next, MAX_BODY)
        self._confirmed_sent = confirmed = self._autoswitch.confirmed
        return transfer_head(size, self.next, epoch, confirmed), size

    def tick(self, now: float) -> None:
        super().tick(now)
        is_idle = self.next == self._store.log.committed and not self._is_paused
        if is_idle and self._confirmed_sent < self._autoswitch.confirmed and not self.is_closing:
            # RocketMQ's slaves see the newest records with the next ones, or after 5 s.
            self._last_write = now
            self._write([self._head(0)[0]])
