"""Requests of brokers and about them: registration, heartbeat, unregistration, write permission, group members."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.nameserver.registration import decode_registration
from orbitmq.nameserver.route_queries import member_group
from orbitmq.platform.loop_slices import in_slices
from orbitmq.platform.threads import in_thread
from orbitmq.protocol.bodies import DataVersion, GetBrokerMemberGroupResponseBody, KVTable
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.names import ORDER_TOPIC_NAMESPACE
from orbitmq.remoting.processor import RequestRefusedError, fields_of, handler_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from orbitmq.nameserver.brokers import Broker, MinBrokerIdChange, Registration
    from orbitmq.nameserver.config import NameServerConfig
    from orbitmq.nameserver.kv_config import KvConfig
    from orbitmq.nameserver.limits import NameServerLimits
    from orbitmq.nameserver.route_table import RouteTable
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, Handler

SMALL_BODY = 32 * 1024
"""Maximum size of a registration that is decoded on the event loop, in about two milliseconds: 250 topics."""

log = logging.getLogger("orbitmq.nameserver")


class BrokerRequests:
    """Processors for the requests of brokers and about them.

    ``notify`` is called when the smallest id of a group changes.
    """

    def __init__(
        self,
        table: RouteTable,
        kv_config: KvConfig,
        config: NameServerConfig,
        limits: NameServerLimits,
        now_ms: Callable[[], int],
        notify: Callable[[MinBrokerIdChange], None],
    ) -> None:
        self._table = table
        self._kv_config = kv_config
        self._config = config
        self._limits = limits
        self._now_ms = now_ms
        self._notify = notify
        self._decoding: dict[Connection, asyncio.Task[Registration]] = {}
        """Last large registration per connection in a decoder thread; later registrations wait for it."""

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.REGISTER_BROKER: handler_of(self.register),
            RequestCode.UNREGISTER_BROKER: handler_of(self.unregister),
            RequestCode.QUERY_DATA_VERSION: handler_of(self.query_data_version),
            RequestCode.BROKER_HEARTBEAT: handler_of(self.heartbeat),
            RequestCode.GET_BROKER_MEMBER_GROUP: handler_of(self.member_group),
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: handler_of(self.wipe_write_permission),
            RequestCode.ADD_WRITE_PERM_OF_BROKER: handler_of(self.add_write_permission),
        }

    def register(self, request: Command, connection: Connection) -> Command | Coroutine[None, None, Command]:
        """Answer REGISTER_BROKER (103). A thread decodes large registrations."""
        if len(request.body or b"") > SMALL_BODY or connection in self._decoding:
            return self._register_later(request, connection)
        answer, topics = self._registered(request, connection, decode_registration(request, self._limits))
        for _ in topics:
            pass
        return answer

    async def _register_later(self, request: Command, connection: Connection) -> Command:
        before = self._decoding.get(connection)
        decoding = asyncio.ensure_future(self._decoded(request, before))
        self._decoding[connection] = decoding
        try:
            registration = await decoding
        finally:
            if self._decoding.get(connection) is decoding:
                del self._decoding[connection]
        if connection.is_closing:
            # A broker added now would stay until its heartbeat timeout.
            raise RequestRefusedError("the connection is closed")
        answer, topics = self._registered(request, connection, registration)
        async for _ in in_slices(topics):
            pass
        return answer

    async def _decoded(self, request: Command, before: asyncio.Task[Registration] | None) -> Registration:
        if before is not None:
            await asyncio.wait([before])
        return await in_thread(lambda: decode_registration(request, self._limits))

    def _registered(
        self, request: Command, connection: Connection, registration: Registration
    ) -> tuple[Command, Iterator[None]]:
        """The response, and the iterator that adds the topics in steps."""
        is_new = (registration.cluster, registration.address) not in self._table.brokers
        registered, topics = self._table.registering(
            registration,
            connection,
            self._now_ms(),
            delete_other_topics=self._config.delete_topic_with_broker_registration,
        )
        if is_new and (registration.cluster, registration.address) in self._table.brokers:
            log.info(
                "broker registration: %s (%s, id %d) registered",
                registration.broker_name,
                registration.address,
                registration.broker_id,
            )
        if registered.change is not None:
            self._notify(registered.change)
        ext_fields = {}
        if registered.master_address is not None and registered.ha_address is not None:
            ext_fields = {"haServerAddr": registered.ha_address, "masterAddr": registered.master_address}
        ordered = None
        if self._config.return_order_topic_config_to_broker:
            ordered = self._kv_config.namespace(ORDER_TOPIC_NAMESPACE)
        body = None if ordered is None else KVTable(dict(ordered)).encode()
        return request.response(ResponseCode.SUCCESS, ext_fields=ext_fields, body=body), topics

    def unregister(self, request: Command, _: Connection) -> Command | Coroutine[None, None, Command]:
        fields = fields_of(request)
        steps = self._table.removing(
            self._table.named(fields["clusterName"], fields["brokerAddr"], fields["brokerName"])
        )
        for step in steps:
            if step is None:
                return self._unregister_later(request, steps)
            self._unregistered(*step)
        return request.response(ResponseCode.SUCCESS)

    async def _unregister_later(
        self, request: Command, steps: Iterator[tuple[Broker, MinBrokerIdChange | None] | None]
    ) -> Command:
        """Unregister a broker with thousands of topics, in time slices."""
        async for step in in_slices(steps):
            if step is not None:
                self._unregistered(*step)
        return request.response(ResponseCode.SUCCESS)

    def _unregistered(self, broker: Broker, change: MinBrokerIdChange | None) -> None:
        log.info("broker registration: %s (%s, id %d) unregistered", broker.name, broker.address, broker.id)
        if change is not None:
            self._notify(change)

    def query_data_version(self, request: Command, _: Connection) -> Command:
        """Answer QUERY_DATA_VERSION (322): whether a broker must register its topics again. Also a heartbeat."""
        fields = fields_of(request)
        asked = None if request.body is None else DataVersion.decode(request.body)
        present = self._table.data_version(fields["clusterName"], fields["brokerAddr"])
        self._table.touch(fields["clusterName"], fields["brokerAddr"], self._now_ms())
        return request.response(
            ResponseCode.SUCCESS,
            ext_fields={"changed": "true" if present is None or present != asked else "false"},
            body=None if present is None else present.encode(),
        )

    def heartbeat(self, request: Command, _: Connection) -> Command:
        fields = fields_of(request)
        self._table.touch(fields["clusterName"], fields["brokerAddr"], self._now_ms())
        return request.response(ResponseCode.SUCCESS)

    def member_group(self, request: Command, _: Connection) -> Command:
        fields = fields_of(request)
        group = member_group(self._table, fields["clusterName"], fields["brokerName"])
        return request.response(ResponseCode.SUCCESS, body=GetBrokerMemberGroupResponseBody(group).encode())

    def wipe_write_permission(self, request: Command, _: Connection) -> Command | Coroutine[None, None, Command]:
        steps = self._table.wiping_write_permission(fields_of(request)["brokerName"])
        return _with_count(request, "wipeTopicCount", steps)

    def add_write_permission(self, request: Command, _: Connection) -> Command | Coroutine[None, None, Command]:
        steps = self._table.adding_write_permission(fields_of(request)["brokerName"])
        return _with_count(request, "addTopicCount", steps)


def _with_count(request: Command, name: str, steps: Iterator[int]) -> Command | Coroutine[None, None, Command]:
    """The sum of the steps, in an answer that comes later if there is more than one."""
    first, second = next(steps, 0), next(steps, None)
    if second is not None:
        return _with_count_later(request, name, first + second, steps)
    return request.response(ResponseCode.SUCCESS, ext_fields={name: str(first)})


async def _with_count_later(request: Command, name: str, count: int, steps: Iterator[int]) -> Command:
    async for step in in_slices(steps):
        count += step
    return request.response(ResponseCode.SUCCESS, ext_fields={name: str(count)})
