"""Route and cluster responses, encoded once and cached until a change invalidates them.

These are the most frequent requests: every client queries the route of each of its topics twice a minute, and every
broker its cluster every five seconds.
"""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING

from orbitmq.nameserver.route_queries import cluster_info, in_zone, route_of, source_of
from orbitmq.platform.threads import in_thread
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.fields import ZONE_MODE, ZONE_NAME
from orbitmq.protocol.command.header import EXT_FIELDS, OPAQUE, VERSION
from orbitmq.protocol.names import ORDER_TOPIC_NAMESPACE
from orbitmq.protocol.versions import version_ordinal
from orbitmq.remoting.error_responses import failed, remark_response
from orbitmq.remoting.processor import run_in_background, success_with

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from orbitmq.nameserver.brokers import BrokerGroup
    from orbitmq.nameserver.config import NameServerConfig
    from orbitmq.nameserver.kv_config import KvConfig
    from orbitmq.nameserver.route_table import RouteTable
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Connection, Handler

STANDARD_JSON_SINCE = version_ordinal(4, 9, 4)
"""Clients from this version on read broker ids in quotes; older ones read them as fastjson writes them."""

ADVICE = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
"""Part of RocketMQ's remark for an unknown topic, by which some clients detect it."""

SMALL_TABLE = 256
"""Maximum number of brokers in a response that is encoded on the event loop, in about five milliseconds."""

MAX_CACHED_BYTES = 64 * 1024 * 1024
"""Limit of the cached routes. Above it the whole cache is dropped."""


class RouteAnswers:
    """Cache of encoded responses. Changes must ``invalidate`` it."""

    def __init__(
        self, table: RouteTable, kv_config: KvConfig, config: NameServerConfig, uptime_ms: Callable[[], int]
    ) -> None:
        self._table = table
        self._kv_config = kv_config
        self._config = config
        self._uptime_ms = uptime_ms
        self._standard: dict[str, bytes] = {}
        self._plain: dict[str, bytes] = {}
        """For existing topics only, so that queries cannot make them grow."""
        self._cached_bytes = 0
        self._cluster_info: bytes | None = None
        self._changes = 0
        """Number of invalidations, to detect responses that a thread encoded from an older state."""
        self._encoding: dict[tuple[str | None, bool], asyncio.Future[bytes]] = {}
        """Responses in encoder threads, by topic; None is the cluster."""

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self.route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self.clusters,
        }

    def invalidate(self, topic: str | None) -> None:
        """Drop the route of a topic, or with None all responses, because brokers or settings changed."""
        self._changes += 1
        if topic is not None:
            for cache in (self._standard, self._plain):
                self._cached_bytes -= len(cache.pop(topic, b""))
        else:
            self._drop_routes()
            self._cluster_info = None

    def _drop_routes(self) -> None:
        self._standard.clear()
        self._plain.clear()
        self._cached_bytes = 0

    def route(self, connection: Connection, header: Header, _body: bytes, serialize_type: int) -> bytes | None:
        """Answer GET_ROUTEINFO_BY_TOPIC (105)."""
        fields = header[EXT_FIELDS]
        wants_standard = fields.get("acceptStandardJsonOnly", "").lower() == "true"
        standard = header[VERSION] >= STANDARD_JSON_SINCE or wants_standard
        if self._config.need_wait_for_service and self._is_warming_up():
            return remark_response(header, serialize_type, ResponseCode.SYSTEM_ERROR, "name server not ready")
        topic = fields.get("topic")
        zone = fields.get(ZONE_NAME, "") if fields.get(ZONE_MODE, "").lower() == "true" else ""
        if not zone.strip():
            body = (self._standard if standard else self._plain).get(topic)  # type: ignore[arg-type]
            if body is not None:
                return success_with(body, header[OPAQUE], serialize_type)
        source = None if topic is None else source_of(self._table, topic)
        if source is None:
            # Java writes "null" for a missing topic.
            remark = f"No topic route info in name server for the topic: {topic or 'null'}\n{ADVICE}"
            return remark_response(header, serialize_type, ResponseCode.TOPIC_NOT_EXIST, remark)
        acting_masters = self._config.support_acting_master
        order = None
        if self._config.order_message_enable:
            order = self._kv_config.get(ORDER_TOPIC_NAMESPACE, source.topic)

        def encode() -> bytes:
            route = route_of(source, acting_masters=acting_masters)
            route.order_topic_conf = order
            if zone.strip():
                route = in_zone(route, zone)
            return route.encode(browser_compatible=standard, sort_maps=standard)

        if len(source.groups) > SMALL_TABLE:
            key = None if zone.strip() else (source.topic, standard)
            run_in_background(self._answer_later(connection, header, serialize_type, key, encode))
            return None
        body = encode()
        if not zone.strip():
            self._keep((source.topic, standard), body)
        return success_with(body, header[OPAQUE], serialize_type)

    def clusters(self, connection: Connection, header: Header, _body: bytes, serialize_type: int) -> bytes | None:
        """Answer GET_BROKER_CLUSTER_INFO (106)."""
        if self._cluster_info is None:
            groups = dict(self._table.groups)
            clusters = {name: tuple(names) for name, names in self._table.clusters.items()}
            if len(groups) > SMALL_TABLE:
                work = functools.partial(_encoded_cluster, groups, clusters)
                run_in_background(self._answer_later(connection, header, serialize_type, (None, True), work))
                return None
            self._cluster_info = _encoded_cluster(groups, clusters)
        return success_with(self._cluster_info, header[OPAQUE], serialize_type)

    async def _answer_later(
        self,
        connection: Connection,
        header: Header,
        serialize_type: int,
        key: tuple[str | None, bool] | None,
        encode: Callable[[], bytes],
    ) -> None:
        """Answer with what a thread encodes, once for all who ask for the same meanwhile."""
        try:
            body = await (in_thread(encode) if key is None else self._encoded_once(key, encode))
            data = success_with(body, header[OPAQUE], serialize_type)
        except Exception as error:
            data = failed(error, header, serialize_type, connection.remote_address)
        connection.answer(header, data)

    async def _encoded_once(self, key: tuple[str | None, bool], encode: Callable[[], bytes]) -> bytes:
        present = self._encoding.get(key)
        if present is not None:
            return await asyncio.shield(present)
        changes = self._changes
        made = self._encoding[key] = asyncio.ensure_future(in_thread(encode))
        try:
            body = await asyncio.shield(made)
        finally:
            del self._encoding[key]
        if changes == self._changes:
            self._keep(key, body)
        return body

    def _keep(self, key: tuple[str | None, bool], body: bytes) -> None:
        topic, standard = key
        if topic is None:
            self._cluster_info = body
            return
        cache = self._standard if standard else self._plain
        self._cached_bytes += len(body) - len(cache.get(topic, b""))
        cache[topic] = body
        if self._cached_bytes > MAX_CACHED_BYTES:
            self._drop_routes()

    def _is_warming_up(self) -> bool:
        """True if some brokers may not be registered yet: a topic may have more queues than are known."""
        return self._uptime_ms() < self._config.wait_seconds_for_service * 1000


def _encoded_cluster(groups: Mapping[str, BrokerGroup], clusters: Mapping[str, Iterable[str]]) -> bytes:
    return cluster_info(groups, clusters).encode()
