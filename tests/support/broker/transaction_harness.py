"""A scripted producer of transactions, and a broker that checks them on request."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import time
from typing import TYPE_CHECKING, Any

from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.message.flags import ONEWAY
from orbitmq.protocol.message.message_id import decode_offset_id
from orbitmq.protocol.message.record import decode_record
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.broker_harness import T0, running_broker
from support.broker.client_registry_harness import heartbeat
from support.broker.requests import TOPIC, Talker, stored
from support.nameserver_harness import as_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.broker.broker import Broker
    from orbitmq.platform.disk import Disk
    from orbitmq.protocol.message.record import Record

GROUP = "PG_tx"
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
OPS = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
READER = "CID_RMQ_SYS_TRANS"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
NEVER = 10**9
"""Milliseconds after which the broker would do something by itself."""

BY_HAND: dict[str, Any] = {"transactionCheckInterval": NEVER, "transactionOpBatchInterval": NEVER}
TIMEOUT = 6000

_numbers = itertools.count(1)


@dataclasses.dataclass(slots=True)
class Half:
    """A half message as its producer knows it: by the answer to its send, or from a question about it."""

    key: str
    queue_offset: int
    physical: int
    group: str = GROUP
    record: Record | None = None
    from_check: bool = False


class TransactionPeer(Talker):
    """A producer of transactions."""

    @staticmethod
    def now_ms() -> int:
        """The time of this machine, for brokers that go by it."""
        return time.time_ns() // 1_000_000

    async def produces(self, group: str = GROUP) -> None:
        """Say that it is there."""
        body = heartbeat(f"producer@{next(_numbers)}", producers=[group]).encode()
        answer = await self.asks(RequestCode.HEART_BEAT, body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def prepares(
        self, body: bytes = b"hello", properties: dict[str, str] | None = None, **given: Any
    ) -> Half:
        """Send a half message, which has to be taken."""
        key = f"K{next(_numbers)}"
        own = {"UNIQ_KEY": key, "TRAN_MSG": "true", "PGROUP": GROUP, "WAIT": "true", **(properties or {})}
        given = {"bornTimestamp": given.pop("born", T0), "producerGroup": own["PGROUP"], "sysFlag": 4, **given}
        answer = await self.stores(body, properties=own, **given)
        assert answer.ext_fields["transactionId"] == key
        physical = decode_offset_id(answer.ext_fields["msgId"])[1]
        return Half(key, int(answer.ext_fields["queueOffset"]), physical, own["PGROUP"])

    async def ends(self, half: Half, how: int = COMMIT, **given: object) -> Command:
        """The answer to an end, which clients other than Go's do not ask for."""
        return await self.asks(RequestCode.END_TRANSACTION, **end_fields(half, how, **given))

    async def ends_quietly(self, half: Half, how: int = COMMIT, **given: object) -> None:
        """End as Java's clients do, and wait until the broker has done it."""
        fields = as_text(end_fields(half, how, **given))
        opaque = 1 << 29 | next(_numbers)
        self.send(Command(RequestCode.END_TRANSACTION, opaque, ONEWAY, ext_fields=fields).encode())
        await self.catch_up()
        assert opaque not in self.answers

    async def questioned(self) -> Half:
        """The half message of the broker's next check."""
        question = await self.asked(RequestCode.CHECK_TRANSACTION_STATE)
        assert question.is_oneway
        fields = question.ext_fields
        assert fields["msgId"] == fields["transactionId"]
        assert fields["topic"] == HALF
        physical = int(fields["commitLogOffset"])
        assert decode_offset_id(fields["offsetMsgId"])[1] == physical
        record = decode_record(question.body or b"")
        return Half(fields["msgId"], int(fields["tranStateTableOffset"]), physical, GROUP, record, from_check=True)

    async def questions(self) -> int:
        """The number of checks until now."""
        await self.catch_up()
        return sum(request.code == RequestCode.CHECK_TRANSACTION_STATE for request in self.requests)


def end_fields(half: Half, how: int, **given: object) -> dict[str, object]:
    return {
        "topic": HALF if half.from_check else TOPIC,
        "producerGroup": half.group,
        "tranStateTableOffset": half.queue_offset,
        "commitLogOffset": half.physical,
        "commitOrRollback": how,
        "fromTransactionCheck": half.from_check,
        "msgId": half.key,
        "transactionId": half.key,
        **given,
    }


@dataclasses.dataclass(slots=True)
class Scene:
    """A broker, its clock and disk, and a producer that is known to it."""

    broker: Broker
    clock: ManualClock
    disk: Disk
    producer: TransactionPeer

    async def check(self, after_ms: int = TIMEOUT + 1) -> None:
        """Let time pass, and the broker look after half messages."""
        self.clock.advance(after_ms)
        await self.broker.checks.check()

    def bodies(self, topic: str = TOPIC, queue_id: int = 0) -> list[bytes]:
        return [record.body for record in stored(self.broker, topic, queue_id)]

    def progress(self) -> tuple[int, int]:
        """The persisted offsets of half and op messages."""
        query = self.broker.offsets.query
        return query(READER, HALF, 0), query(READER, OPS, 0)


@contextlib.asynccontextmanager
async def transaction_scene(
    disk: Disk | None = None, clock: ManualClock | None = None, **settings: Any
) -> AsyncIterator[Scene]:
    """``settings`` have Java's keys."""
    disk, clock = disk or MemoryDisk(), clock or ManualClock(T0)
    async with running_broker(disk, clock, **{**BY_HAND, **settings}) as broker, producing_to(broker) as producer:
        await producer.produces()
        yield Scene(broker, clock, disk, producer)


@contextlib.asynccontextmanager
async def producing_to(broker: Broker) -> AsyncIterator[TransactionPeer]:
    """A producer, which leaves at the end."""
    async with TransactionPeer.of(broker) as producer:
        assert isinstance(producer, TransactionPeer)
        yield producer
