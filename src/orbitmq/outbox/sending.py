"""Sending what was taken: all lanes at the same time, each of them one message after the other."""

from __future__ import annotations

import concurrent.futures
import queue
from typing import TYPE_CHECKING

from orbitmq.client.errors import NotRunningError
from orbitmq.client.messages import SendStatus
from orbitmq.outbox.settling import Failure, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.client.messages import Receipt
    from orbitmq.client.sync_producer import Producer
    from orbitmq.outbox.rows import TakenMessage


def send_lanes(
    producer: Producer,
    lanes: list[list[TakenMessage]],
    *,
    may_go_on: Callable[[], bool],
    resend_unsaved: bool,
) -> Outcome:
    """Send messages and wait for what becomes of them. Of a lane in which one fails, the rest is not tried.

    ``may_go_on`` is asked before each: what is not begun by then is left.
    """
    outcome = Outcome()
    answered: queue.SimpleQueue[concurrent.futures.Future[Receipt]] = queue.SimpleQueue()
    on_their_way: dict[concurrent.futures.Future[Receipt], tuple[list[TakenMessage], int]] = {}

    def send(lane: list[TakenMessage], at: int) -> None:
        if at == len(lane):
            return
        if (damage := lane[at].damage) is not None:
            outcome.failed.append(Failure(lane[at], damage))
            outcome.held.extend(lane[at + 1 :])
            return
        if outcome.closed is None and may_go_on():
            try:
                future = producer.send_async(lane[at].message)
            except NotRunningError as error:
                outcome.closed = error
            else:
                on_their_way[future] = lane, at
                future.add_done_callback(answered.put)
                return
        outcome.held.extend(lane[at:])

    for lane in lanes:
        send(lane, 0)
    while on_their_way:
        future = answered.get()
        lane, at = on_their_way.pop(future)
        error = concurrent.futures.CancelledError() if future.cancelled() else future.exception()
        if isinstance(error, NotRunningError):
            outcome.closed = error
            outcome.held.extend(lane[at:])
        elif error is not None:
            outcome.failed.append(Failure(lane[at], error))
            outcome.held.extend(lane[at + 1 :])
        elif resend_unsaved and (status := future.result().status) is not SendStatus.SEND_OK:
            why = f"the broker has it, but could not confirm that it is safe there: {status.name}"
            outcome.failed.append(Failure(lane[at], why))
            outcome.held.extend(lane[at + 1 :])
        else:
            outcome.sent.append(lane[at])
            send(lane, at + 1)
    return outcome
