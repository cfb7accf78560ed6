"""Which queues a client of a group reads, and how: QUERY_ASSIGNMENT and the settings by which a group pops.

A client that lets the broker decide asks for its queues and hears with each whether to pull it or to pop it.
Popped queues are shared by the members of the group, so mostly everybody is given all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.bodies import (
    MessageModel,
    MessageQueue,
    MessageQueueAssignment,
    MessageRequestMode,
    MessageRequestModeSerializeWrapper,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
    TopicRouteData,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.flags import PERM_READ
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.remoting.processing import RequestRefusedError, handler_of
from orbitmq.store.config_json import MESSAGE_REQUEST_MODES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.broker.clients import Clients
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.config_writer import ConfigWriter
    from orbitmq.broker.groups import GroupTable
    from orbitmq.broker.registration import Registration
    from orbitmq.broker.topics import TopicTable
    from orbitmq.remoting import Connection, Handler
    from orbitmq.store import Clock

MOST_ROUTES = 10_000
"""Topics whose route is remembered between two questions."""


class PopAssignments:
    """Shares out queues, and keeps who pops what in ``messageRequestMode.json``."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        groups: GroupTable,
        clients: Clients,
        registration: Registration,
        writer: ConfigWriter,
        clock: Clock,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._registration = registration
        self._writer = writer
        self._clock = clock
        self._modes: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}
        self._routes: dict[str, tuple[int, list[MessageQueue] | None]] = {}

    def load(self) -> None:
        """Take over what lies on the disk. Raises StoreError."""
        self._modes = self._writer.load(MESSAGE_REQUEST_MODES).message_request_mode_map

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_ASSIGNMENT: handler_of(self.query),
            RequestCode.SET_MESSAGE_REQUEST_MODE: handler_of(self.set_mode),
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: handler_of(self.all_modes),
        }

    # Modes

    async def set_mode(self, request: Command, _: Connection) -> Command:
        said = SetMessageRequestModeRequestBody.decode(request.body or b"")
        if said.topic.startswith(RETRY_PREFIX):
            raise RequestRefusedError("retry topic is not allowed to set mode", ResponseCode.NO_PERMISSION)
        if self._topics.get(said.topic) is None:
            raise RequestRefusedError(f"topic[{said.topic}] not exist", ResponseCode.TOPIC_NOT_EXIST)
        if self._groups.find(said.consumer_group) is None:
            raise RequestRefusedError(
                "subscription group does not exist", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            )
        self.keep(said)
        await self._writer.saved()
        return request.response(ResponseCode.SUCCESS)

    def keep(self, said: SetMessageRequestModeRequestBody) -> None:
        """Let a group get the messages of a topic in this way from now on."""
        self._modes.setdefault(said.topic, {})[said.consumer_group] = said
        self._writer.mark(MESSAGE_REQUEST_MODES, self._wrapped)

    def all_modes(self, request: Command, _: Connection) -> Command:
        """For slaves."""
        return request.response(ResponseCode.SUCCESS, body=self._wrapped().encode())

    def _wrapped(self) -> MessageRequestModeSerializeWrapper:
        return MessageRequestModeSerializeWrapper(self._modes)

    def mode_of(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        """How a group gets the messages of a topic; what the broker is set to where nobody said."""
        known = self._modes.get(topic, {}).get(group)
        if known is not None:
            return known
        config = self._config
        is_pop = config.default_message_request_mode == "POP" and not topic.startswith(RETRY_PREFIX)
        return SetMessageRequestModeRequestBody(
            topic,
            group,
            MessageRequestMode.POP if is_pop else MessageRequestMode.PULL,
            config.default_pop_share_queue_num if is_pop else 0,
        )

    # Queues

    async def query(self, request: Command, _: Connection) -> Command:
        asked = QueryAssignmentRequestBody.decode(request.body or b"")
        mode = self.mode_of(asked.topic, asked.consumer_group)
        queues = self._share(asked, mode, await self._queues_of(asked.topic))
        assignments = None
        if queues is not None:
            assignments = [MessageQueueAssignment(queue, mode.mode) for queue in dict.fromkeys(queues)]
        return request.response(ResponseCode.SUCCESS, body=QueryAssignmentResponseBody(assignments).encode())

    def _share(
        self,
        asked: QueryAssignmentRequestBody,
        mode: SetMessageRequestModeRequestBody,
        queues: list[MessageQueue] | None,
    ) -> list[MessageQueue] | None:
        """The queues of one client; None if that cannot be said."""
        if queues is None or asked.message_model is None:
            return None
        if asked.message_model is MessageModel.BROADCASTING or not self._config.server_load_balancer_enable:
            return queues
        group = self._clients.consumers.get(asked.consumer_group)
        members = sorted(group.client_ids()) if group is not None else []
        if not members or asked.strategy_name not in {"AVG", "AVG_BY_CIRCLE"}:
            return None
        by_circle = asked.strategy_name == "AVG_BY_CIRCLE"
        if mode.mode is MessageRequestMode.PULL:
            return _share_of(asked.client_id, queues, members, by_circle=by_circle)
        return _shared_by(asked.client_id, queues, members, mode.pop_share_queue_num, by_circle=by_circle)

    async def _queues_of(self, topic: str) -> list[MessageQueue] | None:
        """All queues of a topic that can be read, on all brokers; None if there is no such topic."""
        now = self._clock.now_ms()
        known = self._routes.get(topic)
        if known is not None and 0 <= now - known[0] < self._config.load_balance_poll_name_server_interval:
            return known[1]
        answer = await self._registration.ask(
            Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, 0, ext_fields={"topic": topic})
        )
        if answer is None:
            return self._own_queues(topic) if known is None else known[1]
        queues = None
        if answer.code == ResponseCode.SUCCESS and answer.body is not None:
            queues = sorted(
                MessageQueue(topic, data.broker_name, queue_id)
                for data in TopicRouteData.decode(answer.body).queue_datas
                if data.perm & PERM_READ
                for queue_id in range(data.read_queue_nums)
            )
        elif topic in self._topics.configs:
            # Registered a moment ago, or not yet.
            return self._own_queues(topic)
        if len(self._routes) >= MOST_ROUTES:
            self._routes.clear()
        self._routes[topic] = now, queues
        return queues

    def _own_queues(self, topic: str) -> list[MessageQueue] | None:
        config = self._topics.get(topic)
        if config is None or not config.perm & PERM_READ:
            return None
        return [MessageQueue(topic, self._config.broker_name, at) for at in range(config.read_queue_nums)]


def _share_of(
    client_id: str, queues: Sequence[MessageQueue], members: Sequence[str], *, by_circle: bool
) -> list[MessageQueue]:
    """The part of one member, as clients compute it for themselves: neighbouring queues, or dealt out in turn."""
    if client_id not in members:
        return []
    index = members.index(client_id)
    if by_circle:
        return list(queues[index :: len(members)])
    share, rest = divmod(len(queues), len(members))
    start = index * share + min(index, rest)
    return list(queues[start : start + share + (index < rest)])


def _shared_by(
    client_id: str, queues: Sequence[MessageQueue], members: Sequence[str], share_with: int, *, by_circle: bool
) -> list[MessageQueue]:
    """What a member pops: everything, or its own part and those of some members after it."""
    if share_with <= 0 or share_with >= len(members) - 1:
        return [MessageQueue(queue.topic, queue.broker_name, -1) for queue in queues]
    if client_id not in members:
        return []
    index = members.index(client_id)
    if len(members) > len(queues):
        return [queues[index % len(queues)]] if queues else []
    found: list[MessageQueue] = []
    for at in range(share_with + 1):
        member = members[(index + at) % len(members)]
        found += _share_of(member, queues, members, by_circle=by_circle)
    return found
