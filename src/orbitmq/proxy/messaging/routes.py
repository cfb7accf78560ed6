"""QueryRoute and QueryAssignment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.message.flags import PERM_READ, PERM_WRITE
from orbitmq.proxy.errors import StatusError, ok
from orbitmq.proxy.messages.validation import check_group, check_topic
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.proto import service_pb2 as rpc
from orbitmq.proxy.routing.queues import ACCEPTED_TYPES, numbered

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.proxy.clients.client import Client
    from orbitmq.proxy.context import CallContext
    from orbitmq.proxy.messaging.runtime import Runtime


class RouteCalls:
    """Queues of topics, for producers and for consumers."""

    def __init__(self, runtime: Runtime, port: Callable[[], int]) -> None:
        """``port`` is the one that clients are sent to."""
        self._runtime = runtime
        self._backend = runtime.backend
        self._port = port

    async def query_route(
        self, request: rpc.QueryRouteRequest, _client: Client, _call: CallContext
    ) -> rpc.QueryRouteResponse:
        topic = check_topic(request.topic)
        endpoints = self._checked(request.endpoints)
        route = await self._backend.route(topic)
        accepted = ACCEPTED_TYPES.get(await self._backend.message_type(topic), (pb.MESSAGE_TYPE_UNSPECIFIED,))
        response = rpc.QueryRouteResponse(status=ok())
        for data in route.queues:
            for broker_id in route.broker_ids.get(data.broker_name, ()):
                broker = pb.Broker(name=data.broker_name, id=broker_id)
                broker.endpoints.CopyFrom(self._backend.endpoints(endpoints, self._port_of(endpoints)))
                for number, permission in numbered(data):
                    response.message_queues.add(
                        topic=request.topic,
                        id=number,
                        permission=permission,
                        broker=broker,
                        accept_message_types=accepted,
                    )
        return response

    async def query_assignment(
        self, request: rpc.QueryAssignmentRequest, _client: Client, _call: CallContext
    ) -> rpc.QueryAssignmentResponse:
        """Every queue of an ordered group, else one entry for all queues of a broker. All members get the same."""
        topic, group_name = check_topic(request.topic), check_group(request.group)
        endpoints = self._checked(request.endpoints)
        route = await self._backend.route(topic)
        group = await self._backend.group(group_name)
        is_bound = group is not None and "lite.bind.topic" in (group.attributes or {})
        by_queue = group is not None and group.consume_message_orderly and not is_bound
        response = rpc.QueryAssignmentResponse(status=ok())
        for data in route.queues:
            if not data.perm & PERM_READ or data.read_queue_nums <= 0:
                continue
            if 0 not in route.broker_ids.get(data.broker_name, ()):
                continue
            broker = pb.Broker(name=data.broker_name)
            broker.endpoints.CopyFrom(self._backend.endpoints(endpoints, self._port_of(endpoints)))
            permission = pb.READ_WRITE if data.perm & PERM_WRITE else pb.READ
            for number in range(data.read_queue_nums) if by_queue else (-1,):
                queue = response.assignments.add().message_queue
                queue.topic.CopyFrom(request.topic)
                queue.id, queue.permission = number, permission
                queue.broker.CopyFrom(broker)
        if not response.assignments:
            raise StatusError(pb.FORBIDDEN, "no readable queue")
        return response

    def _port_of(self, endpoints: pb.Endpoints) -> int:
        """The port that clients are sent to: the one they used where a proxy with another port is in front."""
        if self._runtime.config.use_endpoint_port_from_request and endpoints.addresses:
            return int(endpoints.addresses[0].port)
        return self._port()

    @staticmethod
    def _checked(endpoints: pb.Endpoints) -> pb.Endpoints:
        if endpoints.addresses and endpoints.scheme == pb.ADDRESS_SCHEME_UNSPECIFIED:
            raise StatusError(pb.INTERNAL_SERVER_ERROR, "the scheme of the endpoints is not specified")
        return endpoints
