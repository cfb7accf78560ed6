"""The relay: takes messages from the outbox, sends them, and tries again what could not be sent.

Any number of relays may work on one table, in one process or in many. One that is killed leaves messages that are
taken and perhaps sent; they are sent by another one when the lease is over.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import random
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Self, Unpack, cast

import sqlalchemy as sa
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from orbitmq.client.errors import InvalidMessageError, NotRunningError
from orbitmq.client.producer_config import split_options
from orbitmq.client.sync_consumer import signals_set
from orbitmq.client.sync_producer import Producer
from orbitmq.outbox.outbox import Outbox
from orbitmq.outbox.relay_config import RelayConfig
from orbitmq.outbox.sending import send_lanes
from orbitmq.outbox.settling import Settling
from orbitmq.outbox.table import RELAY_NAME_LENGTH
from orbitmq.outbox.taking import Taking
from orbitmq.user_database import MOST_AT_ONCE, for_short_transactions

if TYPE_CHECKING:
    from orbitmq.outbox.relay_config import RelayOptions
    from orbitmq.outbox.rows import TakenMessage
    from orbitmq.outbox.settling import Failure, Outcome

log = logging.getLogger("orbitmq.outbox")

_SETTLE_AGAIN = 0.2
"""Seconds after which something is written down again that the database did not take."""


@dataclasses.dataclass(frozen=True, slots=True)
class Round:
    """What a relay did at a time."""

    taken: int
    sent: int
    failed: int


class Relay:
    """Sends the messages of an outbox.

    ::

        with Producer("127.0.0.1:9876") as producer:
            Relay(engine, producer).run()       # until Ctrl-C; `with Relay(...)` runs it in the background

    The options are the fields of RelayConfig. It has connections of its own from the engine, two at most.
    """

    def __init__(
        self, engine: sa.Engine, producer: Producer, outbox: Outbox | None = None, **options: Unpack[RelayOptions]
    ) -> None:
        """The producer is started and closed by whoever made it. Raises InvalidMessageError."""
        if not isinstance(engine, sa.Engine):
            raise InvalidMessageError(
                "a relay works in a thread of its own and takes an engine of sqlalchemy.create_engine, also in an "
                f"application of asyncio, and not {type(engine).__name__}"
            )
        if not isinstance(producer, Producer):
            raise InvalidMessageError(
                f"a relay takes an orbitmq.Producer, also in an application of asyncio, and not {producer!r}"
            )
        (given,) = split_options(cast("dict[str, Any]", options), RelayConfig)
        self.config = config = RelayConfig(**given)
        self.outbox = Outbox() if outbox is None else outbox
        self._engine = for_short_transactions(engine)
        self._producer = producer
        self._taking = Taking(self.outbox.table, config)
        self._settling = Settling(self.outbox.table, config)
        self._name = f"{socket.gethostname()[:60]}-{os.getpid()}-{random.SystemRandom().getrandbits(48):012x}"
        self._rounds = 0
        self._next_clean = 0.0
        self._stopping = threading.Event()
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None

    # Running

    def start(self) -> Self:
        """Work in the background, in a thread."""
        if self._thread is not None:
            raise NotRunningError("the relay runs already")
        self._stopping.clear()
        self._thread = threading.Thread(target=self._work, name="orbitmq-outbox", daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """Finish what is on its way, and stop. Harmless if it never ran."""
        self._stopping.set()
        self._wanted.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self) -> None:
        """Work until Ctrl-C or SIGTERM, or ``close`` by another thread."""
        with signals_set(self._stopping):
            self._work()

    def wake(self) -> None:
        """Look for messages at once. Any thread may call it that has just committed some."""
        self._wanted.set()

    def _work(self) -> None:
        config = self.config
        in_vain = 0
        while not self._stopping.is_set():
            self._wanted.clear()
            try:
                done = self.run_once()
                self._clean_if_it_is_time()
            except NotRunningError as error:
                log.error("the relay of %s ends: %s", self.outbox.table.name, error)
                return
            except SQLAlchemyError as error:
                in_vain += 1
                log.warning("the database of the outbox %s cannot be used: %s", self.outbox.table.name, error)
                self._stopping.wait(config.retry_after(in_vain))
                continue
            except Exception:
                # Nobody would notice that a thread has ended, and messages would wait for ever.
                in_vain += 1
                log.exception("the relay of %s failed, and tries again", self.outbox.table.name)
                self._stopping.wait(config.retry_after(in_vain))
                continue
            in_vain = 0
            if not done.sent:
                # A signal sets the other event only, and must not wait for long.
                self._wait(config.poll_interval)

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._stopping.is_set():
            if self._wanted.wait(min(left, 0.1)):
                return

    # One time

    def run_once(self) -> Round:
        """Take some messages, send them and write down what became of them.

        Raises SQLAlchemyError, and NotRunningError if the producer does not run. What could not be sent is tried
        again later, and is no error here.
        """
        # From before it begins in the database, and half of it is left for answers to come and be written down.
        begun = time.monotonic()
        lease_ends = begun + self.config.lease
        name = self._next_name()
        lanes = self._take(name)
        if not lanes:
            return Round(0, 0, 0)
        outcome = send_lanes(
            self._producer,
            lanes,
            may_go_on=lambda: not self._stopping.is_set() and time.monotonic() < begun + self.config.lease / 2,
            resend_unsaved=self.config.resend_unsaved,
        )
        self._settle(outcome, name, lease_ends)
        for failure in outcome.failed:
            self._tell(failure)
        if outcome.closed is not None:
            raise outcome.closed
        return Round(sum(map(len, lanes)), len(outcome.sent), len(outcome.failed))

    def _next_name(self) -> str:
        self._rounds += 1
        return f"{self._name}-{self._rounds}"[-RELAY_NAME_LENGTH:]

    def _take(self, name: str) -> list[list[TakenMessage]]:
        # Apart from the taking: in SQLite, who has read may find that it cannot write any more.
        with self._engine.connect() as connection:
            candidates = self._taking.candidates(connection)
        if not candidates:
            return []
        with self._engine.begin() as connection:
            return self._taking.take(connection, candidates, name)

    def _settle(self, outcome: Outcome, name: str, lease_ends: float) -> None:
        """What is not written down is sent twice: so it is tried as long as nobody else can have the messages."""
        while True:
            try:
                with self._engine.begin() as connection:
                    self._settling.settle(connection, outcome, name)
                return
            except OperationalError as error:
                if time.monotonic() + _SETTLE_AGAIN > lease_ends:
                    raise
                log.warning("%d sent messages cannot be marked as sent yet: %s", len(outcome.sent), error)
                time.sleep(_SETTLE_AGAIN)

    def _tell(self, failure: Failure) -> None:
        config, taken = self.config, failure.taken
        log.warning(
            "the message %s of the outbox, for %s, could not be sent and is tried again in %g s: %s",
            *(taken.id, taken.message.topic, config.retry_after(failure.failures), failure.text),
        )
        # What cannot be sent at all needs no second try for somebody to look at it.
        is_hopeless = failure.failures == 1 and isinstance(failure.error, InvalidMessageError)
        if failure.failures % config.alarm_after and not is_hopeless:
            return
        unsent = taken.unsent(failure.failures, failure.text)
        if config.alarm is None:
            log.error("%s has not been sent in %d tries: somebody has to look at it", unsent, unsent.failures)
            return
        try:
            config.alarm(unsent)
        except Exception:
            log.exception("the alarm for %s failed", unsent)

    def _clean_if_it_is_time(self) -> None:
        now = time.monotonic()
        if now >= self._next_clean:
            self._next_clean = now + self.config.clean_interval
            self.clean()

    def clean(self) -> int:
        """Delete messages that were sent ``keep_sent`` ago; how many there were. ``run`` does it now and then."""
        deleted = 0
        while not self._stopping.is_set():
            with self._engine.begin() as connection:
                some = self._settling.clean(connection)
            deleted += some
            if some < MOST_AT_ONCE:
                break
        return deleted
