"""Members of groups, and producers: who is connected, with which subscriptions, doing what."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from orbitmq.admin.errors import AdminError, ClientOfflineError, RefusedError
from orbitmq.admin.group.model import Connections, Member, Subscription, SubscriptionCheck
from orbitmq.admin.session import LONG, decode
from orbitmq.protocol.bodies import (
    ConsumerConnection,
    ConsumerRunningInfo,
    GetConsumerStatusBody,
    ProducerConnection,
    QuerySubscriptionResponseBody,
    TopicList,
)
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.versions import version_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from orbitmq.admin.cluster.brokers import Brokers
    from orbitmq.admin.session import AdminSession
    from orbitmq.protocol.bodies import Connection, SubscriptionData

TableT = TypeVar("TableT")

RUNNING_INFO_SECONDS = 15.0
"""The broker waits up to ten seconds for a client."""


class Members:
    """Connected clients of groups."""

    def __init__(self, session: AdminSession, brokers: Brokers) -> None:
        self._session = session
        self._brokers = brokers

    # Connections

    async def connections(self, group: str, *, broker: str = "") -> Connections:
        """The members of a consumer group at all brokers, or at one. Raises ClientOfflineError."""
        tables = await self._at_brokers(group, broker, self.consumer_table)
        members: dict[str, Member] = {}
        subscriptions: set[Subscription] = set()
        for table in tables:
            members.update({one.client_id: _member(one) for one in table.connection_set})
            subscriptions.update(map(_subscription, table.subscription_table.values()))
        first = tables[0]
        return Connections(
            group,
            tuple(sorted(members.values())),
            tuple(sorted(subscriptions)),
            str(first.consume_type or ""),
            str(first.message_model or ""),
            str(first.consume_from_where or ""),
        )

    async def consumer_table(self, address: str, group: str) -> ConsumerConnection:
        """The members of a consumer group at one broker, as it sends them."""
        code = RequestCode.GET_CONSUMER_CONNECTION_LIST
        answer = await self._session.call(address, code, {"consumerGroup": group})
        return decode(ConsumerConnection, answer, address)

    async def producers(self, group: str, *, broker: str = "") -> list[Member]:
        """The members of a producer group. Raises ClientOfflineError."""
        tables = await self._at_brokers(group, broker, self.producer_table)
        found = {one.client_id: _member(one) for table in tables for one in table.connection_set}
        return sorted(found.values())

    async def producer_table(self, address: str, group: str) -> ProducerConnection:
        """The members of a producer group at one broker, as it sends them."""
        code = RequestCode.GET_PRODUCER_CONNECTION_LIST
        try:
            answer = await self._session.call(address, code, {"producerGroup": group})
        except RefusedError as error:
            raise ClientOfflineError(error.code, error.remark, error.address) from error
        return decode(ProducerConnection, answer, address)

    async def all_producers(self, *, cluster: str = "", broker: str = "") -> dict[str, list[Member]]:
        """The members of all producer groups, with one request per broker."""
        brokers = await self._brokers.targets(cluster, broker, for_change=False)
        groups: dict[str, dict[str, Member]] = {}
        for one in brokers:
            table = await self._brokers.producers(one.address)
            for group, members in table.data.items():
                found = groups.setdefault(group, {})
                for member in members:
                    found[member.client_id] = Member(
                        member.client_id,
                        member.remote_ip.lstrip("/"),
                        member.language or "",
                        _version(member.version),
                    )
        return {group: sorted(found.values()) for group, found in sorted(groups.items())}

    async def _at_brokers(
        self, group: str, broker: str, fetch: Callable[[str, str], Awaitable[TableT]]
    ) -> list[TableT]:
        """The tables of the brokers that know the group. Raises ClientOfflineError if none does."""
        brokers = await self._brokers.targets("", broker, for_change=False)
        done, failed = await self._session.gather(
            [one.address for one in brokers], lambda address: fetch(address, group)
        )
        if not done:
            raise next(iter(failed.values()))
        for error in failed.values():
            if not isinstance(error, ClientOfflineError):
                raise error
        return list(done.values())

    # One client

    async def running_info(
        self, group: str, client_id: str, *, broker: str = "", with_stacks: bool = False
    ) -> ConsumerRunningInfo:
        """The inner state of a member, which a broker fetches from it. Raises RefusedError, ClientOfflineError."""
        fields = {"consumerGroup": group, "clientId": client_id, "jstackEnable": with_stacks}
        last: AdminError | None = None
        for one in await self._brokers.targets("", broker, for_change=False):
            code = RequestCode.GET_CONSUMER_RUNNING_INFO
            try:
                answer = await self._session.call(one.address, code, fields, seconds=RUNNING_INFO_SECONDS)
            except RefusedError as error:
                # The client may be connected to another broker.
                last = error
            else:
                return decode(ConsumerRunningInfo, answer, one.address)
        assert last is not None
        raise last

    async def check_subscriptions(self, group: str, connections: Connections | None = None) -> SubscriptionCheck:
        """Compare the subscriptions of all members, with one request each. Raises ClientOfflineError."""
        found = await self.connections(group) if connections is None else connections
        done, failed = await self._session.gather(
            [member.client_id for member in found.members], lambda client: self.running_info(group, client)
        )
        return SubscriptionCheck(
            {client: _subscriptions(info.subscription_set) for client, info in done.items()},
            {client: str(error) for client, error in failed.items()},
        )

    async def status(self, group: str, topic: str, *, client_id: str = "") -> dict[str, GetConsumerStatusBody]:
        """The offsets that members have in memory, by address of the broker."""
        fields = {"topic": topic, "group": group, "clientAddr": client_id or None}
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        brokers = await self._brokers.targets(for_change=False)

        async def fetch(address: str) -> GetConsumerStatusBody:
            answer = await self._session.call(address, code, fields, seconds=self._session.config.timeout * LONG)
            return decode(GetConsumerStatusBody, answer, address)

        done, failed = await self._session.gather([one.address for one in brokers], fetch)
        if not done and failed:
            raise next(iter(failed.values()))
        return done

    # Topics of a group

    async def topics(self, group: str) -> list[str]:
        """The topics with offsets of a group."""
        brokers = await self._brokers.targets(for_change=False)

        async def fetch(address: str) -> list[str]:
            answer = await self._session.call(address, RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": group})
            return decode(TopicList, answer, address).topic_list

        done = await self._session.from_all([one.address for one in brokers], fetch)
        return sorted({topic for names in done.values() for topic in names})

    async def subscription(self, group: str, topic: str) -> Subscription | None:
        """The subscription of a group to a topic, or None. It is known while a member is connected."""
        code = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
        for one in await self._brokers.targets(for_change=False):
            answer = await self._session.call(one.address, code, {"group": group, "topic": topic})
            body = decode(QuerySubscriptionResponseBody, answer, one.address)
            if body.subscription_data is not None:
                return _subscription(body.subscription_data)
        return None


def _member(one: Connection) -> Member:
    return Member(one.client_id, one.client_addr, one.language or "", _version(one.version))


def _version(number: int) -> str:
    return version_name(max(number, 0))


def _subscription(data: SubscriptionData) -> Subscription:
    return Subscription(data.topic, data.sub_string, data.expression_type or "TAG")


def _subscriptions(found: Iterable[SubscriptionData]) -> tuple[Subscription, ...]:
    return tuple(sorted(map(_subscription, found)))
