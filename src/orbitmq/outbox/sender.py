"""Sending of claimed messages: ordering keys concurrently, messages of one key sequentially."""

from __future__ import annotations

import concurrent.futures
import queue
from typing import TYPE_CHECKING

from orbitmq.client.errors import NotRunningError
from orbitmq.client.message import SendStatus
from orbitmq.outbox.outcomes import Failure, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.client.message import Receipt
    from orbitmq.client.sync.producer import Producer
    from orbitmq.outbox.rows import ClaimedMessage


def send_claimed(
    producer: Producer,
    sequences: list[list[ClaimedMessage]],
    *,
    may_go_on: Callable[[], bool],
    resend_unsaved: bool,
) -> Outcome:
    """Send claimed messages and collect the outcomes. After a failure, the rest of its ordering key is released.

    ``may_go_on`` is called before each send; if it returns False, the remaining messages are released.
    """
    outcome = Outcome()
    responses: queue.SimpleQueue[concurrent.futures.Future[Receipt]] = queue.SimpleQueue()
    in_flight: dict[concurrent.futures.Future[Receipt], tuple[list[ClaimedMessage], int]] = {}

    def send(sequence: list[ClaimedMessage], at: int) -> None:
        if at == len(sequence):
            return
        if (damage := sequence[at].damage) is not None:
            outcome.failed.append(Failure(sequence[at], damage))
            outcome.held.extend(sequence[at + 1 :])
            return
        if outcome.closed is None and may_go_on():
            try:
                future = producer.send_async(sequence[at].message)
            except NotRunningError as error:
                outcome.closed = error
            else:
                in_flight[future] = sequence, at
                future.add_done_callback(responses.put)
                return
        outcome.held.extend(sequence[at:])

    for sequence in sequences:
        send(sequence, 0)
    while in_flight:
        future = responses.get()
        sequence, at = in_flight.pop(future)
        error = concurrent.futures.CancelledError() if future.cancelled() else future.exception()
        if isinstance(error, NotRunningError):
            outcome.closed = error
            outcome.held.extend(sequence[at:])
        elif error is not None:
            outcome.failed.append(Failure(sequence[at], error))
            outcome.held.extend(sequence[at + 1 :])
        elif resend_unsaved and (status := future.result().status) is not SendStatus.SEND_OK:
            reason = f"the broker accepted it without confirming durability: {status.name}"
            outcome.failed.append(Failure(sequence[at], reason))
            outcome.held.extend(sequence[at + 1 :])
        else:
            outcome.sent.append(sequence[at])
            send(sequence, at + 1)
    return outcome
