"""Transactional producer for asyncio: messages that depend on a local transaction."""

from __future__ import annotations

import asyncio
import inspect
import logging
from typing import TYPE_CHECKING, Self, Unpack

from orbitmq.client import namespace as namespaces
from orbitmq.client.errors import InvalidMessageError, OrbitMQError
from orbitmq.client.message import ReceivedMessage
from orbitmq.client.producer.producer import Producer
from orbitmq.client.transaction.check_responder import CheckResponder, TransactionCheck
from orbitmq.client.transaction.transaction import Transaction, TransactionState, state_of
from orbitmq.protocol.codes import LanguageCode, RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.message.message_id import decode_offset_id
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.client.message import Message, Receipt
    from orbitmq.client.producer.config import ProducerOptions
    from orbitmq.client.producer.hooks import SendHook
    from orbitmq.client.transaction.transaction import Check, LocalTransaction, TransactionReceipt
    from orbitmq.protocol.message.record import Record
    from orbitmq.remoting import Connection

log = logging.getLogger("orbitmq.client")

_TRACED_STATES = {
    TransactionState.COMMIT: "COMMIT_MESSAGE",
    TransactionState.ROLLBACK: "ROLLBACK_MESSAGE",
    TransactionState.UNKNOWN: "UNKNOW",
}
"""Names of Java's clients, spelling included."""


class TransactionProducer(Producer):
    """Sends messages, also in transactions. It belongs to the event loop that it was started on::

        async def check(message):
            return COMMIT if await is_paid(message.message_id) else ROLLBACK

        async with TransactionProducer("127.0.0.1:9876", group="orders", check=check) as producer:
            async with producer.transaction(Message("orders", b"...")) as transaction:
                await pay(order, transaction.transaction_id)

    ``check`` is called when a broker lacks the end of a transaction of the group, of this or another producer.
    Brokers check with any connected producer of the group: ``topics`` lists topics to connect to before the first
    send. The other options are those of ``Producer``.
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
            raise InvalidMessageError("check must be a function that returns the state of a transaction")
        if check_at_a_time < 1:
            raise InvalidMessageError(f"check_at_a_time must be 1 or more, not {check_at_a_time}")
        super().__init__(name_servers, group=group, hooks=hooks, **options)
        self._check = check
        self._local_transaction = local_transaction
        self._check_at_a_time = check_at_a_time
        self._checks: CheckResponder | None = None

    # Start and close

    async def start(self) -> Self:
        """Start sending and responding to checks. Name servers and brokers may start later."""
        if self._checks is None:
            self._checks = CheckResponder(self.group, self._check, self._check_at_a_time, self._checked)
        return await super().start()

    async def _leave(self) -> None:
        await super()._leave()
        if self._checks is not None:
            await self._checks.close()

    # Transactions

    def transaction(
        self, message: Message, *, timeout: float | None = None, check_after: float | None = None
    ) -> Transaction:
        """A transaction for a block: ``async with producer.transaction(message) as transaction``.

        ``timeout`` is for storing the half message. ``check_after`` is how many seconds brokers wait before the
        first check, if longer than their ``transactionTimeOut``; the transaction must end within that time. Raises
        InvalidMessageError.
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
        """Store a half message, run the local transaction, and end it by its result.

        ``local_transaction`` is called with the Transaction and returns a TransactionState, in a thread if it is
        a plain function. If it raises, so does this, and brokers will check the state. It is not called unless
        the half message was stored with SEND_OK. Otherwise raises what ``send`` raises.
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
        """The given local transaction, or the producer's. Raises InvalidMessageError."""
        found = given or self._local_transaction
        if found is None:
            raise InvalidMessageError(
                "no local transaction: pass a function here or to the producer, or use transaction()"
            )
        return found

    async def end(self, half: Message, receipt: Receipt, state: TransactionState, remark: str | None) -> bool:
        """Send the end of a transaction to the broker; returns whether it is confirmed."""
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
                raise OrbitMQError(f"the broker {name!r} has no known master")
            if state is not TransactionState.UNKNOWN:
                await self._instance.call(address, command, self._seconds)
                return True
            # Brokers do not respond to UNKNOWN.
            command.language = LanguageCode.PYTHON
            (await self._instance.connection(address)).call_oneway(command)
        except (RemotingError, OrbitMQError) as error:
            log.warning(
                "transaction: end of %s (%s) not confirmed, the broker will check: %s",
                receipt.message_id,
                state.name,
                error,
            )
        return False

    def check_transaction(self, connection: Connection, fields: dict[str, str], record: Record) -> None:
        """Queue a transaction check of a broker (39)."""
        if self._checks is None:
            return
        topic = namespaces.unwrap(self.client_config.namespace, record.topic)
        message = ReceivedMessage(record, fields.get("bname", ""), topic)
        answer = {"producerGroup": self.group, "fromTransactionCheck": "true", "msgId": message.message_id}
        for name in ("topic", "tranStateTableOffset", "commitLogOffset", "transactionId", "bname"):
            if name in fields:
                answer[name] = fields[name]
        self._checks.submit(
            TransactionCheck(connection, message, fields),
            Command(RequestCode.END_TRANSACTION, ext_fields=answer, language=LanguageCode.PYTHON),
        )

    def _checked(self, question: TransactionCheck, answer: Command, state: TransactionState) -> None:
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
        state: object = await asyncio.to_thread(local, transaction)
        return await state if inspect.isawaitable(state) else state
    return await local(transaction)
