"""Ranges of queues that are read: a topic with messages in it, and brokers that answer pulls as a test wants it."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

from orbitmq.client.message import Message
from orbitmq.client.query.range_reader import QueueRange, RangeReader
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.message.record import encode_record, iter_records
from support.client.instance_harness import instance_of
from support.client.producer_harness import running_names
from support.nameserver_harness import RegisterRequest
from support.remoting_harness import HOST, RawPeer, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

    from orbitmq.client.query.range_reader import RecordChunk
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Answer, Connection, RemotingServer
    from support.client.consumer_harness import Shop

TOPIC = "orders"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
HOSTS = bytes(8)

PATIENT: dict[str, Any] = {"retry_seconds": 30.0}
HASTY: dict[str, Any] = {"retry_seconds": 0.3}
"""For how long a reader of a test tries: as long as it takes, or hardly."""


async def store(place: Shop, count: int, *, queue: MessageQueue = QUEUE, size: int = 0, **more: Any) -> None:
    """Put numbered messages in one queue."""
    first = len(place.sent)
    messages = []
    for number in range(first, first + count):
        body = b"%d" % number
        messages.append(Message(queue.topic, body.ljust(size, b"."), **more))
        place.sent.append(messages[-1].body)
        if len(messages) * (size + 100) > 500_000 or len(messages) == 500:
            await place.producer.send_batch(messages, queue=queue)
            messages = []
    if messages:
        await place.producer.send_batch(messages, queue=queue)


def meant(chunks: Iterable[RecordChunk]) -> list[tuple[int, bytes]]:
    """The offsets and bodies of the records that chunks are about."""
    return [
        (record.queue_offset, bytes(record.body))
        for chunk in chunks
        for record in iter_records(chunk.body)
        if chunk.first <= record.queue_offset < chunk.last
    ]


@contextlib.asynccontextmanager
async def reader_at(name_server: str, group: str = "TOOLS_CONSUMER", **options: Any) -> AsyncIterator[RangeReader]:
    async with instance_of(name_server, api_timeout=0.5) as instance:
        yield RangeReader(instance, group, **{**PATIENT, **options})


async def read(reader: RangeReader, start: int, end: int, queue: MessageQueue = QUEUE) -> list[tuple[int, bytes]]:
    return meant([chunk async for chunk in reader.chunks(QueueRange(queue, start, end))])


@dataclasses.dataclass(frozen=True, slots=True)
class Pulled:
    """What a pull asks for, and the replica that is asked."""

    offset: int
    most: int
    broker_id: int


class PulledBroker:
    """A replica with a queue from ``low`` to ``high``, whose answers a test may change.

    ``says`` is asked first: fields and code of the answer, or None for what a broker says. ``takes`` are seconds of
    an answer, which then comes after those to later pulls, as from brokers with many threads.
    """

    def __init__(self, broker_id: int, low: int = 0, high: int = 1000) -> None:
        self.broker_id = broker_id
        self.low = low
        self.high = high
        self.most = 32
        self.suggests = 0
        self.delta = 0
        self.pulls: list[Pulled] = []
        self.says: Callable[[Pulled], tuple[int, dict[str, int]] | None] = lambda _: None
        self.takes: Callable[[Pulled], float] = lambda _: 0.0
        self.server: RemotingServer

    @property
    def address(self) -> str:
        return f"{HOST}:{self.server.ports[0]}"

    def answer(self, connection: Connection, header: Header, body: bytes, serialize_type: int) -> Answer:
        request = Command.of((serialize_type, b"", body), header)
        fields = request.ext_fields
        pull = Pulled(int(fields["queueOffset"]), int(fields["maxMsgNums"]), self.broker_id)
        self.pulls.append(pull)
        code, more = self.says(pull) or (ResponseCode.SUCCESS, {})
        said = {
            "suggestWhichBrokerId": self.suggests,
            "nextBeginOffset": min(pull.offset + min(pull.most, self.most), self.high),
            "minOffset": self.low,
            "maxOffset": self.high,
            "offsetDelta": self.delta,
            **more,
        }
        records = b""
        if code == ResponseCode.SUCCESS:
            records = b"".join(map(self._record, range(pull.offset, said["nextBeginOffset"])))
        texts = {name: str(value) for name, value in said.items()}
        answer = request.response(code, ext_fields=texts, body=records or None, remark="as told").encode()
        if not (seconds := self.takes(pull)):
            return answer
        asyncio.get_running_loop().call_later(seconds, connection.answer, header, answer)
        return None

    def _record(self, offset: int) -> bytes:
        return encode_record(
            topic=TOPIC.encode(),
            queue_id=0,
            body=b"%d" % offset,
            queue_offset=offset - self.delta,
            born_host=HOSTS,
            store_host=HOSTS,
        )


@contextlib.asynccontextmanager
async def replicas(count: int = 1) -> AsyncIterator[tuple[str, list[PulledBroker]]]:
    """A name server, and replicas of ``broker-a`` known to it: its master and slaves."""
    async with contextlib.AsyncExitStack() as stack:
        names = await stack.enter_async_context(running_names())
        brokers = []
        for number in range(count):
            broker = PulledBroker(number)
            broker.server = await stack.enter_async_context(serving({RequestCode.PULL_MESSAGE: broker.answer}))
            link = await stack.enter_async_context(RawPeer.connected(names._server))
            said = RegisterRequest(name="broker-a", id=number, address=broker.address, topics=(TOPIC, "broker-a"))
            answer = await link.ask(said.request().encode())
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            brokers.append(broker)
        yield f"{HOST}:{names.port}", brokers
