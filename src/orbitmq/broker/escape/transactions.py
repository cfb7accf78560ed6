"""Transactions of an acting slave: half messages of the dead master whose outcome is not known.

Each goes through the outbox to another master as a half message, which asks its producers for the outcome. Progress
counts those that are stored there, so that the master does not ask for them again when it is back.

Of transactions that ended shortly before the master died, the op messages are missing. What was committed is in the
log, so it is not sent; what was rolled back is checked once more, with the same outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import struct
from typing import TYPE_CHECKING

from orbitmq.broker.deferred.record_copy import copied, decode_for_append
from orbitmq.broker.quarantine import TRANSACTIONS
from orbitmq.broker.transaction.op_queue import ended_by
from orbitmq.broker.transaction.processor import CHECK_TIMES, target_queue_of
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.flags import TRANSACTION_COMMIT, TRANSACTION_MASK, TRANSACTION_PREPARED
from orbitmq.protocol.message.properties import find, with_property, without
from orbitmq.protocol.message.record import SYS_FLAG_AT, decode_record
from orbitmq.protocol.names import TRANSACTION_GROUP, TRANSACTION_HALF_TOPIC, TRANSACTION_OP_TOPIC
from orbitmq.remoting.processor import RequestRefusedError
from orbitmq.store import AppendRefusedError, StoreError
from orbitmq.store.consumequeue.consume_queue import FILLER_SIZE, UNIT

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.broker.escape.bridge import EscapeBridge
    from orbitmq.broker.offsets.table import OffsetTable
    from orbitmq.broker.runtime import BrokerRuntime
    from orbitmq.broker.transaction.processor import Transactions
    from orbitmq.protocol.message.record import Record
    from orbitmq.store.consumequeue.consume_queue import ConsumeQueue

log = logging.getLogger("orbitmq.broker")

SLICE = 64
"""Half messages, or op messages, processed before the event loop runs something else."""

SLICE_BYTES = 1 << 20
MAX_SCAN = 256 << 20
"""Bytes before the end of the log that are searched for commits without an op message."""

BATCH = 500
"""Half messages after which progress is written."""

RETRY_SECONDS = 5.0
ROOM_SECONDS = 0.02

_HEAD = struct.Struct(">I")
_UNIQ_KEY = names.UNIQUE_KEY.encode()
_TRAN_MSG = names.TRANSACTION_PREPARED.encode()
_OF_THE_OLD_COPY = (
    CHECK_TIMES,
    names.TRANSACTION_PREPARED_QUEUE_OFFSET.encode(),
    names.TRANSACTION_ID.encode(),
)


class EscapeTransactions:
    """Sends half messages to other masters, between ``begin`` and ``finish``."""

    def __init__(
        self, runtime: BrokerRuntime, offsets: OffsetTable, transactions: Transactions, bridge: EscapeBridge
    ) -> None:
        self._store = runtime.store
        self._stats = runtime.stats
        self._offsets = offsets
        self._transactions = transactions
        self._bridge = bridge
        self._task: asyncio.Task[None] | None = None
        self._sent_to: dict[int, int] = {}
        """By half queue, the offset before which all were put into the outbox."""

    def begin(self) -> None:
        self._sent_to.clear()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def finish(self) -> None:
        """End, and count what other masters have stored. Raises StoreError."""
        self.drop()
        await self._commit()

    def drop(self) -> None:
        """End, and leave what was not sent to the master."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            try:
                for queue_id in self._transactions.queue_ids():
                    queue = self._transactions.queue(TRANSACTION_HALF_TOPIC, queue_id)
                    if queue is not None:
                        await self._send_queue(queue)
            except Exception as error:
                trace = None if isinstance(error, (StoreError, OSError)) else error
                log.warning("escape: half messages were not sent, will retry: %s", error, exc_info=trace)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return  # the log of a slave without its master gets no more of them

    async def _send_queue(self, queue: ConsumeQueue) -> None:
        pending = await self._pending(queue)
        for count, (offset, physical) in enumerate(pending, 1):
            message = self._half(physical)
            while message is not None and not self._put(message):  # noqa: ASYNC110  # a retry, not a condition
                await asyncio.sleep(ROOM_SECONDS)
            self._sent_to[queue.queue_id] = offset + 1
            if not count % BATCH:
                await self._commit()
        self._sent_to[queue.queue_id] = queue.end
        await self._commit()
        if pending:
            log.info("escape: %d half messages are checked by other masters", len(pending))

    async def _commit(self) -> None:
        sent_to = dict(self._sent_to)
        await self._bridge.sent()
        for queue_id, offset in sent_to.items():
            if offset > self._progress(TRANSACTION_HALF_TOPIC, queue_id):
                self._offsets.commit(TRANSACTION_GROUP, TRANSACTION_HALF_TOPIC, queue_id, offset)

    def _put(self, half: Record) -> bool:
        """Put a half message into the outbox; False if it is full."""
        try:
            topic, queue_id = target_queue_of(half)
        except RequestRefusedError as error:
            self._stats.quarantine.skip(TRANSACTIONS, f"the half message at {half.physical_offset}", error)
            return True
        properties = with_property(without(half.properties, _OF_THE_OLD_COPY), _TRAN_MSG, b"true")
        sys_flag = half.sys_flag & ~TRANSACTION_MASK | TRANSACTION_PREPARED
        try:
            self._bridge.append(copied(half, topic, queue_id, properties)._replace(sys_flag=sys_flag))
        except AppendRefusedError:
            return False
        return True

    def _half(self, physical: int) -> Record | None:
        try:
            record = self._store.record(physical)
            return None if record is None else decode_for_append(record)
        except (ProtocolError, struct.error, ValueError) as error:
            self._stats.quarantine.skip(TRANSACTIONS, f"the half message at {physical}", error)
            return None

    # What is pending

    async def _pending(self, queue: ConsumeQueue) -> list[tuple[int, int]]:
        """Queue offset and log offset of the newest copy of each half message that has not ended, in order."""
        begin = max(self._progress(TRANSACTION_HALF_TOPIC, queue.queue_id), queue.min_offset)
        if begin >= queue.end:
            return []
        ended, op_end = await self._ended(queue.queue_id, begin)
        newest: dict[bytes, tuple[int, int]] = {}
        copies: dict[int, bytes] = {}
        async for offset, physical in _units(queue, begin):
            half = None if offset in ended else self._half(physical)
            if half is not None:
                key = find(half.properties, _UNIQ_KEY) or b"%d" % physical
                newest.pop(key, None)
                newest[key] = offset, physical
                copies[physical] = key
        if newest:
            async for physical in self._commits(max(op_end, min(copies))):
                newest.pop(copies.get(physical, b""), None)
        return list(newest.values())

    async def _ended(self, queue_id: int, begin: int) -> tuple[set[int], int]:
        """Half messages from ``begin`` on that ended, and the log offset behind which ends have no op message."""
        ended: set[int] = set()
        last = [0, 0]
        queue = self._transactions.queue(TRANSACTION_OP_TOPIC, queue_id)
        if queue is not None:
            first = max(self._progress(TRANSACTION_OP_TOPIC, queue_id), queue.min_offset)
            async for _, physical in _units(queue, first):
                ended.update(offset for offset in ended_by(self._store.record(physical)) if offset >= begin)
                # While the last one was written, others ended.
                last = [last[1], physical]
        return ended, last[0]

    async def _commits(self, start: int) -> AsyncIterator[int]:
        """The log offsets of half messages that were committed, from the records from ``start`` on."""
        store_log = self._store.log
        if store_log.end - start > MAX_SCAN:
            return  # their producers are asked once more
        at, read = start, 0
        while at < store_log.end:
            head = store_log.slice(at, _HEAD.size)
            size = 0 if head is None else _HEAD.unpack(head)[0]
            record = store_log.slice(at, size) if size > SYS_FLAG_AT + 4 else None
            if (
                record is not None
                and len(record) == size
                and record[SYS_FLAG_AT + 3] & TRANSACTION_MASK == TRANSACTION_COMMIT
            ):
                with contextlib.suppress(ProtocolError, struct.error, ValueError):
                    yield decode_record(record).prepared_transaction_offset
            # The end of a file is filled by a record without a message.
            at += size if size >= _HEAD.size else store_log.file_size - at % store_log.file_size
            read += size
            if read >= SLICE_BYTES:
                read = 0
                await asyncio.sleep(0)

    def _progress(self, topic: str, queue_id: int) -> int:
        return max(self._offsets.query(TRANSACTION_GROUP, topic, queue_id), 0)


async def _units(queue: ConsumeQueue, begin: int) -> AsyncIterator[tuple[int, int]]:
    """Offset and log offset of the messages of a queue. Raises StoreError."""
    while begin < queue.end:
        units = queue.read(begin, min(SLICE, queue.end - begin))
        if not units:
            raise StoreError(f"unit {begin} of {queue.directory} cannot be read")
        for offset, (physical, size, _) in enumerate(UNIT.iter_unpack(units), begin):
            if size != FILLER_SIZE:
                yield offset, physical
        begin += len(units) // UNIT.size
        await asyncio.sleep(0)
