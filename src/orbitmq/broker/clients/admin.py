"""Client admin requests: connections of consumer and producer groups, subscriptions of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.time_slices import encoded, in_slices
from orbitmq.protocol import bodies
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.fields import decode_fields
from orbitmq.protocol.command.request_fields import REQUEST_FIELDS
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting.processor import RequestRefusedError, handler_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.broker.clients.registry import ClientChannel, Clients
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, Handler


class ConnectionRequests:
    """Admin requests that read the client tables."""

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

    async def consumers(self, request: Command, _: Connection) -> Command:
        name = _text(request, "consumerGroup")
        group = self._clients.consumers.get(name)
        if group is None:
            raise RequestRefusedError(f"the consumer group[{name}] not online", ResponseCode.CONSUMER_NOT_ONLINE)
        body = bodies.ConsumerConnection(
            await _connections(group.members.values()),
            dict(group.subscriptions),
            group.consume_type,
            group.message_model,
            group.consume_from_where,
        )
        count = len(body.connection_set) + len(body.subscription_table)
        return request.response(ResponseCode.SUCCESS, body=await encoded(body, count))

    async def producers(self, request: Command, _: Connection) -> Command:
        name = _text(request, "producerGroup")
        members = self._clients.producers.get(name)
        if members is None:
            raise RequestRefusedError(f"the producer group[{name}] not exist")
        body = bodies.ProducerConnection(await _connections(members.values()))
        return request.response(ResponseCode.SUCCESS, body=await encoded(body, len(body.connection_set)))

    async def all_producers(self, request: Command, _: Connection) -> Command:
        producers = self._clients.producers
        table = {}
        count = 0
        async for group in in_slices(list(producers)):
            members = producers.get(group)
            if members is None:
                continue  # its last member left meanwhile
            table[group] = [_producer(member) async for member in in_slices(list(members.values()))]
            count += len(table[group])
        body = await encoded(bodies.ProducerTableInfo(table), count)
        return request.response(ResponseCode.SUCCESS, body=body)

    def subscription(self, request: Command, _: Connection) -> Command:
        """The subscription of a group to a topic; a group without one is not an error."""
        group, topic = _text(request, "group"), _text(request, "topic")
        found = self._clients.subscription_of(group, topic)
        body = bodies.QuerySubscriptionResponseBody(found, group, topic)
        return request.response(ResponseCode.SUCCESS, body=body.encode())


async def _connections(members: Iterable[ClientChannel]) -> list[bodies.Connection]:
    return [
        bodies.Connection(member.client_id, member.connection.remote_address, member.language.name, member.version)
        async for member in in_slices(list(members))
    ]


def _producer(member: ClientChannel) -> bodies.ProducerInfo:
    return bodies.ProducerInfo(
        client_id=member.client_id,
        # Java form of an address without a host name.
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
