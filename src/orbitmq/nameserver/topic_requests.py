"""Requests of admin tools about topics: lists, registration, deletion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.nameserver import route_queries as views
from orbitmq.nameserver.brokers import Queues
from orbitmq.platform.loop_slices import in_slices, sorted_names
from orbitmq.platform.threads import in_thread
from orbitmq.protocol.bodies import TopicList, TopicRouteData
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting.processor import RequestRefusedError, fields_of, handler_of

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from orbitmq.nameserver.config import NameServerConfig
    from orbitmq.nameserver.limits import NameServerLimits
    from orbitmq.nameserver.route_queries import Wanted
    from orbitmq.nameserver.route_table import RouteTable
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, Handler
    from orbitmq.remoting.processor import Processor

SMALL_TABLE = 2_000
"""Maximum number of topics that are listed on the event loop, in a few milliseconds."""

SMALL_BODY = 32 * 1024
"""Maximum size of a route that is decoded on the event loop."""


class TopicRequests:
    """Processors for topic requests other than route queries."""

    def __init__(self, table: RouteTable, config: NameServerConfig, limits: NameServerLimits) -> None:
        self._table = table
        self._config = config
        self._limits = limits

    @property
    def handlers(self) -> dict[int, Handler]:
        processors: dict[int, Processor] = {
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self.register,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._listing(views.is_unit),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._listing(views.is_unit_subscribed),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._listing(views.is_unit_subscribed_but_not_unit),
        }
        return {code: handler_of(processor) for code, processor in processors.items()}

    def delete(self, request: Command, _: Connection) -> Command:
        self._table.delete_topic(_text(request, "topic"), request.ext_fields.get("clusterName"))
        return request.response(ResponseCode.SUCCESS)

    def register(self, request: Command, _: Connection) -> Command | Coroutine[None, None, Command]:
        """Answer REGISTER_TOPIC_IN_NAMESRV (217): the queues of a single topic."""
        topic = self._limits.check_name("topic", _text(request, "topic"))
        body = request.body or b"{}"
        if len(body) > SMALL_BODY:
            return self._register_later(request, topic, body)
        return self._registered(request, topic, _queues_of(topic, body))

    async def _register_later(self, request: Command, topic: str, body: bytes) -> Command:
        return self._registered(request, topic, await in_thread(lambda: _queues_of(topic, body)))

    def _registered(self, request: Command, topic: str, queues: dict[str, Queues]) -> Command:
        if queues:
            self._table.set_topic(topic, queues)
        return request.response(ResponseCode.SUCCESS)

    def all_topics(self, request: Command, _: Connection) -> Command | Coroutine[None, None, Command]:
        if not self._config.enable_all_topic_list:
            raise RequestRefusedError("disable")
        return self._listed(request, lambda _on: True)

    def topics_of_cluster(self, request: Command, _: Connection) -> Command | Coroutine[None, None, Command]:
        self._check_lists_enabled()
        names = self._table.clusters.get(_text(request, "cluster"), set())
        return self._listed(request, lambda on: not names.isdisjoint(on))

    def system_topics(self, request: Command, _: Connection) -> Command:
        return request.response(ResponseCode.SUCCESS, body=views.system_topics(self._table).encode())

    def _listing(self, wanted: Wanted) -> Processor:
        def answer(request: Command, _: Connection) -> Command | Coroutine[None, None, Command]:
            self._check_lists_enabled()
            return self._listed(request, wanted)

        return answer

    def _listed(self, request: Command, wanted: Wanted) -> Command | Coroutine[None, None, Command]:
        """The topics that are wanted; very many are looked at in slices, and sorted and encoded by a thread."""
        topics = self._table.topics
        if len(topics) > SMALL_TABLE:
            return self._listed_later(request, wanted)
        body = TopicList(sorted(topic for topic, on in topics.items() if wanted(on)))
        return request.response(ResponseCode.SUCCESS, body=body.encode())

    async def _listed_later(self, request: Command, wanted: Wanted) -> Command:
        found = []
        # Topics deleted meanwhile have no brokers.
        async for topic in in_slices(list(self._table.topics)):
            on = self._table.topics.get(topic)
            if on and wanted(on):
                found.append(topic)
        body = await in_thread(lambda: TopicList(sorted_names(found)).encode())
        return request.response(ResponseCode.SUCCESS, body=body)

    def _check_lists_enabled(self) -> None:
        if not self._config.enable_topic_list:
            raise RequestRefusedError("disable")


def _queues_of(topic: str, body: bytes) -> dict[str, Queues]:
    queues = {}
    for data in TopicRouteData.decode(body).queue_datas:
        numbers = Queues(data.read_queue_nums, data.write_queue_nums, data.perm, data.topic_sys_flag)
        if any(number >> 31 for number in numbers):
            raise ProtocolError(f"{topic[:80]!r} has a number that is negative or not an int32")
        queues[data.broker_name] = numbers
    return queues


def _text(request: Command, name: str) -> str:
    return str(fields_of(request)[name])
