"""One transaction: a message that others see only once what it tells of has happened.

The message is stored first, as a half message that nobody can read. Then the application does its part, the local
transaction. What came of that decides about the message. If the broker does not hear of it, because the application
was killed, say, it asks any producer of the group later.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeAlias

from orbitmq.client.errors import InvalidMessageError, NotRunningError, SendError
from orbitmq.client.messages import Message, SendStatus
from orbitmq.protocol import property_names as names
from orbitmq.protocol.flags import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from types import TracebackType

    from orbitmq.client.messages import Receipt, ReceivedMessage


class TransactionState(enum.Enum):
    """What became of a local transaction."""

    COMMIT = TRANSACTION_COMMIT
    """It happened: the message is delivered."""
    ROLLBACK = TRANSACTION_ROLLBACK
    """It did not happen: the message is forgotten."""
    UNKNOWN = TRANSACTION_NONE
    """Nobody can say yet: the broker will ask later."""


if TYPE_CHECKING:
    Said: TypeAlias = TransactionState | None
    LocalTransaction: TypeAlias = Callable[[Any], Said | Awaitable[Said]]
    """Called with the Transaction: does what the message tells of, and says what came of it. None is UNKNOWN."""
    Check: TypeAlias = Callable[[ReceivedMessage], Said | Awaitable[Said]]
    """Says what became of the local transaction of a message. None is UNKNOWN."""


class TransactionReceipt(NamedTuple):
    """What came of a message and its local transaction."""

    receipt: Receipt
    """Of the half message: where it lies, nobody reads."""
    state: TransactionState
    is_settled: bool
    """Whether the broker has confirmed it. If not, it will ask."""


class _Ends(Protocol):
    """What a transaction needs of its producer."""

    group: str

    async def send(self, message: Message, *, timeout: float | None = None) -> Receipt: ...  # noqa: ASYNC109

    async def end(self, half: Message, receipt: Receipt, state: TransactionState, remark: str | None) -> bool: ...


class Transaction:
    """A message whose fate is open, as ``TransactionProducer.transaction`` makes it::

        async with producer.transaction(message) as transaction:
            await save(order, transaction.transaction_id)

    At the end of the block the message is delivered; an exception takes it back. Whoever cannot say calls
    ``unknown``. An interruption that is no failure, such as the cancellation of the task, leaves it open as well.
    """

    __slots__ = ("_half", "_producer", "_timeout", "is_settled", "message", "receipt", "state")

    def __init__(
        self, producer: _Ends, message: Message, *, timeout: float | None = None, check_after: float | None = None
    ) -> None:
        self._producer = producer
        self._half = _half_of(message, producer.group, check_after)
        self._timeout = timeout
        self.message = message
        self.receipt: Receipt | None = None
        """Of the half message, once it is stored."""
        self.state = TransactionState.COMMIT
        """What becomes of the message."""
        self.is_settled = False

    @property
    def transaction_id(self) -> str:
        """The id of the message, to be noted with the local transaction: ``check`` gets it as ``message_id``."""
        return self._half.properties.get(names.UNIQUE_KEY, "")

    # What becomes of it

    def commit(self) -> None:
        """Deliver the message at the end, after all."""
        self.state = TransactionState.COMMIT

    def rollback(self) -> None:
        """Take the message back at the end, without an exception."""
        self.state = TransactionState.ROLLBACK

    def unknown(self) -> None:
        """Decide nothing at the end: the broker will ask."""
        self.state = TransactionState.UNKNOWN

    async def __aenter__(self) -> Self:
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.finish(error)

    async def begin(self) -> None:
        """Store the half message. Raises what ``send`` raises, and SendError if it is not stored safely."""
        if not await self.prepare():
            assert self.receipt is not None
            raise SendError(f"the half message was stored with {self.receipt.status.name}, and is taken back")

    async def prepare(self) -> bool:
        """Store the half message; False if it is not stored as safely as was wanted, and therefore taken back."""
        if self.receipt is not None:
            raise NotRunningError("a transaction can be begun once only: make another one")
        self.receipt = await self._producer.send(self._half, timeout=self._timeout)
        self.message.properties[names.UNIQUE_KEY] = self.transaction_id
        if self.receipt.status is SendStatus.SEND_OK:
            return True
        self.rollback()
        await self.finish()
        return False

    async def finish(self, error: BaseException | None = None) -> None:
        """Tell the broker what became of the local transaction, which may have ended with an error."""
        assert self.receipt is not None, "not begun"
        remark = None
        if isinstance(error, Exception):
            remark = f"executeLocalTransactionBranch exception: {type(error).__name__}: {error}"
            if self.state is not TransactionState.UNKNOWN:
                self.rollback()
        elif error is not None:
            # The task is cancelled, or the program ends: nobody knows how far it came, nor is there time to say so.
            self.unknown()
            return
        self.is_settled = await self._producer.end(self._half, self.receipt, self.state, remark)

    def result(self) -> TransactionReceipt:
        assert self.receipt is not None, "not begun"
        return TransactionReceipt(self.receipt, self.state, self.is_settled)


def state_of(said: object) -> TransactionState:
    """What a function of the application has said. Raises TypeError."""
    if said is None:
        return TransactionState.UNKNOWN
    if not isinstance(said, TransactionState):
        raise TypeError(f"a TransactionState says what became of a transaction, {said!r} does not")
    return said


def _half_of(message: Message, group: str, check_after: float | None) -> Message:
    """The message with what makes it half, which the application's own does not keep."""
    if names.DELAY_LEVEL in message.properties:
        raise InvalidMessageError("a message of a transaction cannot be delayed as well: leave delay_level out")
    half = Message(message.topic, message.body, flag=message.flag)
    half.properties.update(message.properties)
    half.properties[names.TRANSACTION_PREPARED] = "true"
    half.properties[names.PRODUCER_GROUP] = group
    if check_after is not None:
        if check_after < 1:
            raise InvalidMessageError(f"check_after is one second or more, not {check_after}")
        half.properties[names.CHECK_IMMUNITY_SECONDS] = str(int(check_after))
    return half
