"""EndTransaction, and the checks of half messages that brokers send to producers."""

from __future__ import annotations

import collections
import logging
from typing import TYPE_CHECKING, NamedTuple

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.fields import decode_fields
from orbitmq.protocol.command.request_fields import REQUEST_FIELDS
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.flags import TRANSACTION_COMMIT, TRANSACTION_NONE, TRANSACTION_ROLLBACK
from orbitmq.protocol.message.properties import find
from orbitmq.protocol.message.property_names import TRANSACTION_ID
from orbitmq.protocol.message.record import decode_record
from orbitmq.proxy.errors import StatusError, ok
from orbitmq.proxy.messages.from_stored import delivered
from orbitmq.proxy.messages.validation import check_topic
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.proto import service_pb2 as rpc

if TYPE_CHECKING:
    from orbitmq.platform.clock import Clock
    from orbitmq.proxy.clients.client import Client
    from orbitmq.proxy.config import GrpcConfig
    from orbitmq.proxy.context import CallContext

log = logging.getLogger("orbitmq.proxy")

_RESOLUTIONS = {pb.COMMIT: TRANSACTION_COMMIT, pb.ROLLBACK: TRANSACTION_ROLLBACK}


class HalfMessage(NamedTuple):
    """Place of a half message, by which its broker ends it."""

    broker_name: str
    queue_offset: int
    physical_offset: int


class Transactions:
    """The places of half messages that were sent, or checked, in the last ``transactionDataExpireMillis``."""

    def __init__(self, config: GrpcConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._known: collections.OrderedDict[tuple[str, str], list[tuple[float, HalfMessage]]] = (
            collections.OrderedDict()
        )

    def __len__(self) -> int:
        return len(self._known)

    def add(self, topic: str, transaction_id: str, half: HalfMessage) -> None:
        """Remember the newest copy of a half message."""
        key = topic, transaction_id
        found = self._known.setdefault(key, [])
        found.append((self._clock.monotonic(), half))
        del found[: -self._config.transaction_data_max_num]
        self._known.move_to_end(key)
        while len(self._known) > self._config.grpc_max_transactions:
            self._known.popitem(last=False)

    def expire(self) -> None:
        """Forget what is too old."""
        oldest = self._clock.monotonic() - self._config.transaction_data_expire_millis / 1000
        while self._known:
            key = next(iter(self._known))
            if self._known[key][-1][0] >= oldest:
                return
            del self._known[key]

    def take(self, topic: str, transaction_id: str) -> HalfMessage:
        """Remove and return the newest copy of a half message. Raises StatusError."""
        found = self._known.get((topic, transaction_id), [])
        oldest = self._clock.monotonic() - self._config.transaction_data_expire_millis / 1000
        if not found or found[-1][0] < oldest:
            raise StatusError(
                pb.INTERNAL_SERVER_ERROR,
                f"cannot found transaction data for {transaction_id}: its broker will check the transaction",
            )
        half = found.pop()[1]
        if not found:
            del self._known[topic, transaction_id]
        return half

    async def end(
        self, request: rpc.EndTransactionRequest, client: Client, call: CallContext
    ) -> rpc.EndTransactionResponse:
        """EndTransaction. Whether the broker accepts the end is not reported, as with Apache's proxy."""
        topic = check_topic(request.topic)
        if not request.transaction_id.strip():
            raise StatusError(pb.INVALID_TRANSACTION_ID, "transaction id cannot be blank")
        half = self.take(topic, request.transaction_id)
        fields = {
            "topic": topic,
            "producerGroup": topic,
            "tranStateTableOffset": str(half.queue_offset),
            "commitLogOffset": str(half.physical_offset),
            "commitOrRollback": str(_RESOLUTIONS.get(request.resolution, TRANSACTION_NONE)),
            "fromTransactionCheck": "true" if request.source == pb.SOURCE_SERVER_CHECK else "false",
            "msgId": request.message_id,
            "transactionId": request.transaction_id,
            "bname": half.broker_name,
        }
        answer = await client.call(
            half.broker_name, Command(RequestCode.END_TRANSACTION, ext_fields=fields), call.timeout
        )
        if answer.code:
            log.warning(
                "transactions: end of %s of topic %s refused: %s", request.transaction_id, topic, answer.remark
            )
        return rpc.EndTransactionResponse(status=ok())

    def check(self, request: Command, client: Client, broker_name: str) -> None:
        """CHECK_TRANSACTION_STATE of a broker: ask the client over its telemetry stream. Raises ProtocolError."""
        fields = decode_fields(request.ext_fields, REQUEST_FIELDS[RequestCode.CHECK_TRANSACTION_STATE])
        record = decode_record(request.body or b"")
        group = (find(record.properties, b"PGROUP") or record.topic.encode()).decode("utf-8", "replace")
        transaction_id = fields.get("transactionId") or fields.get("msgId")
        broker_name = str(fields.get("bname") or broker_name)
        if not isinstance(transaction_id, str):
            raise ProtocolError("the check names no transaction")
        half = HalfMessage(
            broker_name, int(str(fields["tranStateTableOffset"])), int(str(fields["commitLogOffset"]))
        )
        stream = client.stream
        if stream is None:
            log.info("transactions: check of %s not sent: %s has no stream", transaction_id, client.client_id)
            return
        self.add(record.topic, transaction_id, half)
        command = rpc.TelemetryCommand(status=ok())
        message = command.recover_orphaned_transaction_command.message
        message.CopyFrom(delivered(record, record.topic))
        message.user_properties[TRANSACTION_ID] = transaction_id
        command.recover_orphaned_transaction_command.transaction_id = transaction_id
        if not stream.send(command):
            log.info("transactions: check of group %s not sent to %s", group, client.client_id)
