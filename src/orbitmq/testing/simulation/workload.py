"""Workload of a simulated run: applications that use the SDK as users do, and write down what they see."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import logging
import random
import zlib
from typing import TYPE_CHECKING, Any

from orbitmq import aio
from orbitmq.client.errors import OrbitMQError
from orbitmq.client.message import Message, SendStatus
from orbitmq.client.transaction.transaction import TransactionState
from orbitmq.remoting import RemotingError
from orbitmq.testing.simulation.event_loop import Process, running_as
from orbitmq.testing.simulation.histories.messages import PADDING, Kind, Outcome, body_of, name_in
from orbitmq.testing.simulation.machines import SkewedClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.client.message import Receipt, ReceivedMessage
    from orbitmq.testing.simulation.event_loop import SimulatedLoop
    from orbitmq.testing.simulation.histories.messages import History, Sent

log = logging.getLogger("orbitmq.simulation")

FAILURES = (OrbitMQError, RemotingError, TimeoutError)

KEYS = 5
"""Sharding keys of each ordered sender."""

HANDLER_FAILURES = 0.03
"""Share of handler calls that fail on purpose."""

DELAY_SECONDS = (1.0, 15.0)

INVISIBLE_SECONDS = 15.0


@dataclasses.dataclass(slots=True)
class World:
    """The run, for its applications."""

    loop: SimulatedLoop
    name_servers: str
    history: History
    sending: bool = True
    """Senders go on. Without it they end after the message in hand."""
    faulty_handlers: bool = True
    needs_all_copies: bool = False
    """A message that was not copied in time counts as sent, and not as acknowledged."""


class Application:
    """A client process. It may be killed and started again, as an application under a supervisor."""

    def __init__(self, world: World, name: str, host: str, rng: random.Random) -> None:
        self.world = world
        self.name = name
        self.host = host
        self.random = rng
        self.clock = SkewedClock(world.loop.time)
        self.process: Process | None = None
        self.starts = 0

    def start(self) -> None:
        if self.process is not None:
            return
        self.starts += 1
        self.process = Process(self.name, self.host)
        with running_as(self.process):
            task = self.world.loop.create_task(self._run())
            task.add_done_callback(self._ended)

    def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            self.world.loop.kill(process)

    def pause(self) -> None:
        if self.process is not None:
            self.world.loop.pause(self.process)

    def resume(self) -> None:
        if self.process is not None and self.process.is_paused:
            self.world.loop.resume(self.process)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.world.history.violations.append(f"{self.name} ended with {error!r}")

    def options(self) -> dict[str, Any]:
        """Options of every client."""
        return {
            "client_ip": self.host,
            "clock": self.clock,
            "random": random.Random(self.random.getrandbits(64)),
            "poll_name_server_interval": 5.0,
            "heartbeat_broker_interval": 10.0,
        }

    async def _run(self) -> None:
        """Start the client, again and again until the cluster lets it, and work."""
        while True:
            try:
                await self.work()
            except FAILURES:
                await asyncio.sleep(self.random.uniform(0.5, 2))
            else:
                return

    async def work(self) -> None:
        raise NotImplementedError


class Sender(Application):
    """Sends messages of one kind, one after the other."""

    def __init__(self, world: World, kind: Kind, number: int, host: str, rng: random.Random) -> None:
        super().__init__(world, f"{kind}-sender-{number}", host, rng)
        self.kind = kind
        self._count = 0
        self._numbers: dict[str, int] = {}

    async def work(self) -> None:
        producer = self._producer()
        await producer.start()
        try:
            while self.world.sending:
                await self._send_one(producer)
                await asyncio.sleep(self.random.expovariate(4))
            # Brokers ask for the outcome of transactions.
            await asyncio.Event().wait()
        finally:
            await producer.close()

    def _producer(self) -> Any:
        options = {"group": f"{self.kind}-senders", "send_msg_timeout": 3.0, **self.options()}
        if self.kind is Kind.TRANSACTION:
            return aio.TransactionProducer(self.world.name_servers, check=self._check, **options)
        return aio.Producer(self.world.name_servers, **options)

    def _next(self, key: str = "", number: int = 0) -> Sent:
        self._count += 1
        return self.world.history.begin(f"{self.name}:{self._count}", self.kind, key, number)

    def _message(self, sent: Sent, **options: Any) -> Message:
        body = body_of(sent.name, self.random.randrange(PADDING) if self.random.random() < 0.2 else 10)
        return Message(str(self.kind), body, keys=[sent.name], **options)

    async def _send_one(self, producer: Any) -> None:
        send = {
            Kind.PLAIN: self._plain,
            Kind.BATCH: self._batch,
            Kind.ORDERED: self._ordered,
            Kind.DELAYED: self._delayed,
            Kind.TRANSACTION: self._transaction,
        }[self.kind]
        await send(producer)

    async def _plain(self, producer: Any) -> None:
        sent = self._next()
        await self._attempt([sent], lambda: _as_list(producer.send(self._message(sent))))

    async def _batch(self, producer: Any) -> None:
        batch = [self._next() for _ in range(self.random.randint(1, 12))]
        await self._attempt(batch, lambda: producer.send_batch([self._message(sent) for sent in batch]))

    async def _ordered(self, producer: Any) -> None:
        key = f"{self.name}/{self.random.randrange(KEYS)}"
        number = self._numbers[key] = self._numbers.get(key, 0) + 1
        sent = self._next(key, number)
        # The next one of this key must not overtake it, so it is sent until a broker has it.
        while sent.outcome is not Outcome.ACKNOWLEDGED:
            with contextlib.suppress(*FAILURES):
                queues = sorted(await producer.queues(str(self.kind)))
                if len(queues) == QUEUES:
                    queue = queues[zlib.crc32(key.encode()) % QUEUES]
                    send = functools.partial(producer.send, self._message(sent), queue=queue)
                    await self._attempt([sent], lambda send=send: _as_list(send()))  # type: ignore[misc]
            await asyncio.sleep(0.2)

    async def _delayed(self, producer: Any) -> None:
        sent = self._next()
        seconds = round(self.random.uniform(*DELAY_SECONDS), 3)
        # Clocks of brokers are wrong by up to so much when they have jumped, which a delay does not make up for.
        sent.due = self.world.loop.time() + seconds - CLOCK_TOLERANCE
        await self._attempt([sent], lambda: _as_list(producer.send(self._message(sent, delay=seconds))))

    async def _transaction(self, producer: Any) -> None:
        sent = self._next()
        decision = self.random.random()

        async def local(_: object) -> TransactionState:
            # The half message is stored: whatever happens now, a broker will ask for the outcome.
            if decision < 0.6:
                sent.outcome = Outcome.ACKNOWLEDGED
                sent.acknowledged_at = self.world.loop.time()
            if decision < 0.5:
                return TransactionState.COMMIT
            # The answer to the check of the broker is the same.
            return TransactionState.UNKNOWN if decision < 0.8 else TransactionState.ROLLBACK

        if decision >= 0.6:
            sent.outcome = Outcome.ROLLED_BACK
        with contextlib.suppress(*FAILURES):
            await producer.send_in_transaction(self._message(sent), local)

    async def _check(self, message: ReceivedMessage) -> TransactionState:
        name = name_in(message.body)
        sent = None if name is None else self.world.history.sent.get(name)
        if sent is None:
            self.world.history.violations.append(f"a broker checks a message that was not sent: {message!r}")
            return TransactionState.UNKNOWN
        rolls_back = sent.outcome is Outcome.ROLLED_BACK
        return TransactionState.ROLLBACK if rolls_back else TransactionState.COMMIT

    async def _attempt(self, batch: list[Sent], send: Callable[[], Awaitable[list[Receipt]]]) -> None:
        try:
            receipts = await send()
        except FAILURES:
            return
        if self.world.needs_all_copies and any(one.status is not SendStatus.SEND_OK for one in receipts):
            return
        for number, sent in enumerate(batch):
            sent.outcome = Outcome.ACKNOWLEDGED
            sent.acknowledged_at = self.world.loop.time()
            if len(receipts) == len(batch) and self.kind is not Kind.DELAYED:
                sent.places.append((receipts[number].queue, receipts[number].queue_offset))
                sent.ids += receipts[number].offset_message_id.split(",")


class PushMember(Application):
    """A member of a group of push consumers."""

    def __init__(self, world: World, kind: Kind, number: int, host: str, rng: random.Random) -> None:
        super().__init__(world, f"{kind}-member-{number}", host, rng)
        self.kind = kind
        self.group = f"{kind}-group"

    async def work(self) -> None:
        consumer = aio.Consumer(
            self.world.name_servers,
            group=self.group,
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
            orderly=self.kind is Kind.ORDERED,
            suspend_current_queue_time=0.2,
            max_reconsume_times=-1 if self.kind is Kind.ORDERED else 1000,
            rebalance_interval=5.0,
            lock_interval=5.0,
            **self.options(),
        )
        member = f"{self.name}.{self.starts}"

        async def handle(message: ReceivedMessage) -> None:
            if self.random.random() < 0.1:
                await asyncio.sleep(self.random.uniform(0, 0.5))
            if self.world.faulty_handlers and self.random.random() < HANDLER_FAILURES:
                raise RuntimeError("a handler fails on purpose")
            self.world.history.consume(self.group, member, message, self.world.loop.time())

        consumer.on(str(self.kind))(handle)
        await consumer.start()
        await asyncio.Event().wait()


class PopMember(Application):
    """A member of a group that pops messages and acknowledges them."""

    def __init__(self, world: World, number: int, host: str, rng: random.Random) -> None:
        super().__init__(world, f"pop-member-{number}", host, rng)
        self.group = POP_GROUP

    async def work(self) -> None:
        consumer = aio.SimpleConsumer(
            self.world.name_servers, group=self.group, consume_from_first=True, **self.options()
        )
        consumer.subscribe(str(Kind.PLAIN))
        await consumer.start()
        member = f"{self.name}.{self.starts}"
        while True:
            try:
                messages = await consumer.receive(16, invisible=INVISIBLE_SECONDS, timeout=3.0)
                for message in messages:
                    if self.random.random() < HANDLER_FAILURES:
                        continue
                    self.world.history.consume(self.group, member, message, self.world.loop.time())
                    await consumer.ack(message)
            except FAILURES as error:
                log.info("%s: %s", self.name, error)
                await asyncio.sleep(0.5)


POP_GROUP = "pop-group"
QUEUES = 4
"""Queues of each topic, over all brokers."""
CLOCK_TOLERANCE = 11.0


async def _as_list(receipt: Awaitable[Receipt]) -> list[Receipt]:
    return [await receipt]
