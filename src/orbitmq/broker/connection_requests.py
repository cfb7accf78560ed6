"""What operators ask about clients: who is connected, and what a group has subscribed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol import bodies
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fields import decode_fields
from orbitmq.protocol.request_fields import REQUEST_FIELDS
from orbitmq.remoting.processing import RequestRefusedError, handler_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.broker.clients import ClientChannel, Clients
    from orbitmq.protocol.command import Command
    from orbitmq.remoting import Connection, Handler


class ConnectionRequests:
    """Processors that look at the tables of clients."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_CONNECTION_LIST: handler_of(self.consumers),
            RequestCode.GET_PRODUCER_CONNECTION_LIST: handler_of(self.producers),
            RequestCode.GET_ALL_PRODUCER_INFO: handler_of(self.all_producers),
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: handler_of(self.subscription),
        }

    def consumers(self, request: Command, _: Connection) -> Command:
        name = _text(request, "consumerGroup")
        group = self._clients.consumers.get(name)
        if group is None:
            raise RequestRefusedError(f"the consumer group[{name}] not online", ResponseCode.CONSUMER_NOT_ONLINE)
        body = bodies.ConsumerConnection(
            _connections(group.members.values()),
            group.subscriptions,
            group.consume_type,
            group.message_model,
            group.consume_from_where,
        )
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def producers(self, request: Command, _: Connection) -> Command:
        name = _text(request, "producerGroup")
        members = self._clients.producers.get(name)
        if members is None:
            raise RequestRefusedError(f"the producer group[{name}] not exist")
        body = bodies.ProducerConnection(_connections(members.values()))
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    def all_producers(self, request: Command, _: Connection) -> Command:
        table = {
            group: [_producer(member) for member in members.values()]
            for group, members in self._clients.producers.items()
        }
        return request.response(ResponseCode.SUCCESS, body=bodies.ProducerTableInfo(table).encode())

    def subscription(self, request: Command, _: Connection) -> Command:
        """What a group has subscribed of a topic; nothing is no error."""
        group, topic = _text(request, "group"), _text(request, "topic")
        found = self._clients.subscription_of(group, topic)
        body = bodies.QuerySubscriptionResponseBody(found, group, topic)
        return request.response(ResponseCode.SUCCESS, body=body.encode())


def _connections(members: Iterable[ClientChannel]) -> list[bodies.Connection]:
    return [
        bodies.Connection(member.client_id, member.connection.remote_address, member.language.name, member.version)
        for member in members
    ]


def _producer(member: ClientChannel) -> bodies.ProducerInfo:
    return bodies.ProducerInfo(
        client_id=member.client_id,
        # As Java writes an address without a host name.
        remote_ip="/" + member.connection.remote_address,
        language=member.language.name,
        version=member.version,
        last_update_timestamp=member.last_update_ms,
    )


def _text(request: Command, name: str) -> str:
    value = decode_fields(request.ext_fields, REQUEST_FIELDS[request.code])[name]
    if not isinstance(value, str):
        raise ProtocolError(f"field {name} is missing")
    return value
