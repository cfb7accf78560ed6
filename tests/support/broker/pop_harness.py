"""Requests of POP consumers, and a clock to let invisible times pass."""

from __future__ import annotations

import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from orbitmq.protocol.bodies import BatchAck, BatchAckMessageRequestBody
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.pop_receipt import Receipt, parse_offsets, parse_starts, real_topic, topic_kind
from orbitmq.protocol.message.properties import parse
from orbitmq.protocol.message.record import iter_records
from orbitmq.testing import ManualClock
from support.broker.broker_harness import T0, running_broker
from support.broker.requests import CONSUMERS, TOPIC, Talker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.broker import Broker
    from orbitmq.platform.disk import Disk
    from orbitmq.protocol.command.command import Command
    from orbitmq.protocol.message.record import Record

INVISIBLE_MS = 10_000
BACK_MS = INVISIBLE_MS + 5_000
"""By then what was not acknowledged is under the retry topic."""

BROKER = "broker-a"


@dataclasses.dataclass(slots=True)
class Got:
    """A message that was popped, and what to show for it."""

    record: Record
    receipt: Receipt
    group: str
    topic: str
    """Where it was popped from, which is what acknowledgements name."""

    @property
    def body(self) -> bytes:
        return self.record.body


class Popper(Talker):
    """A client that pops."""

    async def pops(
        self,
        topic: str = TOPIC,
        group: str = CONSUMERS,
        *,
        queue_id: int = -1,
        most: int = 32,
        invisible_ms: int = INVISIBLE_MS,
        poll_ms: int = 0,
        init_mode: int = 0,
        **fields: object,
    ) -> Command:
        """The answer to a pop, whatever it is."""
        return await self.asks(
            RequestCode.POP_MESSAGE,
            **pop_fields(
                topic,
                group,
                queue_id=queue_id,
                most=most,
                invisible_ms=invisible_ms,
                poll_ms=poll_ms,
                init_mode=init_mode,
                **fields,
            ),
        )

    async def gets(self, *args: Any, **given: Any) -> list[Got]:
        """The messages of a pop."""
        answer = await self.pops(*args, **given)
        topic = args[0] if args else given.get("topic", TOPIC)
        group = args[1] if len(args) > 1 else given.get("group", CONSUMERS)
        return got_by(answer, topic, group)

    async def acks(self, got: Got, **fields: object) -> Command:
        return await self.asks(RequestCode.ACK_MESSAGE, **_fields_of(got), **fields)

    async def settles(self, *some: Got) -> None:
        for got in some:
            answer = await self.acks(got)
            assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def hides(self, got: Got, invisible_ms: int, **fields: object) -> Command:
        return await self.asks(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME, **_fields_of(got), invisibleTime=invisible_ms, **fields
        )

    async def acks_together(self, *some: Got, broker_name: str = BROKER) -> Command:
        """Of one pop and queue."""
        first = some[0].receipt
        bits = sum(1 << got.receipt.offset - first.start_offset for got in some)
        topic = some[0].record.topic
        batch = BatchAck(
            consumer_group=some[0].group,
            topic=topic,
            retry=topic_kind(some[0].topic),
            start_offset=first.start_offset,
            queue_id=first.queue_id,
            revive_queue_id=first.revive_queue,
            pop_time=first.pop_time,
            invisible_time=first.invisible_ms,
            bit_set=bits,
        )
        body = BatchAckMessageRequestBody(broker_name, [batch]).encode()
        return await self.asks(RequestCode.BATCH_ACK_MESSAGE, body)

    async def fills(self, *bodies: str, topic: str = TOPIC, **given: Any) -> None:
        """Send messages, each ``body`` or ``body:tag``."""
        for message in bodies:
            body, _, tag = message.partition(":")
            await self.stores(body.encode(), topic=topic, properties={"TAGS": tag, "KEYS": body}, **given)


def pop_fields(
    topic: str = TOPIC,
    group: str = CONSUMERS,
    *,
    queue_id: int = -1,
    most: int = 32,
    invisible_ms: int = INVISIBLE_MS,
    poll_ms: int = 0,
    init_mode: int = 0,
    **fields: object,
) -> dict[str, object]:
    """The fields of a pop."""
    return {
        "consumerGroup": group,
        "topic": topic,
        "queueId": queue_id,
        "maxMsgNums": most,
        "invisibleTime": invisible_ms,
        "pollTime": poll_ms,
        "bornTime": 0,
        "initMode": init_mode,
        "expType": "TAG",
        "exp": "*",
        "order": False,
        **fields,
    }


def got_by(answer: Command, topic: str = TOPIC, group: str = CONSUMERS) -> list[Got]:
    """The messages of an answer with their receipts, as Java's client makes them out."""
    if answer.code != ResponseCode.SUCCESS:
        return []
    fields = answer.ext_fields
    starts, offsets = parse_starts(fields["startOffsetInfo"]), parse_offsets(fields["msgOffsetInfo"])
    found = []
    for record in iter_records(answer.body or b""):
        carried = parse(record.properties).get("POP_CK")
        if carried is not None:
            receipt = Receipt.parse(carried)
        else:
            kind = topic_kind(record.topic)
            assert record.queue_offset in offsets[kind, record.queue_id]
            receipt = Receipt(
                starts[kind, record.queue_id],
                int(fields["popTime"]),
                int(fields["invisibleTime"]),
                int(fields["reviveQid"]),
                kind,
                BROKER,
                record.queue_id,
                record.queue_offset,
            )
        found.append(Got(record, receipt, group, real_topic(topic, group, receipt.kind)))
    return found


def _fields_of(got: Got) -> dict[str, object]:
    return {
        "consumerGroup": got.group,
        "topic": got.topic,
        "queueId": got.receipt.queue_id,
        "offset": got.receipt.offset,
        "extraInfo": str(got.receipt),
    }


def bodies_of(some: list[Got]) -> list[bytes]:
    return sorted(got.body for got in some)


def let_pass(broker: Broker, clock: ManualClock, ms: int) -> None:
    """Let time pass in steps of a second, with all that the broker does in it."""
    assert broker.timer is not None
    assert broker.pop.revive is not None
    while ms > 0:
        clock.advance(min(ms, 1000))
        ms -= 1000
        broker.store.flush()
        while broker.timer.run_slice() <= clock.now_ms():
            pass
        broker.store.flush()
        while not broker.pop.revive.turn():
            pass
        broker.store.flush()


@dataclasses.dataclass(slots=True)
class PopEnds:
    """A broker whose time is moved by hand, and a client."""

    broker: Broker
    client: Popper
    clock: ManualClock

    def wait(self, ms: int = BACK_MS) -> None:
        let_pass(self.broker, self.clock, ms)


@contextlib.asynccontextmanager
async def popping(
    disk: Disk | None = None, clock: ManualClock | None = None, **settings: object
) -> AsyncIterator[PopEnds]:
    """``settings`` have Java's keys. By default retries are read last."""
    clock = clock or ManualClock(T0)
    configured: dict[str, Any] = {"popFromRetryProbability": 0, "reviveInterval": 10**9, **settings}
    async with running_broker(disk, clock, **configured) as broker, popper_of(broker) as client:
        yield PopEnds(broker, client, clock)


@contextlib.asynccontextmanager
async def popper_of(broker: Broker) -> AsyncIterator[Popper]:
    async with Popper.of(broker) as client:
        assert isinstance(client, Popper)
        yield client
