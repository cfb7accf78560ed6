"""What brokers ask a name server for: to be known, to stay known, to be forgotten, and who else is there."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.nameserver.registration import decode_registration
from orbitmq.nameserver.views import member_group
from orbitmq.protocol.bodies import DataVersion, GetBrokerMemberGroupResponseBody, KVTable
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.names import ORDER_TOPIC_NAMESPACE
from orbitmq.remoting.processing import fields_of, handler_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.nameserver.brokers import MinBrokerIdChange
    from orbitmq.nameserver.config import NameServerConfig
    from orbitmq.nameserver.kv_config import KvConfig
    from orbitmq.nameserver.limits import NameServerLimits
    from orbitmq.nameserver.route_table import RouteTable
    from orbitmq.protocol.command import Command
    from orbitmq.remoting import Connection, Handler

log = logging.getLogger("orbitmq.nameserver")


class BrokerRequests:
    """Processors for the requests of brokers. ``notify`` is called when a group has to hear of a change."""

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

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.REGISTER_BROKER: handler_of(self.register),
            RequestCode.UNREGISTER_BROKER: handler_of(self.unregister),
            RequestCode.QUERY_DATA_VERSION: handler_of(self.query_data_version),
            RequestCode.BROKER_HEARTBEAT: handler_of(self.heartbeat),
            RequestCode.GET_BROKER_MEMBER_GROUP: handler_of(self.member_group),
        }

    def register(self, request: Command, connection: Connection) -> Command:
        said = decode_registration(request, self._limits)
        is_new = (said.cluster, said.address) not in self._table.brokers
        registered = self._table.register(
            said,
            connection,
            self._now_ms(),
            delete_other_topics=self._config.delete_topic_with_broker_registration,
        )
        if is_new and (said.cluster, said.address) in self._table.brokers:
            log.info("broker %s (%s, id %d) registered", said.broker_name, said.address, said.broker_id)
        if registered.change is not None:
            self._notify(registered.change)
        ext_fields = {}
        if registered.master_address is not None and registered.ha_address is not None:
            ext_fields = {"haServerAddr": registered.ha_address, "masterAddr": registered.master_address}
        ordered = None
        if self._config.return_order_topic_config_to_broker:
            ordered = self._kv_config.namespace(ORDER_TOPIC_NAMESPACE)
        body = None if ordered is None else KVTable(dict(ordered)).encode()
        return request.response(ResponseCode.SUCCESS, ext_fields=ext_fields, body=body)

    def unregister(self, request: Command, _: Connection) -> Command:
        fields = fields_of(request)
        broker = self._table.brokers.get((fields["clusterName"], fields["brokerAddr"]))
        change = self._table.unregister(fields["clusterName"], fields["brokerAddr"], fields["brokerName"])
        if broker is not None and broker.key not in self._table.brokers:
            log.info("broker %s (%s, id %d) unregistered", broker.name, broker.address, broker.id)
        if change is not None:
            self._notify(change)
        return request.response(ResponseCode.SUCCESS)

    def query_data_version(self, request: Command, _: Connection) -> Command:
        """Whether the topics of a broker have changed since it registered them; also a sign of its life."""
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
