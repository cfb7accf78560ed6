"""What brokers ask of clients, handed on to the producer or consumer that it is for."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.client.ends import TransactionEnd
from orbitmq.protocol import property_names as names
from orbitmq.protocol.bodies import GetConsumerStatusBody, ResetOffsetBody
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.properties import parse
from orbitmq.protocol.record import decode_record
from orbitmq.remoting.processing import RequestRefusedError, handler_of

if TYPE_CHECKING:
    from orbitmq.client.ends import ConsumerEnd
    from orbitmq.client.instance import ClientInstance
    from orbitmq.protocol.command import Command
    from orbitmq.remoting import Connection, Handler

log = logging.getLogger("orbitmq.client")


def requests_of_brokers(instance: ClientInstance) -> dict[int, Handler]:
    """The handlers of a client's connections."""
    asked = _Asked(instance)
    return {
        RequestCode.CHECK_TRANSACTION_STATE: handler_of(asked.check_transaction),
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: handler_of(asked.ids_changed),
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET: handler_of(asked.reset_offsets),
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: handler_of(asked.status),
        RequestCode.GET_CONSUMER_RUNNING_INFO: handler_of(asked.running_info),
        RequestCode.CONSUME_MESSAGE_DIRECTLY: handler_of(asked.consume_directly),
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: handler_of(asked.reply_arrived),
    }


class _Asked:
    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance

    def _consumer(self, group: str) -> ConsumerEnd:
        consumer = self._instance.consumers.get(group)
        if consumer is None:
            raise RequestRefusedError(f"The Consumer Group <{group}> not exist in this consumer")
        return consumer

    def check_transaction(self, request: Command, connection: Connection) -> Command:
        record = decode_record(request.body or b"")
        group = parse(record.properties).get(names.PRODUCER_GROUP, "")
        producer = self._instance.producers.get(group)
        if not isinstance(producer, TransactionEnd):
            raise RequestRefusedError(f"nobody in this client knows of transactions of the group <{group}>")
        producer.check_transaction(connection, request.ext_fields, record)
        return request.response(ResponseCode.SUCCESS)

    def reply_arrived(self, request: Command, _: Connection) -> Command:
        try:
            self._instance.replies.arrived(request)
        except ProtocolError as error:
            log.warning("a reply cannot be read: %s", error)
            raise RequestRefusedError("process reply message fail") from error
        return request.response(ResponseCode.SUCCESS)

    def ids_changed(self, request: Command, _: Connection) -> Command:
        consumer = self._instance.consumers.get(request.ext_fields.get("consumerGroup", ""))
        if consumer is not None:
            consumer.rebalance_soon()
        return request.response(ResponseCode.SUCCESS)

    def reset_offsets(self, request: Command, _: Connection) -> Command:
        consumer = self._consumer(request.ext_fields.get("group", ""))
        offsets = ResetOffsetBody.decode(request.body or b"{}").offset_table
        consumer.reset_offsets(request.ext_fields.get("topic", ""), offsets)
        return request.response(ResponseCode.SUCCESS)

    def status(self, request: Command, _: Connection) -> Command:
        consumer = self._consumer(request.ext_fields.get("group", ""))
        table = dict(consumer.status(request.ext_fields.get("topic", "")))
        return request.response(ResponseCode.SUCCESS, body=GetConsumerStatusBody(table).encode())

    def running_info(self, request: Command, _: Connection) -> Command:
        consumer = self._consumer(request.ext_fields.get("consumerGroup", ""))
        info = consumer.running_info(with_stacks=request.ext_fields.get("jstackEnable") == "true")
        return request.response(ResponseCode.SUCCESS, body=info.encode())

    async def consume_directly(self, request: Command, _: Connection) -> Command:
        consumer = self._consumer(request.ext_fields.get("consumerGroup", ""))
        record = decode_record(request.body or b"")
        result = await consumer.consume_directly(record, request.ext_fields.get("brokerName", ""))
        return request.response(ResponseCode.SUCCESS, body=result.encode())
