"""DirectSender: blocking sends that the calling thread makes itself, over a blocking connection of its own.

The loop stays in charge of everything else: routes, the first connection to a broker with its heartbeats, retries,
and what middleware or hooks want to see. A send that needs any of it goes on there.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

from orbitmq.client.errors import BrokerError, SendError
from orbitmq.client.instance import fork_guard
from orbitmq.client.message import SendStatus
from orbitmq.client.producer.send import BegunSend
from orbitmq.client.producer.wire import receipt_of
from orbitmq.client.sync.connection_pool import ConnectionPool
from orbitmq.client.validation import check_message
from orbitmq.remoting import ConnectionLostError, RemotingError

if TYPE_CHECKING:
    import asyncio
    import concurrent.futures

    from orbitmq.client.message import Message, Receipt
    from orbitmq.client.producer.message_encoder import EncodedMessage
    from orbitmq.client.producer.queue_selector import Selector
    from orbitmq.client.producer.send import DirectParts, Outcome
    from orbitmq.client.producer.topic_publish_info import Target
    from orbitmq.protocol.bodies import MessageQueue

RECHECK_SECONDS = 0.1
"""``close`` looks again after this; usually it is woken by the last send."""


class DirectSender:
    """Sends for a blocking producer, from any number of threads.

    On one connection a broker sees messages in the order of the calls, on two it may not. So while messages that
    were sent without waiting may still be on the loop's connection, ``enter`` sends others after them.
    """

    def __init__(self, parts: DirectParts, loop: asyncio.AbstractEventLoop) -> None:
        """Made on the loop."""
        self._sender = parts.sender
        self._encoder = parts.encoder
        self._instance = parts.instance
        self._serializer = parts.serializer
        config = parts.sender.config
        self._max_bytes = config.max_message_size
        self._seconds = config.send_msg_timeout
        self._takes_any_status = not config.retry_another_broker_when_not_store_ok
        self._forks = fork_guard.count
        self._monotonic = parts.instance.config.clock.monotonic
        self._pool = ConnectionPool(loop, config.sync_send_connections, self._monotonic)
        self._numbers = itertools.count()
        self._senders: dict[int, int] = {}
        """Threads of the sends in progress."""
        self._is_closing = False
        self._ended = threading.Condition()
        self._on_loop: set[concurrent.futures.Future[Any]] = set()
        self.oneways = 0
        """Sends without a response since the last other one on the loop, which followed them."""
        self._instance.on_lost.append(self._pool.shared_was_lost)

    def follow(self, sent: concurrent.futures.Future[Any]) -> None:
        """Let later sends follow this one until it ends."""
        self._on_loop.add(sent)
        sent.add_done_callback(self._on_loop.discard)

    def followed(self, oneways: int) -> None:
        """A send on the loop has ended that began when ``oneways`` were that many."""
        if self.oneways == oneways:
            self.oneways = 0

    def enter(self) -> int | None:
        """Begin a send, and get a number to ``leave`` with. None if it has to take the loop."""
        if self.oneways or self._on_loop or self._sender.hooks or fork_guard.count != self._forks:
            return None
        number = next(self._numbers)
        self._senders[number] = threading.get_ident()
        if self._is_closing:
            self.leave(number)
            return None
        return number

    def leave(self, number: int) -> None:
        """End a send."""
        del self._senders[number]
        if self._is_closing:
            with self._ended:
                self._ended.notify_all()

    def send(
        self,
        message: Message,
        timeout: float | None,
        queue: MessageQueue | None,
        selector: Selector | None,
        arg: object,
    ) -> Receipt | BegunSend | None:
        """Send a message. A begun send: the loop has to go on with it. None: nothing is done, the route is unknown.

        Raises InvalidMessageError, and SendError for a response that cannot be understood.
        """
        began = self._monotonic()
        check_message(message, self._max_bytes, self._serializer)
        publish_info = self._sender.known(message.topic)
        if publish_info is None:
            return None
        seconds = self._seconds if timeout is None else timeout
        outgoing = self._encoder.encode(message)
        fixed = publish_info.fixed(message, queue, selector, arg)
        target = fixed or publish_info.choose(None, None)
        outcome = self._attempt(outgoing, target, fixed, began, seconds)
        if isinstance(outcome, SendError):
            raise outcome
        if (
            outcome is not None
            and not isinstance(outcome, Exception)
            and (outcome.status is SendStatus.SEND_OK or self._takes_any_status)
        ):
            return outcome
        used = self._monotonic() - began
        return BegunSend(outgoing, publish_info, fixed, target, outcome, used, seconds - used)

    def _attempt(
        self, outgoing: EncodedMessage, target: Target, fixed: Target | None, began: float, seconds: float
    ) -> Outcome:
        shared = target.link.ready()
        connection = None if shared is None else self._pool.borrow(shared)
        if shared is None or connection is None:
            return None
        sender = self._sender
        deadline = began + sender.attempt_seconds(seconds, sender.attempts(fixed) - 1)
        try:
            opaque = connection.next_opaque()
            request = self._instance.signed(outgoing.request(target, opaque, sender.now_ms()))
            answer = connection.exchange(opaque, request, deadline)
        except BaseException as error:
            self._pool.give_up(shared, connection, is_lost=isinstance(error, ConnectionLostError))
            if isinstance(error, RemotingError):
                return error
            raise
        self._pool.give_back(shared, connection)
        try:
            return receipt_of(answer, target.queue, target.link.address or "", outgoing.message_id)
        except (BrokerError, SendError) as error:
            return error

    def close(self) -> None:
        """Wait for the sends in progress, except for one that this very thread has interrupted, and disconnect."""
        self._is_closing = True
        here = threading.get_ident()
        with self._ended:
            while any(thread != here for thread in tuple(self._senders.values())):
                self._ended.wait(RECHECK_SECONDS)
        self._instance.on_lost.remove(self._pool.shared_was_lost)
        self._pool.close()
