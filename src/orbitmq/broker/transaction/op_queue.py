"""Op queue: persists which half messages were ended, so that they are not checked again after a restart.

An op message names many half messages, those of a few seconds. Pending op messages are lost if the broker is
killed: producers then get another check for transactions that they have ended, as in RocketMQ.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import struct
from typing import TYPE_CHECKING

from orbitmq.broker.deferred.delivery_loop import RepeatedWarning
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.properties import find
from orbitmq.protocol.message.record import decode_record
from orbitmq.protocol.names import TRANSACTION_OP_TOPIC
from orbitmq.store import StoredMessage, StoreError

if TYPE_CHECKING:
    from orbitmq.broker.runtime import BrokerRuntime

log = logging.getLogger("orbitmq.broker")

MAX_PENDING = 20_000
"""Ended half messages of a queue that wait to be written; reached only while the store refuses appends."""

RETRY_SECONDS = 1.0

PROPERTIES = b"WAIT\x01true\x02TAGS\x01d\x02"
_TAGS = names.TAGS.encode()
_REMOVED = b"d"
_MAX_DIGITS = 18


@dataclasses.dataclass(slots=True)
class _Batch:
    last_write_ms: int
    offsets: list[int] = dataclasses.field(default_factory=list)
    size: int = 0


class OpQueue:
    """Writes op messages in batches, and tracks which of them are still needed.

    Each is written after a flush of the commits it stands for: a power failure that lost a committed message but
    not its op message would lose the transaction.
    """

    def __init__(
        self,
        runtime: BrokerRuntime,
    ) -> None:
        self._config = runtime.config
        self._store = runtime.store
        self._stats = runtime.stats
        self._clock = runtime.clock
        self._flushed = runtime.flushed
        self._batches: dict[int, _Batch] = {}
        """By the id of the half queue, which equals that of its op queue."""
        self._highest: dict[int, dict[int, int]] = {}
        """By queue id and op message offset, the highest half message that it names."""
        self._first: dict[int, int] = {}
        """By queue id, the first op message that is still needed."""
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._warning = RepeatedWarning()
        self._is_stopped = False

    # Writing

    def has_room(self, queue_id: int) -> bool:
        """True if one more half message can be ended."""
        batch = self._batches.get(queue_id)
        return batch is None or len(batch.offsets) < MAX_PENDING

    def add(self, queue_id: int, offsets: list[int]) -> None:
        """Queue ended half messages for the next op message."""
        batch = self._batches.get(queue_id)
        if batch is None:
            batch = self._batches[queue_id] = _Batch(self._clock.now_ms())
        batch.offsets += offsets
        batch.size += sum([len(b"%d," % offset) for offset in offsets])
        if self._writing is not None or self._warning.text or self._is_stopped:
            return
        if batch.size > self._config.transaction_op_msg_max_size:
            self._begin()
        elif self._timer is None:
            self._begin_later(batch)

    def _begin_later(self, batch: _Batch) -> None:
        waited = self._clock.now_ms() - batch.last_write_ms
        interval = self._config.transaction_op_batch_interval
        # A clock that was set back makes the waited time negative.
        seconds = min(max(interval - waited, 0), interval) / 1000
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    def _begin(self) -> asyncio.Task[None]:
        self._forget_timer()
        if self._writing is None:
            self._writing = asyncio.get_running_loop().create_task(self._write_all())
            self._writing.add_done_callback(self._done)
        return self._writing

    def _done(self, writing: asyncio.Task[None]) -> None:
        self._writing = None
        if writing.cancelled() or self._is_stopped:
            return
        error = writing.exception()
        if error is not None:
            # Without a retry nothing would be written until the broker stops.
            log.error("transactions: writing op messages failed, will retry in %g s", RETRY_SECONDS, exc_info=error)
        if self._warning.text or error is not None:
            self._timer = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._begin)
            return
        for batch in self._batches.values():
            if batch.size > self._config.transaction_op_msg_max_size:
                self._begin()
            elif batch.offsets and self._timer is None:
                self._begin_later(batch)

    def _forget_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def write(self) -> None:
        """Write everything pending; what the store refuses stays pending."""
        if self._writing is not None:
            # It began before some of that was queued.
            await asyncio.gather(self._writing, return_exceptions=True)
        await asyncio.gather(self._begin(), return_exceptions=True)

    async def stop(self) -> None:
        """Write everything pending and stop retrying."""
        self._is_stopped = True
        await self.write()
        self._forget_timer()

    async def _write_all(self) -> None:
        """Write what is pending now, after a flush of the commits it stands for."""
        waiting = [(queue_id, batch, len(batch.offsets)) for queue_id, batch in self._batches.items()]
        try:
            await self._flushed(self._store.log.end)
            for queue_id, batch, count in waiting:
                left = count
                while left > 0:
                    left -= self._write_one(queue_id, batch, left)
                    # Offsets queued meanwhile come after these and wait for the next write.
                    await asyncio.sleep(0)
        except (StoreError, OSError) as error:
            self._warning.log(
                f"transactions: writing op messages failed, will retry in {RETRY_SECONDS:g} s: {error}", error
            )
        else:
            self._warning.clear()

    def _write_one(self, queue_id: int, batch: _Batch, most_offsets: int) -> int:
        """Write one op message of up to ``most_offsets`` half messages; returns their number. Raises StoreError."""
        most = min(self._config.transaction_op_msg_max_size, self._store.config.max_message_size - _MAX_DIGITS)
        body = bytearray()
        count = 0
        for offset in batch.offsets:
            body += b"%d," % offset
            count += 1
            if len(body) >= most or count >= most_offsets:
                break
        now = self._clock.now_ms()
        appended = self._store.append(
            StoredMessage(
                TRANSACTION_OP_TOPIC, queue_id, bytes(body), PROPERTIES, born_timestamp=now,
                born_host=self._store.log.store_host,
            )
        )  # fmt: skip
        self._stats.put_by_broker(TRANSACTION_OP_TOPIC, queue_id, 1, appended.size)
        self.record(queue_id, appended.queue_offset, max(batch.offsets[:count]))
        del batch.offsets[:count]
        batch.size -= len(body)
        batch.last_write_ms = now
        return count

    # Reading and trimming

    def begin_at(self, queue_id: int, op_offset: int) -> None:
        """Op messages before this offset are not needed any more."""
        self._first[queue_id] = op_offset

    def record(self, queue_id: int, op_offset: int, highest: int) -> None:
        """Record an op message that names half messages up to ``highest``."""
        self._highest.setdefault(queue_id, {})[op_offset] = highest

    def first_needed(self, queue_id: int, half_offset: int) -> int:
        """The first op message that names a half message at or after this one, or was not read yet."""
        highest = self._highest.get(queue_id, {})
        first = self._first.get(queue_id, 0)
        while highest.get(first, half_offset) < half_offset:
            del highest[first]
            first += 1
        self._first[queue_id] = first
        return first


def ended_by(record: memoryview | None) -> list[int]:
    """The half messages that an op message names: one in old stores, many in others."""
    try:
        found = None if record is None else decode_record(record)
    except (ProtocolError, struct.error, ValueError):
        found = None
    if found is None or find(found.properties, _TAGS) != _REMOVED:
        return []
    texts = found.body.split(b",")
    return [int(text) for text in texts if text.isdigit() and len(text) <= _MAX_DIGITS]
