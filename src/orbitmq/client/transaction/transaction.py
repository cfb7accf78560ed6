"""Transaction: a message that is delivered only if a local transaction succeeds.

The message is stored first, as a half message that consumers cannot read. Then the application runs its local
transaction, whose state commits the message or rolls it back. If the broker does not receive the end, for example
because the application was killed, it checks the state with a producer of the group.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeAlias

from orbitmq.client.errors import InvalidMessageError, NotRunningError, SendError
from orbitmq.client.message import Message, SendStatus
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.flags import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from orbitmq.client.message import Receipt, ReceivedMessage


class TransactionState(enum.Enum):
    """State of a local transaction."""

    COMMIT = TRANSACTION_COMMIT
    """Succeeded: the message is delivered."""
    ROLLBACK = TRANSACTION_ROLLBACK
    """Failed: the message is deleted."""
    UNKNOWN = TRANSACTION_NONE
    """Undecided: the broker will check later."""


if TYPE_CHECKING:
    ReportedState: TypeAlias = TransactionState | None
    LocalTransaction: TypeAlias = Callable[[Any], ReportedState | Awaitable[ReportedState]]
    """Called with the Transaction; returns the state. None is UNKNOWN."""
    Check: TypeAlias = Callable[[ReceivedMessage], ReportedState | Awaitable[ReportedState]]
    """Returns the state of a message's local transaction. None is UNKNOWN."""


class TransactionReceipt(NamedTuple):
    """Result of a transactional send."""

    receipt: Receipt
    """Receipt of the half message. Consumers do not see its position."""
    state: TransactionState
    is_settled: bool
    """Whether the broker has confirmed the end. If not, it will check."""


class _TransactionSender(Protocol):
    """Interface of the producer for its transactions."""

    group: str

    async def send(self, message: Message, *, timeout: float | None = None) -> Receipt: ...  # noqa: ASYNC109

    async def end(self, half: Message, receipt: Receipt, state: TransactionState, remark: str | None) -> bool: ...


class Transaction:
    """A transactional message, created by ``TransactionProducer.transaction``::

        async with producer.transaction(message) as transaction:
            await save(order, transaction.transaction_id)

    The end of the block commits the message, an exception rolls it back. Call ``unknown`` to leave it to the
    broker's check. Cancellation of the task leaves it unknown as well.
    """

    __slots__ = ("_half", "_producer", "_timeout", "is_settled", "message", "receipt", "state")

    def __init__(
        self,
        producer: _TransactionSender,
        message: Message,
        *,
        timeout: float | None = None,
        check_after: float | None = None,
    ) -> None:
        self._producer = producer
        self._half = _half_of(message, producer.group, check_after)
        self._timeout = timeout
        self.message = message
        self.receipt: Receipt | None = None
        """Receipt of the half message, once it is stored."""
        self.state = TransactionState.COMMIT
        """The state that the end reports."""
        self.is_settled = False

    @property
    def transaction_id(self) -> str:
        """The message id, to store with the local transaction: ``check`` gets it as ``message_id``."""
        return self._half.properties.get(names.UNIQUE_KEY, "")

    # State

    def commit(self) -> None:
        """Commit at the end."""
        self.state = TransactionState.COMMIT

    def rollback(self) -> None:
        """Roll back at the end, without an exception."""
        self.state = TransactionState.ROLLBACK

    def unknown(self) -> None:
        """Report no decision at the end: the broker will check."""
        self.state = TransactionState.UNKNOWN

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.finish(error)

    async def begin(self) -> None:
        """Store the half message. Raises what ``send`` raises, and SendError unless its status is SEND_OK."""
        if not await self.prepare():
            assert self.receipt is not None
            raise SendError(f"the half message was stored with {self.receipt.status.name}, and is rolled back")

    async def prepare(self) -> bool:
        """Store the half message. False: its status is not SEND_OK, so it is rolled back."""
        if self.receipt is not None:
            raise NotRunningError("a transaction can be started only once: create another one")
        self.receipt = await self._producer.send(self._half, timeout=self._timeout)
        self.message.properties[names.UNIQUE_KEY] = self.transaction_id
        if self.receipt.status is SendStatus.SEND_OK:
            return True
        self.rollback()
        await self.finish()
        return False

    async def finish(self, error: BaseException | None = None) -> None:
        """Send the end to the broker. ``error`` is the exception of the local transaction, if any."""
        assert self.receipt is not None, "not begun"
        remark = None
        if isinstance(error, Exception):
            remark = f"executeLocalTransactionBranch exception: {type(error).__name__}: {error}"
            if self.state is not TransactionState.UNKNOWN:
                self.rollback()
        elif error is not None:
            # Task cancelled or program exiting: the state is unknown, and there is no time for a request.
            self.unknown()
            return
        self.is_settled = await self._producer.end(self._half, self.receipt, self.state, remark)

    def result(self) -> TransactionReceipt:
        assert self.receipt is not None, "not begun"
        return TransactionReceipt(self.receipt, self.state, self.is_settled)


def state_of(returned: object) -> TransactionState:
    """The state that a function of the application returned. Raises TypeError."""
    if returned is None:
        return TransactionState.UNKNOWN
    if not isinstance(returned, TransactionState):
        raise TypeError(f"expected a TransactionState, not {returned!r}")
    return returned


def _half_of(message: Message, group: str, check_after: float | None) -> Message:
    """A copy of the message with the properties of a half message."""
    if names.DELAY_LEVEL in message.properties:
        raise InvalidMessageError("a transactional message cannot be delayed: remove delay_level")
    half = Message(message.topic, message.body, flag=message.flag)
    half.properties.update(message.properties)
    half.properties[names.TRANSACTION_PREPARED] = "true"
    half.properties[names.PRODUCER_GROUP] = group
    if check_after is not None:
        if check_after < 1:
            raise InvalidMessageError(f"check_after is one second or more, not {check_after}")
        half.properties[names.CHECK_IMMUNITY_SECONDS] = str(int(check_after))
    return half
