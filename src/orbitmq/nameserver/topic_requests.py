"""What operators and their tools ask about topics: lists of them, their permission to be written, their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.nameserver import views
from orbitmq.nameserver.brokers import Queues
from orbitmq.protocol.bodies import TopicRouteData
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fields import decode_fields
from orbitmq.protocol.request_fields import REQUEST_FIELDS
from orbitmq.remoting.processing import RequestRefusedError, handler_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.nameserver.config import NameServerConfig
    from orbitmq.nameserver.limits import NameServerLimits
    from orbitmq.nameserver.route_table import RouteTable
    from orbitmq.protocol.bodies import TopicList
    from orbitmq.protocol.command import Command
    from orbitmq.remoting import Connection, Handler
    from orbitmq.remoting.processing import Processor


class TopicRequests:
    """Processors for everything about topics but routes."""

    def __init__(self, table: RouteTable, config: NameServerConfig, limits: NameServerLimits) -> None:
        self._table = table
        self._config = config
        self._limits = limits

    @property
    def handlers(self) -> dict[int, Handler]:
        processors: dict[int, Processor] = {
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self.wipe_write_permission,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self.add_write_permission,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self.delete,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self.register,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self.all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self.topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self.system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._listing(views.unit_topics),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._listing(views.unit_subscribed_topics),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._listing(
                views.unit_subscribed_but_not_unit_topics
            ),
        }
        return {code: handler_of(processor) for code, processor in processors.items()}

    def wipe_write_permission(self, request: Command, _: Connection) -> Command:
        count = self._table.wipe_write_permission(_text(request, "brokerName"))
        return request.response(ResponseCode.SUCCESS, ext_fields={"wipeTopicCount": str(count)})

    def add_write_permission(self, request: Command, _: Connection) -> Command:
        count = self._table.add_write_permission(_text(request, "brokerName"))
        return request.response(ResponseCode.SUCCESS, ext_fields={"addTopicCount": str(count)})

    def delete(self, request: Command, _: Connection) -> Command:
        self._table.delete_topic(_text(request, "topic"), request.ext_fields.get("clusterName"))
        return request.response(ResponseCode.SUCCESS)

    def register(self, request: Command, _: Connection) -> Command:
        """The queues of a single topic, from brokers that do not register all of theirs for that."""
        topic = self._limits.check_name("topic", _text(request, "topic"))
        route = TopicRouteData.decode(request.body or b"{}")
        queues = {}
        for data in route.queue_datas:
            numbers = Queues(data.read_queue_nums, data.write_queue_nums, data.perm, data.topic_sys_flag)
            if any(number >> 31 for number in numbers):
                raise ProtocolError(f"{topic[:80]!r} has a number that is negative or not an int32")
            queues[data.broker_name] = numbers
        if queues:
            self._table.set_topic(topic, queues)
        return request.response(ResponseCode.SUCCESS)

    def all_topics(self, request: Command, _: Connection) -> Command:
        if not self._config.enable_all_topic_list:
            raise RequestRefusedError("disable")
        return _listed(request, views.all_topics(self._table))

    def topics_of_cluster(self, request: Command, _: Connection) -> Command:
        self._check_lists_enabled()
        return _listed(request, views.topics_of_cluster(self._table, _text(request, "cluster")))

    def system_topics(self, request: Command, _: Connection) -> Command:
        return _listed(request, views.system_topics(self._table))

    def _listing(self, view: Callable[[RouteTable], TopicList]) -> Processor:
        def answer(request: Command, _: Connection) -> Command:
            self._check_lists_enabled()
            return _listed(request, view(self._table))

        return answer

    def _check_lists_enabled(self) -> None:
        if not self._config.enable_topic_list:
            raise RequestRefusedError("disable")


def _listed(request: Command, topics: TopicList) -> Command:
    return request.response(ResponseCode.SUCCESS, body=topics.encode())


def _text(request: Command, name: str) -> str:
    return str(decode_fields(request.ext_fields, REQUEST_FIELDS[request.code])[name])
