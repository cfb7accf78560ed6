"""Relay: claims messages of the outbox, sends them, and retries failures with backoff.

Any number of relays may work on one table, in one process or in many. The claimed messages of a killed relay, which
may have been sent already, are claimed by another one after their lease.
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
from orbitmq.client.options import split_options
from orbitmq.client.sync.consumer import set_on_signals
from orbitmq.client.sync.producer import Producer
from orbitmq.database import MAX_DELETED_ROWS, for_short_transactions
from orbitmq.outbox.claim import ClaimStatements
from orbitmq.outbox.outbox import Outbox
from orbitmq.outbox.outcomes import OutcomeStatements
from orbitmq.outbox.relay_config import RelayConfig
from orbitmq.outbox.sender import send_claimed
from orbitmq.outbox.table import RELAY_NAME_LENGTH

if TYPE_CHECKING:
    from orbitmq.outbox.outcomes import Failure, Outcome
    from orbitmq.outbox.relay_config import RelayOptions
    from orbitmq.outbox.rows import ClaimedMessage

log = logging.getLogger("orbitmq.outbox")

_RECORD_RETRY_SECONDS = 0.2
"""Pause before outcomes are written again after a database error."""


@dataclasses.dataclass(frozen=True, slots=True)
class Round:
    """Counts of one round of a relay."""

    taken: int
    sent: int
    failed: int


class Relay:
    """Sends the messages of an outbox.

    ::

        with Producer("127.0.0.1:9876") as producer:
            Relay(engine, producer).run()       # until Ctrl-C; `with Relay(...)` runs it in the background

    The options are the fields of RelayConfig. It uses up to two connections of the engine.
    """

    def __init__(
        self, engine: sa.Engine, producer: Producer, outbox: Outbox | None = None, **options: Unpack[RelayOptions]
    ) -> None:
        """The caller starts and closes the producer. Raises InvalidMessageError."""
        if not isinstance(engine, sa.Engine):
            raise InvalidMessageError(
                "a relay runs in a thread and needs an engine of sqlalchemy.create_engine, also in an asyncio "
                f"application, not {type(engine).__name__}"
            )
        if not isinstance(producer, Producer):
            raise InvalidMessageError(
                f"a relay needs an orbitmq.Producer, also in an asyncio application, not {producer!r}"
            )
        (given,) = split_options(cast("dict[str, Any]", options), RelayConfig)
        self.config = config = RelayConfig(**given)
        self.outbox = Outbox() if outbox is None else outbox
        self._engine = for_short_transactions(engine)
        self._producer = producer
        self._claims = ClaimStatements(self.outbox.table, config)
        self._outcomes = OutcomeStatements(self.outbox.table, config)
        self._name = f"{socket.gethostname()[:60]}-{os.getpid()}-{random.SystemRandom().getrandbits(48):012x}"
        self._rounds = 0
        self._next_clean = 0.0
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None

    # Running

    def start(self) -> Self:
        """Run in a background thread."""
        if self._thread is not None:
            raise NotRunningError("the relay is already running")
        self._stopping.clear()
        self._thread = threading.Thread(target=self._work, name="orbitmq-outbox", daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """Wait for sends in flight, and stop. Does nothing if it never ran."""
        self._stopping.set()
        self._woken.set()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self) -> None:
        """Run until Ctrl-C, SIGTERM, or ``close`` by another thread."""
        with set_on_signals(self._stopping):
            self._work()

    def wake(self) -> None:
        """Poll at once, after a commit. Thread-safe."""
        self._woken.set()

    def _work(self) -> None:
        config = self.config
        failures = 0
        while not self._stopping.is_set():
            self._woken.clear()
            try:
                done = self.run_once()
                self._clean_if_due()
            except NotRunningError as error:
                log.error("outbox relay: %s stopped: %s", self.outbox.table.name, error)
                return
            except SQLAlchemyError as error:
                failures += 1
                log.warning("outbox relay: database of %s failed, will retry: %s", self.outbox.table.name, error)
                self._stopping.wait(config.retry_after(failures))
                continue
            except Exception:
                # The thread must not end silently: messages would never be sent.
                failures += 1
                log.exception("outbox relay: round of %s failed, will retry", self.outbox.table.name)
                self._stopping.wait(config.retry_after(failures))
                continue
            failures = 0
            if not done.sent:
                # A signal sets the stop event only, so _wait polls it.
                self._wait(config.poll_interval)

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self._stopping.is_set():
            if self._woken.wait(min(left, 0.1)):
                return

    # One round

    def run_once(self) -> Round:
        """Claim messages, send them and record the outcomes.

        Raises SQLAlchemyError, and NotRunningError if the producer is not running. Failed sends are retried later
        and raise nothing.
        """
        # Measured from before the claim; half of the lease is left for responses and recording.
        begun = time.monotonic()
        lease_ends = begun + self.config.lease
        name = self._next_claim_name()
        sequences = self._claim(name)
        if not sequences:
            return Round(0, 0, 0)
        outcome = send_claimed(
            self._producer,
            sequences,
            may_go_on=lambda: not self._stopping.is_set() and time.monotonic() < begun + self.config.lease / 2,
            resend_unsaved=self.config.resend_unsaved,
        )
        self._record(outcome, name, lease_ends)
        for failure in outcome.failed:
            self._report(failure)
        if outcome.closed is not None:
            raise outcome.closed
        return Round(sum(map(len, sequences)), len(outcome.sent), len(outcome.failed))

    def _next_claim_name(self) -> str:
        self._rounds += 1
        return f"{self._name}-{self._rounds}"[-RELAY_NAME_LENGTH:]

    def _claim(self, name: str) -> list[list[ClaimedMessage]]:
        # Separate from the claim: in SQLite, a read transaction may fail to become a write transaction.
        with self._engine.connect() as connection:
            candidates = self._claims.candidates(connection)
        if not candidates:
            return []
        with self._engine.begin() as connection:
            return self._claims.claim(connection, candidates, name)

    def _record(self, outcome: Outcome, name: str, lease_ends: float) -> None:
        """Record outcomes, with retries until the lease ends: unrecorded messages would be sent twice."""
        while True:
            try:
                with self._engine.begin() as connection:
                    self._outcomes.record(connection, outcome, name)
                return
            except OperationalError as error:
                if time.monotonic() + _RECORD_RETRY_SECONDS > lease_ends:
                    raise
                log.warning(
                    "outbox relay: recording %d sent messages failed, will retry: %s", len(outcome.sent), error
                )
                time.sleep(_RECORD_RETRY_SECONDS)

    def _report(self, failure: Failure) -> None:
        config, taken = self.config, failure.taken
        log.warning(
            "outbox relay: sending message %s to %s failed, will retry in %g s: %s",
            *(taken.id, taken.message.topic, config.retry_after(failure.failures), failure.text),
        )
        # An invalid message is reported at its first failure.
        is_invalid = failure.failures == 1 and isinstance(failure.error, InvalidMessageError)
        if failure.failures % config.alarm_after and not is_invalid:
            return
        unsent = taken.unsent(failure.failures, failure.text)
        if config.alarm is None:
            log.error("outbox relay: %s failed %d times, needs attention", unsent, unsent.failures)
            return
        try:
            config.alarm(unsent)
        except Exception:
            log.exception("outbox relay: alarm callback for %s failed", unsent)

    def _clean_if_due(self) -> None:
        now = time.monotonic()
        if now >= self._next_clean:
            self._next_clean = now + self.config.clean_interval
            self.clean()

    def clean(self) -> int:
        """Delete messages sent longer than ``keep_sent`` ago; returns how many. ``run`` does it periodically."""
        deleted = 0
        while not self._stopping.is_set():
            with self._engine.begin() as connection:
                some = self._outcomes.clean(connection)
            deleted += some
            if some < MAX_DELETED_ROWS:
                break
        return deleted
