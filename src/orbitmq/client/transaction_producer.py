"""The producer of transactions: what an application sends messages with that depend on something else it does."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, Self, Unpack

from orbitmq.client import namespaces
from orbitmq.client.errors import InvalidMessageError, OrbitMQError
from orbitmq.client.messages import ReceivedMessage
from orbitmq.client.producer import Producer
from orbitmq.client.transaction import Transaction, TransactionState, state_of
from orbitmq.client.transaction_checks import Question, TransactionChecks
from orbitmq.protocol.codes import LanguageCode, RequestCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.message_id import decode_offset_id
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.client.messages import Message, Receipt
    from orbitmq.client.producer_config import ProducerOptions
    from orbitmq.client.send_hooks import SendHook
    from orbitmq.client.transaction import Check, LocalTransaction, TransactionReceipt
    from orbitmq.protocol.record import Record
    from orbitmq.remoting import Connection

log = logging.getLogger("orbitmq.client")

_TRACED_STATES = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}
"""What Java calls them, spelling included."""


class TransactionProducer(Producer):
    """Sends messages, also in transactions. It belongs to the event loop that it was started on::

        async def check(message):
            return COMMIT if await is_paid(message.message_id) else ROLLBACK

        async with TransactionProducer("127.0.0.1:9876", group="orders", check=check) as producer:
            async with producer.transaction(Message("orders", b"...")) as transaction:
                await pay(order, transaction.transaction_id)

    ``check`` is called when a broker does not know what became of a transaction of the group, be it of this
    producer or of one that is gone. Brokers ask those who are there: ``topics`` says of which topics a producer
    wants to be asked before it has sent anything. The other options are those of ``Producer``.
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
        """``local_transaction`` is for ``send_in_transaction``. Raises InvalidMessageError."""
        if not callable(check):
            raise InvalidMessageError("check has to be a function: a broker asks it what became of a transaction")
        if check_at_a_time < 1:
            raise InvalidMessageError(f"check_at_a_time must be 1 or more, not {check_at_a_time}")
        super().__init__(name_servers, group=group, hooks=hooks, **options)
        self._check = check
        self._local_transaction = local_transaction
        self._check_at_a_time = check_at_a_time
        self._checks: TransactionChecks | None = None

    # Life

    async def start(self) -> Self:
        """Be ready to send, and to be asked. Name servers and brokers need not be there yet."""
        if self._checks is None:
            self._checks = TransactionChecks(self.group, self._check, self._check_at_a_time, self._checked)
        return await super().start()

    async def _leave(self) -> None:
        await super()._leave()
        if self._checks is not None:
            await self._checks.close()

    # Transactions

    def transaction(
        self, message: Message, *, timeout: float | None = None, check_after: float | None = None
    ) -> Transaction:
        """A message whose fate a block decides: ``async with producer.transaction(message) as transaction``.

        ``timeout`` is for storing the half message. ``check_after`` is how many seconds brokers wait before they
        ask, if that has to be longer than their own ``transactionTimeOut``; a transaction has to be ended in that
        time then. Raises InvalidMessageError.
        """
        return Transaction(self, message, timeout=timeout, check_after=check_after)

    async def send_in_transaction(
        self,
        message: Message,
        local_transaction: LocalTransaction | None = None,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - it is the time for all attempts together
        check_after: float | None = None,
    ) -> TransactionReceipt:
        """Store a half message, have the local transaction done, and end it by what that says.

        ``local_transaction`` is called with the Transaction and returns a TransactionState, in a thread if it is
        a plain function. If it raises, so does this, and brokers will ask what became of it. It is not called if
        the message was not stored as safely as was wanted. Otherwise raises what ``send`` raises.
        """
        local = self.local(local_transaction)
        transaction = self.transaction(message, timeout=timeout, check_after=check_after)
        if await transaction.prepare():
            try:
                transaction.state = state_of(await _run(local, transaction))
            except BaseException as error:
                transaction.unknown()
                await transaction.finish(error)
                raise
            await transaction.finish()
        return transaction.result()

    def local(self, given: LocalTransaction | None) -> LocalTransaction:
        """The local transaction that is given, or the one of all. Raises InvalidMessageError."""
        found = given or self._local_transaction
        if found is None:
            raise InvalidMessageError(
                "there is no local transaction: give a function here or to the producer, or use transaction()"
            )
        return found

    async def end(self, half: Message, receipt: Receipt, state: TransactionState, remark: str | None) -> bool:
        """Tell the broker of a half message what became of it, and say whether it has taken note."""
        wire_topic = namespaces.wrap(self.client_config.namespace, half.topic)
        name = receipt.queue.broker_name
        fields = {
            "topic": wire_topic,
            "producerGroup": self.group,
            "tranStateTableOffset": str(receipt.queue_offset),
            "commitLogOffset": str(decode_offset_id(receipt.offset_message_id)[1]),
            "commitOrRollback": str(state.value),
            "fromTransactionCheck": "false",
            "msgId": receipt.message_id,
            "transactionId": receipt.transaction_id or receipt.message_id,
            "bname": name,
        }
        command = Command(RequestCode.END_TRANSACTION, ext_fields=fields, remark=remark)
        try:
            address = self._instance.address(wire_topic, name)
            self._trace_end(half, address or "", fields, state, from_check=False)
            if address is None:
                raise OrbitMQError(f"no master of the broker {name!r} is known")
            if state is not TransactionState.UNKNOWN:
                await self._instance.call(address, command, self._seconds)
                return True
            # To this no broker has an answer.
            command.language = LanguageCode.PYTHON
            (await self._instance.connection(address)).call_oneway(command)
        except (RemotingError, OrbitMQError) as error:
            log.warning(
                "the broker was not told of the transaction %s (%s), and will ask: %s",
                receipt.message_id,
                state.name,
                error,
            )
        return False

    def check_transaction(self, connection: Connection, fields: dict[str, str], record: Record) -> None:
        """A broker asks what became of a transaction (39)."""
        if self._checks is None:
            return
        topic = namespaces.unwrap(self.client_config.namespace, record.topic)
        message = ReceivedMessage(record, fields.get("bname", ""), topic)
        answer = {"producerGroup": self.group, "fromTransactionCheck": "true", "msgId": message.message_id}
        for name in ("topic", "tranStateTableOffset", "commitLogOffset", "transactionId", "bname"):
            if name in fields:
                answer[name] = fields[name]
        self._checks.ask(
            Question(connection, message, fields),
            Command(RequestCode.END_TRANSACTION, ext_fields=answer, language=LanguageCode.PYTHON),
        )

    def _checked(self, question: Question, answer: Command, state: TransactionState) -> None:
        address = question.connection.remote_address
        self._trace_end(question.message, address, answer.ext_fields, state, from_check=True)

    def _trace_end(
        self,
        message: Message | ReceivedMessage,
        address: str,
        fields: dict[str, str],
        state: TransactionState,
        *,
        from_check: bool,
    ) -> None:
        if self._tracing is None:
            return
        self._tracing.transaction_ended(
            message,
            group=self.config.group,
            broker_address=address,
            message_id=fields["msgId"],
            transaction_id=fields.get("transactionId", ""),
            state=_TRACED_STATES[state],
            from_check=from_check,
        )


async def _run(local: LocalTransaction, transaction: Transaction) -> object:
    if not inspect.iscoroutinefunction(local):
        said: object = await asyncio.to_thread(local, transaction)
        return await said if inspect.isawaitable(said) else said
    return await local(transaction)
