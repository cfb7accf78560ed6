"""Transaction checks: asks producers for the outcome of half messages that were not ended.

Each pass goes over the half messages from the first that was not ended. One that is old enough is appended to its
queue again, and a producer of its group gets CHECK_TRANSACTION_STATE; it responds with END_TRANSACTION if it knows
the outcome. After ``transactionCheckMax`` checks the message moves to a topic for manual inspection.

A pass works in slices of about a millisecond, so it does not block the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import struct
from typing import TYPE_CHECKING

from orbitmq.broker.deferred.delivery_loop import SLICE_BYTES
from orbitmq.broker.deferred.property_room import fitted, property_limit
from orbitmq.broker.deferred.record_copy import copied, decode_for_append
from orbitmq.broker.quarantine import TRANSACTIONS, is_transient
from orbitmq.broker.transaction.half_state import ENDED, PENDING
from orbitmq.broker.transaction.op_queue import ended_by
from orbitmq.broker.transaction.processor import CHECK_TIMES, IMMUNITY, PRODUCER_GROUP, immunity_ms, target_queue_of
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.java import decode_utf8
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.flags import PERM_READ_WRITE
from orbitmq.protocol.message.properties import find, with_property
from orbitmq.protocol.message.record import MAX_PROPERTIES_SIZE, MAX_TOPIC_SIZE_V1, encode_record
from orbitmq.protocol.names import (
    TRANSACTION_GIVEN_UP_TOPIC,
    TRANSACTION_GROUP,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_TOPIC,
)
from orbitmq.remoting import RemotingError
from orbitmq.remoting.processor import RequestRefusedError
from orbitmq.store import AppendRefusedError, PutStatus, StoreError
from orbitmq.store.consumequeue.consume_queue import FILLER_SIZE, UNIT

if TYPE_CHECKING:
    from orbitmq.broker.clients.registry import Clients
    from orbitmq.broker.metadata.topics import TopicTable
    from orbitmq.broker.offsets.table import OffsetTable
    from orbitmq.broker.runtime import BrokerRuntime
    from orbitmq.broker.transaction.half_state import HalfQueueState
    from orbitmq.broker.transaction.processor import Transactions
    from orbitmq.protocol.message.record import Record
    from orbitmq.remoting import Connection
    from orbitmq.store.consumequeue.consume_queue import ConsumeQueue

log = logging.getLogger("orbitmq.broker")

SLICE_HALVES = 32
SLICE_OPS = 8
"""Work of one slice. An op message names some six hundred half messages."""

MAX_PASS_MS = 60_000
"""A pass ends after this time, so that its progress is persisted."""

WAIT_SECONDS = 0.01
MAX_WAITS = 100
"""Per pass, for producers that do not read checks as fast as they are sent."""

MIN_INTERVAL_MS = 10

_WAIT = names.WAIT_STORE_OK.encode()
_UNIQ_KEY = names.UNIQUE_KEY.encode()
_PREPARED_OFFSET = names.TRANSACTION_PREPARED_QUEUE_OFFSET.encode()


class Next(enum.Enum):
    """Next step of a pass after a half message, or a slice."""

    ON = "on"
    WAIT = "wait"
    """Until the producers have read their checks."""
    STOP = "stop"


class TransactionChecks:
    """Checks the half messages of a broker between ``start`` and ``stop``."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        topics: TopicTable,
        offsets: OffsetTable,
        clients: Clients,
        transactions: Transactions,
    ) -> None:
        self._config = runtime.config
        self._store = runtime.store
        self._topics = topics
        self._clients = clients
        self._offsets = offsets
        self._transactions = transactions
        self._stats = runtime.stats
        self._clock = runtime.clock
        self._flushed = runtime.flushed
        self._round_robin = 0
        self._waits = 0
        self._unchecked: dict[str, int] = {}
        """By group, the checks of a pass for which no producer was connected."""
        self._task: asyncio.Task[None] | None = None
        self._passing: asyncio.Task[None] | None = None

    # Start and stop

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop checking and persist the progress. ``flushed`` must still work."""
        tasks = [task for task in (self._task, self._passing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._transactions.ops.stop()
        for queue_id in self._transactions.queue_ids():
            await self._persist_progress(queue_id)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(max(self._config.transaction_check_interval, MIN_INTERVAL_MS) / 1000)
            try:
                await self.check()
            except Exception:
                # Without a further pass half messages would wait forever.
                log.exception("transactions: a check pass failed, will retry")

    async def check(self) -> None:
        """Run one pass over all half messages; concurrent calls share it."""
        if self._passing is None:
            self._passing = asyncio.get_running_loop().create_task(self._check_all())
            self._passing.add_done_callback(self._passed)
        await asyncio.shield(self._passing)

    def _passed(self, _: asyncio.Task[None]) -> None:
        self._passing = None

    async def _check_all(self) -> None:
        for queue_id in self._transactions.queue_ids():
            try:
                await self._read_op_backlog(queue_id)
                await self._check_queue(queue_id)
                await self._persist_progress(queue_id)
            except Exception:
                # A queue that fails must not keep the others from being checked.
                log.exception("transactions: the check of half queue %d failed, will retry", queue_id)

    # Op messages of the previous run

    async def _read_op_backlog(self, queue_id: int) -> None:
        """Read the op queue once after a start, for half messages that were ended before."""
        transactions = self._transactions
        half_state = transactions.half_state(queue_id)
        backlog = transactions.op_backlogs.get(queue_id)
        queue = transactions.queue(TRANSACTION_OP_TOPIC, queue_id)
        if backlog is None or queue is None:
            return
        while backlog.begin < backlog.end:
            units = queue.read(backlog.begin, min(SLICE_OPS, backlog.end - backlog.begin))
            if not units:
                raise StoreError(f"unit {backlog.begin} of {queue.directory} cannot be read")
            for physical, _, _ in UNIT.iter_unpack(units):
                ended = [offset for offset in ended_by(self._store.record(physical)) if offset < backlog.half_end]
                for offset in ended:
                    if half_state.state(offset) == PENDING:
                        half_state.end(offset, ENDED)
                transactions.ops.record(queue_id, backlog.begin, max(ended, default=-1))
                backlog.begin += 1
            await asyncio.sleep(0)
        del transactions.op_backlogs[queue_id]

    # One pass

    async def _check_queue(self, queue_id: int) -> None:
        queue = self._transactions.queue(TRANSACTION_HALF_TOPIC, queue_id)
        if queue is None:
            return
        began = self._clock.now_ms()
        half_state = self._transactions.half_state(queue_id)
        self._waits = 0
        self._unchecked.clear()
        complaint = ""
        while self._clock.now_ms() - began <= MAX_PASS_MS:
            try:
                after = self._run_slice(queue, half_state, began)
            except (StoreError, OSError, RequestRefusedError) as error:
                complaint = str(error)
                break
            if after is Next.STOP:
                break
            await asyncio.sleep(WAIT_SECONDS if after is Next.WAIT else 0)
        for group, count in self._unchecked.items():
            log.warning(
                "transactions: no producer of group %s is connected to check %d half messages", group, count
            )
        if complaint:
            log.warning(
                "transactions: the check of half queue %d stopped at offset %d, will retry: %s",
                queue_id,
                half_state.base,
                complaint,
            )
        self._transactions.flush_soon()

    def _run_slice(self, queue: ConsumeQueue, half_state: HalfQueueState, began: int) -> Next:
        """Process the next half messages. Raises StoreError if one has to be retried later."""
        half_state.pass_ended()
        if half_state.base < queue.min_offset:
            half_state.pass_over(queue.min_offset)  # the oldest messages have expired
        if half_state.base >= queue.end:
            return Next.STOP
        units = queue.read(half_state.base, SLICE_HALVES)
        if not units:
            raise StoreError(f"unit {half_state.base} of {queue.directory} cannot be read")
        room = SLICE_BYTES
        for offset, (physical, size, _) in enumerate(UNIT.iter_unpack(units), half_state.base):
            if room <= 0:
                break
            if size != FILLER_SIZE and half_state.state(offset) == PENDING:
                half = self._half(physical)
                after = Next.ON if half is None else self._check_or_skip(half, queue.queue_id, half_state, began)
                if after is not Next.ON:
                    return after
                room -= size
            half_state.pass_over(offset + 1)
        return Next.ON

    def _half(self, physical: int) -> Record | None:
        problem: object = "no intact record there"
        half: Record | None = None
        try:
            record = self._store.record(physical)
            half = None if record is None else decode_for_append(record)
        except (ProtocolError, struct.error, ValueError) as error:
            problem = error
        if half is not None and half.topic != TRANSACTION_HALF_TOPIC:
            problem = f"it is a record of topic {half.topic}"
            half = None
        if half is None:
            self._stats.quarantine.skip(TRANSACTIONS, f"the half message at {physical}", problem)
        return half

    def _check_or_skip(self, half: Record, queue_id: int, half_state: HalfQueueState, began: int) -> Next:
        """Check one half message, or move it aside if that is impossible. Raises StoreError."""
        try:
            return self._check_half(half, queue_id, half_state, began)
        except Exception as error:
            if is_transient(error):
                raise
            record = f"half message {half.queue_offset} of queue {queue_id} at {half.physical_offset}"
            self._stats.quarantine.skip(TRANSACTIONS, record, f"{type(error).__name__}: {error}")
        try:
            self._give_up(half)
        except Exception as error:
            if is_transient(error):
                raise
            log.exception(
                "transactions: failed to move the half message at %d aside, skipped it", half.physical_offset
            )
        return Next.ON

    def _check_half(self, half: Record, queue_id: int, half_state: HalfQueueState, began: int) -> Next:
        """Check one half message that was not ended. Raises StoreError."""
        config = self._config
        now = self._clock.now_ms()
        age = now - half.born_timestamp
        if half.store_timestamp >= began:
            return Next.STOP  # before all else: a producer has until the next pass to respond to the last check
        times = _number(find(half.properties, CHECK_TIMES))
        if times >= config.transaction_check_max or age > self._store.config.file_reserved_time * 3_600_000:
            self._give_up(half)
            return Next.ON
        timeout = config.transaction_time_out
        immunity_text = find(half.properties, IMMUNITY)
        if immunity_text is None and 0 <= age <= timeout:
            return Next.STOP
        immunity = None if immunity_text is None else immunity_ms(immunity_text)
        try:
            if immunity_text is not None and age <= (timeout if immunity is None else immunity):
                self._postpone_check(half, queue_id, half_state)
                return Next.ON
            return self._send_check(half, queue_id, half_state, times + 1)
        except AppendRefusedError as error:
            if error.status is not PutStatus.PROPERTIES_SIZE_EXCEEDED:
                raise
            # Its properties leave no room for one more.
            self._give_up(half)
            return Next.ON

    def _postpone_check(self, half: Record, queue_id: int, half_state: HalfQueueState) -> None:
        """Append a message again whose producer check_properties for a later check. Does not count as a check.

        The copy carries the offset of the original, the only one that its producer knows.
        """
        known = find(half.properties, _PREPARED_OFFSET)
        first = _number(known, half.queue_offset)
        if half_state.state(first) != PENDING:
            return
        properties = half.properties
        if known is None:
            properties = with_property(properties, _PREPARED_OFFSET, b"%d" % first)
        copy, _ = self._transactions.put_half(half, queue_id, properties)
        half_state.put_back(half.queue_offset, copy)
        if not half_state.is_put_back(first):
            half_state.put_back(first, copy)

    def _give_up(self, half: Record) -> None:
        """Move a message that was never ended to the topic for manual inspection. Raises StoreError."""
        try:
            topic, _ = target_queue_of(half)
        except RequestRefusedError:
            topic = ""
        log.error("transactions: gave up half message %s of topic %s: it was never ended", _key(half), topic)
        # A full topic table may have room later: the checks must not stop for that.
        with contextlib.suppress(RequestRefusedError):
            self._topics.create_at_once(TRANSACTION_GIVEN_UP_TOPIC, 1, PERM_READ_WRITE)
        properties = fitted(half.properties, property_limit(self._store))
        copy = copied(half, TRANSACTION_GIVEN_UP_TOPIC, 0, properties)
        appended = self._store.append(copy, is_stored=True)
        self._stats.put_by_broker(TRANSACTION_GIVEN_UP_TOPIC, 0, 1, appended.size)
        self._transactions.counts.add(topic, -1)

    # Checks

    def _send_check(self, half: Record, queue_id: int, half_state: HalfQueueState, times: int) -> Next:
        group = decode_utf8(find(half.properties, PRODUCER_GROUP) or b"")
        producer = self._producer(group)
        if producer is None and self._clients.producers.get(group) and self._waits < MAX_WAITS:
            self._waits += 1
            return Next.WAIT
        properties = with_property(half.properties, CHECK_TIMES, b"%d" % times)
        copy, physical = self._transactions.put_half(half, queue_id, properties)
        half_state.put_back(half.queue_offset, copy)
        if producer is None:
            self._unchecked[group] = self._unchecked.get(group, 0) + 1
            return Next.ON
        try:
            producer.call_oneway(self._check_request(half, properties, copy, physical))
        except (RemotingError, RequestRefusedError, ProtocolError) as error:
            log.warning("transactions: check of %s not sent to %s: %s", _key(half), producer.remote_address, error)
        return Next.ON

    def _producer(self, group: str) -> Connection | None:
        """The next producer of a group, round robin, whose connection is writable."""
        members = list(self._clients.producers.get(group, ()))
        self._round_robin += 1
        for number in range(len(members)):
            connection = members[(self._round_robin + number) % len(members)]
            if connection.is_writable and not connection.is_closing:
                return connection
        return None

    def _check_request(self, half: Record, properties: bytes, copy: int, physical: int) -> Command:
        """CHECK_TRANSACTION_STATE with the message as its consumers would get it and the offset of its newest
        copy."""
        topic, queue_id = target_queue_of(half)
        key = find(half.properties, _UNIQ_KEY)
        fields = {
            "topic": TRANSACTION_HALF_TOPIC,
            "tranStateTableOffset": str(copy),
            "commitLogOffset": str(physical),
            "offsetMsgId": self._store.message_id(physical),
            "bname": self._config.broker_name,
        }
        if key is not None:
            fields["msgId"] = fields["transactionId"] = decode_utf8(key)
        name = topic.encode("utf-8", "replace")
        check_properties = with_property(properties, _WAIT, b"false")
        if len(check_properties) > MAX_PROPERTIES_SIZE:
            check_properties = fitted(properties, MAX_PROPERTIES_SIZE)
        body = encode_record(
            topic=name,
            queue_id=queue_id,
            body=half.body,
            properties=check_properties,
            queue_offset=copy,
            physical_offset=physical,
            flag=half.flag,
            sys_flag=half.sys_flag,
            born_timestamp=half.born_timestamp,
            born_host=half.born_host,
            store_timestamp=half.store_timestamp,
            store_host=half.store_host,
            reconsume_times=half.reconsume_times,
            version_2=len(name) > MAX_TOPIC_SIZE_V1,
        )
        return Command(RequestCode.CHECK_TRANSACTION_STATE, ext_fields=fields, body=body)

    # Progress

    async def _persist_progress(self, queue_id: int) -> None:
        """Persist the progress after a flush of the copies, commits and given-up messages before it.

        In the other order a power failure could leave a message that is neither pending nor anywhere else.
        """
        half = self._transactions.half_state(queue_id).base
        ops = self._transactions.ops.first_needed(queue_id, half)
        if (half, ops) == (
            self._persisted(TRANSACTION_HALF_TOPIC, queue_id),
            self._persisted(TRANSACTION_OP_TOPIC, queue_id),
        ):
            return
        try:
            await self._flushed(self._store.log.end)
        except StoreError as error:
            log.warning("transactions: failed to persist check progress: %s", error)
            return
        self._offsets.commit(TRANSACTION_GROUP, TRANSACTION_HALF_TOPIC, queue_id, half)
        self._offsets.commit(TRANSACTION_GROUP, TRANSACTION_OP_TOPIC, queue_id, ops)

    def _persisted(self, topic: str, queue_id: int) -> int:
        return max(self._offsets.query(TRANSACTION_GROUP, topic, queue_id), 0)


def _number(text: bytes | None, default: int = 0) -> int:
    return int(text) if text is not None and text.isdigit() and len(text) <= 18 else default


def _key(half: Record) -> str:
    return decode_utf8(find(half.properties, _UNIQ_KEY) or b"without a key")
