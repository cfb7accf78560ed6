"""Blocking transactional producer: the local transaction runs in the calling thread."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Self, Unpack

from orbitmq.client.errors import InvalidMessageError
from orbitmq.client.sync.bridge import SyncFace
from orbitmq.client.sync.producer import Producer
from orbitmq.client.transaction.producer import TransactionProducer as AsyncTransactionProducer
from orbitmq.client.transaction.transaction import state_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from orbitmq.client.message import Message, Receipt
    from orbitmq.client.producer.config import ProducerOptions
    from orbitmq.client.producer.hooks import SendHook
    from orbitmq.client.sync.bridge import SyncLoop
    from orbitmq.client.transaction.transaction import (
        Check,
        LocalTransaction,
        TransactionReceipt,
        TransactionState,
    )
    from orbitmq.client.transaction.transaction import (
        Transaction as AsyncTransaction,
    )


class Transaction:
    """A transactional message, created by ``TransactionProducer.transaction``::

        with producer.transaction(message) as transaction:
            save(order, transaction.transaction_id)

    The end of the block commits the message, an exception rolls it back. Call ``unknown`` to leave it to the
    broker's check. KeyboardInterrupt and the like leave it unknown as well.
    """

    __slots__ = ("_inner", "_running")

    def __init__(self, inner: AsyncTransaction, running: Callable[[], SyncLoop]) -> None:
        self._inner = inner
        self._running = running

    @property
    def message(self) -> Message:
        return self._inner.message

    @property
    def transaction_id(self) -> str:
        """The message id, to store with the local transaction: ``check`` gets it as ``message_id``."""
        return self._inner.transaction_id

    @property
    def receipt(self) -> Receipt | None:
        """Receipt of the half message, once it is stored."""
        return self._inner.receipt

    @property
    def state(self) -> TransactionState:
        """The state that the end reports."""
        return self._inner.state

    @property
    def is_settled(self) -> bool:
        """True if the broker has confirmed the end. If not, it will check."""
        return self._inner.is_settled

    def commit(self) -> None:
        """Commit at the end."""
        self._inner.commit()

    def rollback(self) -> None:
        """Roll back at the end, without an exception."""
        self._inner.rollback()

    def unknown(self) -> None:
        """Report no decision at the end: the broker will check."""
        self._inner.unknown()

    def __enter__(self) -> Self:
        self._running().do(self._inner.begin())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._running().do(self._inner.finish(error))

    def run(self, local: LocalTransaction) -> TransactionReceipt:
        """Store the half message, call the local transaction here, and end by its result."""
        running = self._running()
        if running.do(self._inner.prepare()):
            try:
                self._inner.state = state_of(local(self))
            except BaseException as error:
                self._inner.unknown()
                running.do(self._inner.finish(error))
                raise
            running.do(self._inner.finish())
        return self._inner.result()


class TransactionProducer(Producer):
    """Sends messages, also in transactions::

        def check(message):
            return COMMIT if is_paid(message.message_id) else ROLLBACK

        with TransactionProducer("127.0.0.1:9876", group="orders", check=check) as producer:
            with producer.transaction(Message("orders", b"...")) as transaction:
                pay(order, transaction.transaction_id)

    ``check`` is called in a separate thread when a broker lacks the end of a transaction of the group, of this or
    another producer. Brokers check with any connected producer of the group: ``topics`` lists topics to connect to
    before the first send. The other options are those of ``Producer``.
    """

    def __init__(
        self,
        name_servers: str | Iterable[str] | None = None,
        *,
        group: str,
        check: Check,
        local_transaction: LocalTransaction | None = None,
        check_at_a_time: int = 1,
        hooks: Iterable[SendHook] = (),
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Connects at ``start``. Raises InvalidMessageError for invalid options."""
        self._inner = AsyncTransactionProducer(
            name_servers,
            group=group,
            check=check,
            local_transaction=local_transaction,
            check_at_a_time=check_at_a_time,
            hooks=hooks,
            **options,
        )
        SyncFace.__init__(self, self._inner)

    def transaction(
        self, message: Message, *, timeout: float | None = None, check_after: float | None = None
    ) -> Transaction:
        """A transaction for a block: ``with producer.transaction(message) as transaction``.

        See ``orbitmq.aio.TransactionProducer.transaction``.
        """
        inner = self._inner.transaction(message, timeout=timeout, check_after=check_after)
        return Transaction(inner, self._running)

    def send_in_transaction(
        self,
        message: Message,
        local_transaction: LocalTransaction | None = None,
        *,
        timeout: float | None = None,
        check_after: float | None = None,
    ) -> TransactionReceipt:
        """Store a half message, call the local transaction here, and end it by what that says.

        See ``orbitmq.aio.TransactionProducer.send_in_transaction``.
        """
        local = self._inner.local(local_transaction)
        if inspect.iscoroutinefunction(local):
            raise InvalidMessageError("the local transaction is a coroutine function: use orbitmq.aio for it")
        return self.transaction(message, timeout=timeout, check_after=check_after).run(local)
