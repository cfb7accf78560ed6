"""Answers to those who look for routes and clusters, encoded once and handed out until something changes.

This is what a name server does all day: every client asks for the route of each of its topics twice a minute, and
every broker for its cluster every five seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.nameserver.views import cluster_info, in_zone, route_of
from orbitmq.protocol.codes import RequestCode, ResponseCode, SerializeType
from orbitmq.protocol.command import Command
from orbitmq.protocol.fields import ZONE_MODE, ZONE_NAME
from orbitmq.protocol.flags import RESPONSE
from orbitmq.protocol.names import ORDER_TOPIC_NAMESPACE
from orbitmq.protocol.versions import version_ordinal
from orbitmq.remoting.processing import success_with

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.nameserver.config import NameServerConfig
    from orbitmq.nameserver.kv_config import KvConfig
    from orbitmq.nameserver.route_table import RouteTable
    from orbitmq.protocol.bodies import TopicRouteData
    from orbitmq.protocol.header import Header
    from orbitmq.remoting import Connection, Handler

STANDARD_JSON_SINCE = version_ordinal(4, 9, 4)
"""Clients from here on read broker ids in quotes; those before read them as fastjson writes them."""

ADVICE = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""Clients show it to people who look for a topic that is nowhere, and some tell by it what happened."""


class RouteAnswers:
    """Encoded answers. To be told of changes by ``forget``."""

    def __init__(
        self, table: RouteTable, kv_config: KvConfig, config: NameServerConfig, uptime_ms: Callable[[], int]
    ) -> None:
        self._table = table
        self._kv_config = kv_config
        self._config = config
        self._uptime_ms = uptime_ms
        self._standard: dict[str, bytes] = {}
        self._plain: dict[str, bytes] = {}
        """Only of topics that exist, so what peers ask for cannot make these grow."""
        self._cluster_info: bytes | None = None

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.clusters,
        }

    def forget(self, topic: str | None) -> None:
        """The route of a topic has changed, or, with None, brokers or settings have."""
        if topic is not None:
            self._standard.pop(topic, None)
            self._plain.pop(topic, None)
        else:
            self._standard.clear()
            self._plain.clear()
            self._cluster_info = None

    def route(self, _: Connection, header: Header, _body: bytes, serialize_type: int) -> bytes:
        """Answer GET_ROUTEINFO_BY_TOPIC (105)."""
        fields = header[6]
        standard = header[3] >= STANDARD_JSON_SINCE or fields.get("acceptStandardJsonOnly", "").lower() == "true"
        if self._config.need_wait_for_service and self._is_warming_up():
            return _refusal(header, serialize_type, ResponseCode.SYSTEM_ERROR, "name server not ready")
        topic = fields.get("topic")
        if ZONE_MODE in fields and fields[ZONE_MODE].lower() == "true" and fields.get(ZONE_NAME, "").strip():
            route = None if topic is None else self._route(topic)
            body = None if route is None else _encode(in_zone(route, fields[ZONE_NAME]), standard=standard)
        else:
            body = (self._standard if standard else self._plain).get(topic)  # type: ignore[arg-type]
            if body is None and topic is not None:
                body = self._encode(topic, standard=standard)
        if body is None:
            # Java's word for a topic that was not given.
            remark = f"No topic route info in name server for the topic: {topic or 'null'}\n{ADVICE}"
            return _refusal(header, serialize_type, ResponseCode.TOPIC_NOT_EXIST, remark)
        return success_with(body, header[1], serialize_type)

    def clusters(self, _: Connection, header: Header, _body: bytes, serialize_type: int) -> bytes:
        """Answer GET_BROKER_CLUSTER_INFO (106)."""
        if self._cluster_info is None:
            self._cluster_info = cluster_info(self._table).encode()
        return success_with(self._cluster_info, header[1], serialize_type)

    def _is_warming_up(self) -> bool:
        """Whether the brokers may not have had the time to register: a topic may then be more than is known."""
        return self._uptime_ms() < self._config.wait_seconds_for_service * 1000

    def _encode(self, topic: str, *, standard: bool) -> bytes | None:
        route = self._route(topic)
        if route is None:
            return None
        body = _encode(route, standard=standard)
        (self._standard if standard else self._plain)[topic] = body
        return body

    def _route(self, topic: str) -> TopicRouteData | None:
        route = route_of(self._table, topic, acting_masters=self._config.support_acting_master)
        if route is not None and self._config.order_message_enable:
            route.order_topic_conf = self._kv_config.get(ORDER_TOPIC_NAMESPACE, topic)
        return route


def _encode(route: TopicRouteData, *, standard: bool) -> bytes:
    return route.encode(browser_compatible=standard, sort_maps=standard)


def _refusal(header: Header, serialize_type: int, code: ResponseCode, remark: str) -> bytes:
    return Command(
        code=code, opaque=header[1], flag=RESPONSE, remark=remark, serialize_type=SerializeType(serialize_type)
    ).encode()
