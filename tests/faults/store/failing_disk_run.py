"""The life of a store on a disk whose operations fail at random: refused, broken off, or never synced."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from faults.store.store_run import StoreLife
from orbitmq.store import AppendRefusedError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

OPERATIONS = (
    "sync", "sync", "sync", "sync_dir", "pwrite", "create", "reserve", "map", "remove", "rename", "write", "zero",
    "pread", "stat", "list",
)  # fmt: skip
PLACES = ("commitlog", "consumequeue", "index", "checkpoint", "orbitmq.queues", "abort", "")
ERRORS = (errno.EIO, errno.EIO, errno.ENOSPC, errno.EMFILE, errno.EACCES)


class FailingLife(StoreLife):
    """One store through many faults, with a power cut or a restart after each spell of them.

    Beside what ``StoreLife`` holds the store to: a message that was refused is never served.
    """

    def live(self, cuts: int) -> None:
        self._open()
        while self.cuts < cuts:
            self._arm()
            for _ in range(self.rng.choice((5, 40, 150))):
                try:
                    self._step()
                except (StoreError, OSError):
                    if not self.store.is_open:
                        break
            self.disk.heal()
            if self.store.is_open:
                self._check_what_is_shown()
            self._restart()
            self.check()
        self.store.close()

    def _arm(self) -> None:
        """Let some operations to come fail."""
        rng = self.rng
        for _ in range(rng.randrange(1, 4)):
            self.disk.fail(
                rng.choice(OPERATIONS),
                after=rng.randrange(12),
                error=rng.choice(ERRORS),
                times=rng.choice((1, 1, 2, 5)),
                path_contains=rng.choice(PLACES),
            )
        self.disk.short_writes(rng.choice((0.0, 0.5)))

    def _restart(self) -> None:
        """End this process, or the machine, and open the store again, on a disk that may still fail."""
        if self.store.is_open and self.rng.random() < 0.3:
            try:
                self.store.close()
            except (StoreError, OSError):
                self.disk = self.disk.kill()
            self.cuts += 1
            self.unacknowledged.clear()
        else:
            self._cut()
        while True:
            self.disk.heal()
            if self.rng.random() < 0.3:
                self._arm()
            try:
                self._open()
                self.disk.heal()
                return
            except StoreError:
                if self.rng.random() < 0.5:
                    self._cut()

    def _check_what_is_shown(self) -> None:
        """Whatever failed, readers still get what was flushed."""
        served: dict[bytes, int] = {}
        self._check_queues(served)
        for sent in self.acknowledged:
            assert sent.body in served or sent.end <= self.store.log.start or self._is_not_shown(sent.end)

    def _is_not_shown(self, end: int) -> bool:
        """Flushed, but a queue could not be written or read: it is shown when it can, or after a restart."""
        return end > self.store.dispatcher.position

    def _append(self) -> None:
        self._forget_if_refused(super()._append)

    def _append_batch(self) -> None:
        self._forget_if_refused(super()._append_batch)

    def _forget_if_refused(self, append: Callable[[], None]) -> None:
        known = len(self.sent)
        try:
            append()
        except AppendRefusedError:
            for body in list(self.sent)[known:]:
                del self.sent[body]
            raise
