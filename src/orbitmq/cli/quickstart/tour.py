"""The tour of ``orbitmq quickstart``: orders are sent, shared out, retried, buried, filtered, verified, queried."""

import asyncio
import collections
import contextlib
import json
import secrets
import time
from typing import TYPE_CHECKING

from orbitmq.aio import Consumer, ConsumeResult, Message, Producer
from orbitmq.cli.messages.live_counters import LiveCounters
from orbitmq.cli.output import many, safe, size_text
from orbitmq.platform.settings import ConfigError
from orbitmq.protocol.message.properties import find
from orbitmq.protocol.message.record import iter_records
from orbitmq.protocol.names import DLQ_PREFIX
from orbitmq.store import LocalDisk
from orbitmq.store.tools.detect_layout import survey
from orbitmq.store.tools.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from orbitmq.aio import Receipt, ReceivedMessage
    from orbitmq.broker import Broker
    from orbitmq.protocol.message.record import Record

TOPIC = "quickstart"
BILLING, AUDIT = "quickstart-billing", "quickstart-audit"
MEMBERS = 2
HIGHEST_AMOUNT = 1000
AUDITED = 900
SQL = f"amount >= {AUDITED}"
RETRIED_EACH = 100
"""One order in so many fails when it is first consumed."""
HOPELESS = 7
"""This one fails always."""
MAX_RETRIES = 2
SECOND = 1
"""The delay level of a second, after which what failed comes again."""

ON_THEIR_WAY = 1024
PATIENCE = 60.0
"""Seconds for what takes a few, before the tour says that something is wrong."""
LOOK_SECONDS = 0.05
MAX_VERIFIED_BYTES = 2 << 30
"""Bytes of log. A larger one is not from the tour alone, and verifying it takes a while."""


class Tour:
    """One run. Its orders carry its own mark, for the topic may hold those of earlier runs."""

    def __init__(
        self, console: "Console", nameserver: str, broker: "Broker", messages: int, *, with_spark: bool = True
    ) -> None:
        self._console = console
        self._with_spark = with_spark
        self._nameserver = nameserver
        self._broker = broker
        self._messages = messages
        self._mark = secrets.token_hex(4)
        self._failure: BaseException | None = None
        self._billed = bytearray(messages)
        """How often each order was consumed to the end."""
        self._counters = LiveCounters()
        self.sent = self._counters.counter("orders sent", with_rate=True)
        self.billed = self._counters.counter("billed by a group of two", with_rate=True)
        self.failed = self._counters.counter("failed, to come again")
        self.retried = self._counters.counter("billed at a later attempt")
        self.audited = self._counters.counter(f"audited where {SQL}")

    async def run(self) -> None:
        """Raises ConfigError if something is not as it should be."""
        console = self._console
        place = self._broker.settings.store.store_path_root_dir
        console.print(
            f"[bold]OrbitMQ[/]: a name server on {self._nameserver}, a broker that stores in {safe(place)}\n"
        )
        with self._counters.displayed(console):
            await self._work()
        letters = self._dead_letters()
        self._check(letters)
        self._tell(letters)
        await self._verify()
        if self._with_spark:
            await self._ask_spark()

    # The work

    async def _work(self) -> None:
        async with contextlib.AsyncExitStack() as clients:
            producer = Producer(
                self._nameserver,
                group="quickstart",
                send_msg_timeout=PATIENCE,
                enable_backpressure_for_async_mode=True,
                back_pressure_for_async_send_num=ON_THEIR_WAY,
            )
            await clients.enter_async_context(producer)
            # The first message makes the topic, and then consumers find it.
            await producer.send(Message(TOPIC, "hello"))
            await self._broker.registration.settled()
            members = [self._member() for _ in range(MEMBERS)]
            for consumer in (*members, self._auditor()):
                await clients.enter_async_context(consumer)
            queues = len(await producer.queues(TOPIC))
            await self._wait(lambda: _are_shared_out(members, queues), "the queues are not shared out")
            self.sent.start()
            self.billed.start()
            for number in range(self._messages):
                await producer.room()
                producer.send_nowait(self._order(number), callback=self._sent)
            await self._wait(self._is_done, "not every order was consumed")

    def _order(self, number: int) -> Message:
        amount = number * 37 % HIGHEST_AMOUNT
        body = json.dumps({"order": number, "amount": amount})
        return Message(
            TOPIC,
            body,
            tags=_tag(number),
            keys=_name(number),
            properties={"amount": str(amount), "tour": self._mark},
        )

    def _sent(self, receipt: "Receipt | None", error: BaseException | None) -> None:
        if receipt is None:
            self._failure = self._failure or error
        else:
            self.sent.add()

    def _member(self) -> Consumer:
        consumer = Consumer(
            self._nameserver,
            group=BILLING,
            max_reconsume_times=MAX_RETRIES,
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        )
        consumer.on(TOPIC, inline=True)(self._bill)
        return consumer

    def _bill(self, message: "ReceivedMessage") -> ConsumeResult | None:
        number = self._number(message)
        if number is None:
            return None
        if number == HOPELESS or (number % RETRIED_EACH == 0 and not message.reconsume_times):
            self.failed.add()
            return ConsumeResult.later(SECOND)
        self._billed[number] = min(self._billed[number] + 1, 255)
        if message.reconsume_times:
            # The rate is that of those which did not have to wait.
            self.retried.add()
            self.billed.count += 1
        else:
            self.billed.add()
        return None

    def _auditor(self) -> Consumer:
        consumer = Consumer(self._nameserver, group=AUDIT, consume_from_where="CONSUME_FROM_FIRST_OFFSET")
        consumer.on(TOPIC, sql=SQL, inline=True)(self._audit)
        return consumer

    def _audit(self, message: "ReceivedMessage") -> None:
        if self._number(message) is not None:
            self.audited.add()

    def _number(self, message: "ReceivedMessage") -> int | None:
        """The number of the order; None for a message of an earlier tour or another producer."""
        if message.properties.get("tour") != self._mark:
            return None
        return int(message.keys[0].removeprefix("order-"))

    # What came of it

    def _is_done(self) -> bool:
        if self._failure is not None:
            raise self._failure
        return self._billed.count(0) <= 1 and self.audited.count >= self._to_audit() and bool(self._dead_letters())

    def _to_audit(self) -> int:
        return sum(number * 37 % HIGHEST_AMOUNT >= AUDITED for number in range(self._messages))

    async def _wait(self, holds: "Callable[[], bool]", otherwise: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > deadline:
                raise ConfigError(f"the tour found a fault, please report it: {otherwise}")
            await asyncio.sleep(LOOK_SECONDS)

    def _dead_letters(self) -> list["Record"]:
        """Those of this run, as the store has them."""
        store, topic = self._broker.store, DLQ_PREFIX + BILLING
        found = []
        offset = max(store.min_offset(topic, 0), store.max_offset(topic, 0) - ON_THEIR_WAY)
        while offset < store.max_offset(topic, 0):
            result = store.get(topic, 0, offset)
            found += [record for part in result.slices for record in iter_records(part)]
            offset = max(result.next_begin_offset, offset + 1)
        mark = f"tour\x01{self._mark}".encode()
        return [record for record in found if mark in record.properties]

    def _check(self, letters: list["Record"]) -> None:
        for is_so, otherwise in (
            (set(map(_key, letters)) == {_name(HOPELESS)}, f"dead letters are {sorted(map(_key, letters))}"),
            (self._billed[HOPELESS] == 0, "the order that always fails was billed"),
            (self._billed.count(0) == 1, f"{self._billed.count(0) - 1} orders were lost"),
        ):
            if not is_so:
                raise ConfigError(f"the tour found a fault, please report it: {otherwise}")

    def _tell(self, letters: list["Record"]) -> None:
        repeats = self.billed.count - (self._messages - 1)
        self._say(f"{many(self.sent.count, 'order')} sent and stored", f"{self.sent.rate:,.0f}/s")
        once = "each once" if not repeats else f"{many(repeats, 'repeat')} while queues changed hands"
        self._say("billed by two members that share the queues", f"{many(self._messages - 1, 'order')}, {once}")
        self._say("failed at first, billed a second later", f"{many(self.retried.count, 'order')}")
        self._say(
            f"failed {MAX_RETRIES + 1} times: now a dead letter",
            f"{_name(HOPELESS)}, in {letters[0].topic}",
        )
        self._say(f"passed the SQL filter {SQL}", f"{self.audited.count:,} of {self.sent.count:,}")

    async def _verify(self) -> None:
        store, root = self._broker.store, self._broker.settings.store.store_path_root_dir
        size = store.log.end - store.log.start
        if size > MAX_VERIFIED_BYTES:
            self._say("stored", f"{size_text(size)}; check it with: orbitmq store verify {root}")
            return
        disk = LocalDisk()
        report = await asyncio.to_thread(lambda: verify(disk, survey(disk, root), is_open=True))
        if not report.is_sound:
            raise ConfigError(f"the store has damage: see orbitmq store verify {root}")
        self._say("the store verified: CRCs, queues, index", f"{many(report.records, 'record')}, {size_text(size)}")

    async def _ask_spark(self) -> None:
        from orbitmq.cli.quickstart.spark import ask_spark  # noqa: PLC0415 - a light installation has no Spark

        expected = dict(collections.Counter(map(_tag, range(self._messages))))
        await ask_spark(self._console, self._nameserver, TOPIC, self._mark, expected)

    def _say(self, what: str, figures: str) -> None:
        self._console.print(f"[green]✓[/] {what:<44} [cyan]{safe(figures)}[/]", soft_wrap=True)


def _tag(number: int) -> str:
    return "refunded" if number % 5 == 0 else "paid"


def _name(number: int) -> str:
    return f"order-{number}"


def _key(record: "Record") -> str:
    return (find(record.properties, b"KEYS") or b"").decode()


def _are_shared_out(members: list[Consumer], count: int) -> bool:
    """True if each queue has one member, and each member has some: otherwise orders would be billed twice."""
    shares = [[queue for queue in member.queues if queue.topic == TOPIC] for member in members]
    return all(shares) and sum(map(len, shares)) == count == len({queue for share in shares for queue in share})
