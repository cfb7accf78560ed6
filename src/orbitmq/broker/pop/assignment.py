"""Broker-side rebalancing: QUERY_ASSIGNMENT, and the message request mode (PULL or POP) of topics and groups.

A client without rebalancing of its own queries its queues, and with each whether to pull or to pop it. Members of a
group share popped queues, so by default all members get all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.metadata.topics import MAX_QUEUES
from orbitmq.broker.time_slices import SMALL_TABLE, decoded, encoded, in_slices
from orbitmq.platform.threads import in_thread
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
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.message.flags import PERM_READ
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.remoting.processor import RequestRefusedError, handler_of
from orbitmq.store.config_tables import MESSAGE_REQUEST_MODES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.broker.clients.registry import Clients
    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.broker.config.persistence import ConfigWriter
    from orbitmq.broker.metadata.subscription_groups import GroupTable
    from orbitmq.broker.metadata.topics import TopicTable
    from orbitmq.broker.registration.registrar import Registration
    from orbitmq.remoting import Connection, Handler
    from orbitmq.store import Clock

MAX_ROUTES = 10_000
"""Topics whose route is cached."""

MAX_CACHED_QUEUES = 200_000
"""Queues of the cached routes, about 150 bytes each; beyond that the cache is cleared."""

MAX_ASSIGNED_QUEUES = 100_000
"""Queues of a topic on all brokers that are assigned."""

MAX_MODES = 20_000
"""Pairs of topic and group with a mode, about 500 bytes each."""


class PopAssignments:
    """Assigns queues, and persists the modes in ``messageRequestMode.json``."""

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
        self._cached_queues = 0
        """Queues in the cached routes."""
        self._routes: dict[str, tuple[int, list[MessageQueue] | None]] = {}

    def load(self) -> None:
        """Load the persisted modes. Raises StoreError."""
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
        request_mode = SetMessageRequestModeRequestBody.decode(request.body or b"")
        if request_mode.topic.startswith(RETRY_PREFIX):
            raise RequestRefusedError("retry topic is not allowed to set mode", ResponseCode.NO_PERMISSION)
        if self._topics.get(request_mode.topic) is None:
            raise RequestRefusedError(f"topic[{request_mode.topic}] not exist", ResponseCode.TOPIC_NOT_EXIST)
        if self._groups.find(request_mode.consumer_group) is None:
            raise RequestRefusedError(
                "subscription group does not exist", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
            )
        is_new = request_mode.consumer_group not in self._modes.get(request_mode.topic, {})
        if is_new and sum(map(len, self._modes.values())) >= MAX_MODES:
            raise RequestRefusedError(f"modes of {MAX_MODES} topics and groups are set, and no more are allowed")
        self.set(request_mode)
        await self._writer.saved()
        return request.response(ResponseCode.SUCCESS)

    def set(self, request_mode: SetMessageRequestModeRequestBody) -> None:
        """Set the mode of a topic and group."""
        self._modes.setdefault(request_mode.topic, {})[request_mode.consumer_group] = request_mode
        self._writer.mark(MESSAGE_REQUEST_MODES, self._wrapped, is_copy=True)

    def follow(self, modes: MessageRequestModeSerializeWrapper) -> None:
        """Take over the modes of the master."""
        if modes.message_request_mode_map != self._modes:
            self._modes = modes.message_request_mode_map
            self._writer.mark(MESSAGE_REQUEST_MODES, self._wrapped, is_copy=True)

    async def all_modes(self, request: Command, _: Connection) -> Command:
        """The handler of GET_ALL_MESSAGE_REQUEST_MODE, for slaves."""
        modes = self._wrapped()
        body = await encoded(modes, sum(map(len, modes.message_request_mode_map.values())))
        return request.response(ResponseCode.SUCCESS, body=body)

    def _wrapped(self) -> MessageRequestModeSerializeWrapper:
        """A copy, which a thread may encode. Modes are replaced and never modified."""
        modes = {topic: dict(by_group) for topic, by_group in self._modes.items()}
        return MessageRequestModeSerializeWrapper(modes)

    def mode_of(self, topic: str, group: str) -> SetMessageRequestModeRequestBody:
        """The mode of a topic and group; by default that of the configuration."""
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
        query = QueryAssignmentRequestBody.decode(request.body or b"")
        mode = self.mode_of(query.topic, query.consumer_group)
        queues = await self._queues_of(query.topic)
        group = self._clients.consumers.get(query.consumer_group)
        members = group.client_ids() if group is not None else []
        balances = self._config.server_load_balancer_enable

        def encode() -> bytes:
            shared = _share(query, mode, queues, sorted(members), balances=balances)
            assignments = None
            if shared is not None:
                assignments = [MessageQueueAssignment(queue, mode.mode) for queue in dict.fromkeys(shared)]
            return QueryAssignmentResponseBody(assignments).encode()

        is_small = len(queues or ()) + len(members) <= SMALL_TABLE
        return request.response(ResponseCode.SUCCESS, body=encode() if is_small else await in_thread(encode))

    async def _queues_of(self, topic: str) -> list[MessageQueue] | None:
        """All readable queues of a topic on all brokers; None for an unknown topic."""
        now = self._clock.now_ms()
        known = self._routes.get(topic)
        if known is not None and 0 <= now - known[0] < self._config.load_balance_poll_name_server_interval:
            return known[1]
        answer = await self._registration.ask(
            Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, 0, ext_fields={"topic": topic})
        )
        if answer is None:
            return await self._own_queues(topic) if known is None else known[1]
        queues = None
        if answer.code == ResponseCode.SUCCESS and answer.body is not None:
            route = await decoded(TopicRouteData, answer.body)
            data_of = {data.broker_name: data for data in route.queue_datas if data.perm & PERM_READ}
            # Anyone may have registered as a broker, with any number.
            count = sum(min(max(data.read_queue_nums, 0), MAX_QUEUES) for data in data_of.values())
            if count > MAX_ASSIGNED_QUEUES:
                raise RequestRefusedError(
                    f"{topic} has {count} queues, at most {MAX_ASSIGNED_QUEUES} can be shared out"
                )
            queues = []
            async for name in in_slices(sorted(data_of)):
                more = range(min(data_of[name].read_queue_nums, MAX_QUEUES))
                queues += [MessageQueue(topic, name, queue_id) async for queue_id in in_slices(more)]
        elif topic in self._topics.configs:
            # The topic is new, and not registered yet.
            return await self._own_queues(topic)
        self._cache_route(topic, now, queues)
        return queues

    def _cache_route(self, topic: str, now: int, queues: list[MessageQueue] | None) -> None:
        known = self._routes.get(topic)
        self._cached_queues += len(queues or ()) - (0 if known is None else len(known[1] or ()))
        self._routes[topic] = now, queues
        if len(self._routes) > MAX_ROUTES or self._cached_queues > MAX_CACHED_QUEUES:
            self._routes.clear()
            self._cached_queues = 0

    async def _own_queues(self, topic: str) -> list[MessageQueue] | None:
        config = self._topics.get(topic)
        if config is None or not config.perm & PERM_READ:
            return None
        name = self._config.broker_name
        return [MessageQueue(topic, name, at) async for at in in_slices(range(config.read_queue_nums))]


def _share(
    query: QueryAssignmentRequestBody,
    mode: SetMessageRequestModeRequestBody,
    queues: list[MessageQueue] | None,
    members: Sequence[str],
    *,
    balances: bool,
) -> list[MessageQueue] | None:
    """The queues of one client; None if the request cannot be answered."""
    if queues is None or query.message_model is None:
        return None
    if query.message_model is MessageModel.BROADCASTING or not balances:
        return queues
    if not members or query.strategy_name not in {"AVG", "AVG_BY_CIRCLE"}:
        return None
    by_circle = query.strategy_name == "AVG_BY_CIRCLE"
    if mode.mode is MessageRequestMode.PULL:
        return _pull_share(query.client_id, queues, members, by_circle=by_circle)
    return _pop_share(query.client_id, queues, members, mode.pop_share_queue_num, by_circle=by_circle)


def _pull_share(
    client_id: str, queues: Sequence[MessageQueue], members: Sequence[str], *, by_circle: bool
) -> list[MessageQueue]:
    """The share of one member, as clients compute it: consecutive queues, or one queue each in rotation."""
    if client_id not in members:
        return []
    index = members.index(client_id)
    if by_circle:
        return list(queues[index :: len(members)])
    share, rest = divmod(len(queues), len(members))
    start = index * share + min(index, rest)
    return list(queues[start : start + share + (index < rest)])


def _pop_share(
    client_id: str, queues: Sequence[MessageQueue], members: Sequence[str], share_with: int, *, by_circle: bool
) -> list[MessageQueue]:
    """The queues that a member pops: all, or its own share and those of some members after it."""
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
        found += _pull_share(member, queues, members, by_circle=by_circle)
    return found
