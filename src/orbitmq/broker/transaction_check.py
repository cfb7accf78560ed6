"""Asks producers what became of transactions that they have not ended.

Every now and then the half messages are looked at from the first that is not ended. One that is old enough is put
back at the end of its queue, and a producer of its group is asked about it (CHECK_TRANSACTION_STATE); it answers
with END_TRANSACTION, if it knows. After so many questions without an answer the message goes to a topic for people.

A pass works in turns of a millisecond or so, between which everybody else has the loop.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.rebuilding import rebuild
from orbitmq.broker.transaction import CHECK_TIMES, IMMUNITY, PRODUCER_GROUP, immunity_ms, place_of
from orbitmq.broker.transaction_ledger import ENDED, PENDING
from orbitmq.broker.transaction_ops import ended_by
from orbitmq.protocol import property_names as names
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.flags import PERM_READ_WRITE
from orbitmq.protocol.java import decode_utf8
from orbitmq.protocol.names import (
    TRANSACTION_GIVEN_UP_TOPIC,
    TRANSACTION_GROUP,
    TRANSACTION_HALF_TOPIC,
    TRANSACTION_OP_TOPIC,
)
from orbitmq.protocol.properties import find, with_property
from orbitmq.protocol.record import MAX_TOPIC_SIZE_V1, encode_record
from orbitmq.remoting import RemotingError
from orbitmq.remoting.processing import RequestRefusedError
from orbitmq.store import AppendRefusedError, PutStatus, StoreError
from orbitmq.store.consume_queue import FILLER_SIZE, UNIT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.broker.clients import Clients
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.offsets import OffsetTable
    from orbitmq.broker.stats import BrokerStats
    from orbitmq.broker.topics import TopicTable
    from orbitmq.broker.transaction import Transactions
    from orbitmq.broker.transaction_ledger import HalfLedger
    from orbitmq.protocol.record import Record
    from orbitmq.remoting import Connection
    from orbitmq.store import Clock, MessageStore
    from orbitmq.store.consume_queue import ConsumeQueue

log = logging.getLogger("orbitmq.broker")

TURN_RECORDS = 32
TURN_BYTES = 256 * 1024
TURN_OPS = 8
"""What is done in one turn of the loop. An op message names some six hundred half messages."""

LONGEST_PASS_MS = 60_000
"""After that a pass ends where it is, so that how far it came is kept."""

WAIT_SECONDS = 0.01
MOST_WAITS = 100
"""In a pass, for producers that do not read what they are asked as fast as they are asked."""

SHORTEST_INTERVAL_MS = 10

_WAIT = names.WAIT_STORE_OK.encode()
_UNIQ_KEY = names.UNIQUE_KEY.encode()
_PREPARED_OFFSET = names.TRANSACTION_PREPARED_QUEUE_OFFSET.encode()


class Next(enum.Enum):
    """How a pass goes on after a half message, or a turn."""

    ON = "on"
    WAIT = "wait"
    """When the producers have read what they were asked."""
    STOP = "stop"


class TransactionChecks:
    """Looks after the half messages of a broker between ``start`` and ``stop``."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        clients: Clients,
        offsets: OffsetTable,
        transactions: Transactions,
        stats: BrokerStats,
        clock: Clock,
        flushed: Callable[[int], Awaitable[None]],
    ) -> None:
        self._config = config
        self._store = store
        self._topics = topics
        self._clients = clients
        self._offsets = offsets
        self._transactions = transactions
        self._stats = stats
        self._clock = clock
        self._flushed = flushed
        self._turns = 0
        self._waits = 0
        self._unasked: dict[str, int] = {}
        """By group, how many questions of a pass there was nobody for."""
        self._task: asyncio.Task[None] | None = None
        self._passing: asyncio.Task[None] | None = None

    # Life

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Ask no more, and keep how far it came. ``flushed`` must still work."""
        tasks = [task for task in (self._task, self._passing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._transactions.ops.stop()
        for queue_id in self._transactions.queue_ids():
            await self._keep_progress(queue_id)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(max(self._config.transaction_check_interval, SHORTEST_INTERVAL_MS) / 1000)
            try:
                await self.check()
            except Exception:
                # The next pass may work; without it half messages would wait for ever.
                log.exception("half messages could not be checked: it is tried again")

    async def check(self) -> None:
        """One pass over all half messages. Who calls it while one is under way waits for that."""
        if self._passing is None:
            self._passing = asyncio.get_running_loop().create_task(self._check_all())
            self._passing.add_done_callback(self._passed)
        await asyncio.shield(self._passing)

    def _passed(self, _: asyncio.Task[None]) -> None:
        self._passing = None

    async def _check_all(self) -> None:
        for queue_id in self._transactions.queue_ids():
            await self._read_journal(queue_id)
            await self._check_queue(queue_id)
            await self._keep_progress(queue_id)

    # What an earlier life left

    async def _read_journal(self, queue_id: int) -> None:
        """Learn from the op queue, once after a start, which half messages were ended before it."""
        transactions = self._transactions
        ledger = transactions.ledger(queue_id)
        journal = transactions.journals.get(queue_id)
        queue = transactions.queue(TRANSACTION_OP_TOPIC, queue_id)
        if journal is None or queue is None:
            return
        while journal.begin < journal.end:
            units = queue.read(journal.begin, min(TURN_OPS, journal.end - journal.begin))
            if not units:
                raise StoreError(f"unit {journal.begin} of {queue.directory} cannot be read")
            for physical, _, _ in UNIT.iter_unpack(units):
                ended = [offset for offset in ended_by(self._store.record(physical)) if offset < journal.half_end]
                for offset in ended:
                    if ledger.state(offset) == PENDING:
                        ledger.end(offset, ENDED)
                transactions.ops.note(queue_id, journal.begin, max(ended, default=-1))
                journal.begin += 1
            await asyncio.sleep(0)
        del transactions.journals[queue_id]

    # A pass

    async def _check_queue(self, queue_id: int) -> None:
        queue = self._transactions.queue(TRANSACTION_HALF_TOPIC, queue_id)
        if queue is None:
            return
        began = self._clock.now_ms()
        ledger = self._transactions.ledger(queue_id)
        self._waits = 0
        self._unasked.clear()
        complaint = ""
        while self._clock.now_ms() - began <= LONGEST_PASS_MS:
            try:
                after = self._turn(queue, ledger, began)
            except (StoreError, OSError, RequestRefusedError) as error:
                complaint = str(error)
                break
            if after is Next.STOP:
                break
            await asyncio.sleep(WAIT_SECONDS if after is Next.WAIT else 0)
        for group, count in self._unasked.items():
            log.warning("no producer of %s is there to be asked about %d transactions", group, count)
        if complaint:
            log.warning("half messages of queue %d wait at %d: %s", queue_id, ledger.base, complaint)
        self._transactions.flush_soon()

    def _turn(self, queue: ConsumeQueue, ledger: HalfLedger, began: int) -> Next:
        """Deal with the next half messages. Raises StoreError if one has to wait for better times."""
        ledger.pass_ended()
        if ledger.base < queue.min_offset:
            ledger.pass_over(queue.min_offset)  # the oldest have expired
        if ledger.base >= queue.end:
            return Next.STOP
        units = queue.read(ledger.base, TURN_RECORDS)
        if not units:
            raise StoreError(f"unit {ledger.base} of {queue.directory} cannot be read")
        room = TURN_BYTES
        for offset, (physical, size, _) in enumerate(UNIT.iter_unpack(units), ledger.base):
            if room <= 0:
                break
            if size != FILLER_SIZE and ledger.state(offset) == PENDING:
                half = self._half(physical)
                after = Next.ON if half is None else self._look(half, queue.queue_id, ledger, began)
                if after is not Next.ON:
                    return after
                room -= size
            ledger.pass_over(offset + 1)
        return Next.ON

    def _half(self, physical: int) -> Record | None:
        record = self._store.record(physical)
        try:
            half = None if record is None else rebuild(record)
        except ProtocolError:
            half = None
        if half is None:
            log.error("the half message at %d cannot be read: it is skipped", physical)
        return half

    def _look(self, half: Record, queue_id: int, ledger: HalfLedger, began: int) -> Next:
        """Decide about one half message that is not ended. Raises StoreError."""
        config = self._config
        now = self._clock.now_ms()
        age = now - half.born_timestamp
        if half.store_timestamp >= began:
            return Next.STOP  # first of all: who was asked for the last time has until the next pass to answer
        times = _number(find(half.properties, CHECK_TIMES))
        if times >= config.transaction_check_max or age > self._store.config.file_reserved_time * 3_600_000:
            self._give_up(half)
            return Next.ON
        timeout = config.transaction_time_out
        wish = find(half.properties, IMMUNITY)
        if wish is None and 0 <= age <= timeout:
            return Next.STOP
        immunity = None if wish is None else immunity_ms(wish)
        try:
            if wish is not None and age <= (timeout if immunity is None else immunity):
                self._keep_unasked(half, queue_id, ledger)
                return Next.ON
            return self._ask(half, queue_id, ledger, times + 1)
        except AppendRefusedError as error:
            if error.status is not PutStatus.PROPERTIES_SIZE_EXCEEDED:
                raise
            # It was sent with so many properties that there is no room for one more.
            self._give_up(half)
            return Next.ON

    def _keep_unasked(self, half: Record, queue_id: int, ledger: HalfLedger) -> None:
        """Put a message back whose producer wants to be asked later. That does not count as a question.

        The copy says where the message was first, for its producer knows no other place.
        """
        known = find(half.properties, _PREPARED_OFFSET)
        first = _number(known, half.queue_offset)
        if ledger.state(first) != PENDING:
            return
        properties = half.properties
        if known is None:
            properties = with_property(properties, _PREPARED_OFFSET, b"%d" % first)
        copy, _ = self._transactions.put_half(half, queue_id, properties)
        ledger.put_back(half.queue_offset, copy)
        if not ledger.is_put_back(first):
            ledger.put_back(first, copy)

    def _give_up(self, half: Record) -> None:
        """Put a message aside that nobody has ended. Raises StoreError."""
        try:
            topic, _ = place_of(half)
        except RequestRefusedError:
            topic = ""
        log.error("the half message %s of topic %s is given up: nobody ended it", _key(half), topic)
        self._topics.create_for_send_back(TRANSACTION_GIVEN_UP_TOPIC, 1, PERM_READ_WRITE)
        appended = self._store.append(
            TRANSACTION_GIVEN_UP_TOPIC,
            0,
            half.body,
            half.properties,
            flag=half.flag,
            sys_flag=half.sys_flag,
            born_timestamp=half.born_timestamp,
            born_host=half.born_host,
            reconsume_times=half.reconsume_times,
        )
        self._stats.put(TRANSACTION_GIVEN_UP_TOPIC, 0, 1, appended.size)
        self._transactions.counts.add(topic, -1)

    # Asking

    def _ask(self, half: Record, queue_id: int, ledger: HalfLedger, times: int) -> Next:
        group = decode_utf8(find(half.properties, PRODUCER_GROUP) or b"")
        producer = self._producer(group)
        if producer is None and self._clients.producers.get(group) and self._waits < MOST_WAITS:
            self._waits += 1
            return Next.WAIT
        properties = with_property(half.properties, CHECK_TIMES, b"%d" % times)
        copy, physical = self._transactions.put_half(half, queue_id, properties)
        ledger.put_back(half.queue_offset, copy)
        if producer is None:
            self._unasked[group] = self._unasked.get(group, 0) + 1
            return Next.ON
        try:
            producer.call_oneway(self._question(half, properties, copy, physical))
        except (RemotingError, RequestRefusedError) as error:
            log.warning("%s was not asked about %s: %s", producer.remote_address, _key(half), error)
        return Next.ON

    def _producer(self, group: str) -> Connection | None:
        """The next producer of a group that reads what it is sent."""
        members = list(self._clients.producers.get(group, ()))
        self._turns += 1
        for number in range(len(members)):
            connection = members[(self._turns + number) % len(members)]
            if connection.is_writable and not connection.is_closing:
                return connection
        return None

    def _question(self, half: Record, properties: bytes, copy: int, physical: int) -> Command:
        """What a producer is asked: with the message as it would be, and the place of its newest copy."""
        topic, queue_id = place_of(half)
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
        body = encode_record(
            topic=name,
            queue_id=queue_id,
            body=half.body,
            properties=with_property(properties, _WAIT, b"false"),
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

    # How far it came

    async def _keep_progress(self, queue_id: int) -> None:
        """Remember how far it came, once what was put back, put aside and committed until then is on the disk.

        The other way round, a power cut could leave a message that is neither waiting nor anywhere else.
        """
        half = self._transactions.ledger(queue_id).base
        ops = self._transactions.ops.first_needed(queue_id, half)
        if (half, ops) == (
            self._kept(TRANSACTION_HALF_TOPIC, queue_id),
            self._kept(TRANSACTION_OP_TOPIC, queue_id),
        ):
            return
        try:
            await self._flushed(self._store.log.end)
        except StoreError as error:
            log.warning("how far half messages were checked is not kept: %s", error)
            return
        self._offsets.commit(TRANSACTION_GROUP, TRANSACTION_HALF_TOPIC, queue_id, half, "the check of transactions")
        self._offsets.commit(TRANSACTION_GROUP, TRANSACTION_OP_TOPIC, queue_id, ops, "the check of transactions")

    def _kept(self, topic: str, queue_id: int) -> int:
        return max(self._offsets.query(TRANSACTION_GROUP, topic, queue_id), 0)


def _number(text: bytes | None, default: int = 0) -> int:
    return int(text) if text is not None and text.isdigit() and len(text) <= 18 else default


def _key(half: Record) -> str:
    return decode_utf8(find(half.properties, _UNIQ_KEY) or b"without a key")
