"""Requests from brokers, dispatched to the clients of the group (RocketMQ: ClientRemotingProcessor)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.client.instance.registrants import RegisteredTransactionProducer
from orbitmq.protocol.bodies import GetConsumerStatusBody, ResetOffsetBody
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.properties import parse
from orbitmq.protocol.message.record import decode_record
from orbitmq.remoting.processor import RequestRefusedError, handler_of

if TYPE_CHECKING:
    from orbitmq.client.instance.instance import ClientInstance
    from orbitmq.client.instance.registrants import RegisteredConsumer
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, Handler

log = logging.getLogger("orbitmq.client")


def broker_request_handlers(instance: ClientInstance) -> dict[int, Handler]:
    """Handlers by request code, for the connections of a client instance."""
    requests = _BrokerRequests(instance)
    return {
        RequestCode.CHECK_TRANSACTION_STATE: handler_of(requests.check_transaction),
        RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: handler_of(requests.ids_changed),
        RequestCode.RESET_CONSUMER_CLIENT_OFFSET: handler_of(requests.reset_offsets),
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: handler_of(requests.status),
        RequestCode.GET_CONSUMER_RUNNING_INFO: handler_of(requests.running_info),
        RequestCode.CONSUME_MESSAGE_DIRECTLY: handler_of(requests.consume_directly),
        RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: handler_of(requests.reply_arrived),
    }


class _BrokerRequests:
    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance

    def _consumer(self, group: str) -> RegisteredConsumer:
        consumer = self._instance.consumers.get(group)
        if consumer is None:
            raise RequestRefusedError(f"The Consumer Group <{group}> not exist in this consumer")
        return consumer

    def check_transaction(self, request: Command, connection: Connection) -> Command:
        record = decode_record(request.body or b"")
        group = parse(record.properties).get(names.PRODUCER_GROUP, "")
        producer = self._instance.producers.get(group)
        if not isinstance(producer, RegisteredTransactionProducer):
            raise RequestRefusedError(f"this client has no transaction producer of the group <{group}>")
        producer.check_transaction(connection, request.ext_fields, record)
        return request.response(ResponseCode.SUCCESS)

    def reply_arrived(self, request: Command, _: Connection) -> Command:
        try:
            self._instance.replies.arrived(request)
        except ProtocolError as error:
            log.warning("request-reply: discarded a malformed reply: %s", error)
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
