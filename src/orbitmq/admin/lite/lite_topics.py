"""Lite topics of RocketMQ 5.5: what brokers hold of them, their clients and their lag."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.admin.session import decode
from orbitmq.admin.topic.topics import readers_of
from orbitmq.protocol.bodies import (
    GetBrokerLiteInfoResponseBody,
    GetLiteClientInfoResponseBody,
    GetLiteGroupInfoResponseBody,
    GetLiteTopicInfoResponseBody,
    GetParentTopicInfoResponseBody,
)
from orbitmq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.admin.cluster.brokers import Brokers
    from orbitmq.admin.session import AdminSession, BodyT
    from orbitmq.admin.topic.topics import Topics


class LiteTopics:
    """Lite topics. Results are by broker name; a broker without the feature answers UnsupportedError."""

    def __init__(self, session: AdminSession, brokers: Brokers, topics: Topics) -> None:
        self._session = session
        self._brokers = brokers
        self._topics = topics

    async def broker_info(self, *, cluster: str = "", broker: str = "") -> dict[str, GetBrokerLiteInfoResponseBody]:
        """The state of lite topics at each broker, by its address."""
        chosen = await self._brokers.targets(cluster, broker, for_change=False)
        return await self._fetch(
            {one.address: one.address for one in chosen},
            RequestCode.GET_BROKER_LITE_INFO,
            {},
            GetBrokerLiteInfoResponseBody,
        )

    async def parent_topic(self, topic: str) -> dict[str, GetParentTopicInfoResponseBody]:
        fields = {"topic": topic}
        code = RequestCode.GET_PARENT_TOPIC_INFO
        return await self._fetch(await self._brokers_of(topic), code, fields, GetParentTopicInfoResponseBody)

    async def lite_topic(self, parent: str, lite_topic: str) -> dict[str, GetLiteTopicInfoResponseBody]:
        fields = {"parentTopic": parent, "liteTopic": lite_topic}
        code = RequestCode.GET_LITE_TOPIC_INFO
        return await self._fetch(await self._brokers_of(parent), code, fields, GetLiteTopicInfoResponseBody)

    async def client(self, parent: str, group: str, client_id: str) -> dict[str, GetLiteClientInfoResponseBody]:
        fields = {"parentTopic": parent, "group": group, "clientId": client_id}
        code = RequestCode.GET_LITE_CLIENT_INFO
        return await self._fetch(await self._brokers_of(parent), code, fields, GetLiteClientInfoResponseBody)

    async def group(
        self, parent: str, group: str, *, lite_topic: str = "", top: int = 20
    ) -> dict[str, GetLiteGroupInfoResponseBody]:
        """The lag of a group on lite topics, with those that lag most."""
        fields = {"group": group, "liteTopic": lite_topic or None, "topK": top}
        code = RequestCode.GET_LITE_GROUP_INFO
        return await self._fetch(await self._brokers_of(parent), code, fields, GetLiteGroupInfoResponseBody)

    async def dispatch(self, address: str, group: str, *, client_id: str = "") -> None:
        """Make a broker dispatch to a group, or to one client, now."""
        fields = {"group": group, "clientId": client_id}
        await self._session.call(address, RequestCode.TRIGGER_LITE_DISPATCH, fields)

    async def _brokers_of(self, topic: str) -> dict[str, str]:
        return readers_of(await self._topics.route(topic))

    async def _fetch(
        self, brokers: Mapping[str, str], code: int, fields: Mapping[str, object], kind: type[BodyT]
    ) -> dict[str, BodyT]:
        async def one(name: str) -> BodyT:
            return decode(kind, await self._session.call(brokers[name], code, fields), brokers[name])

        return await self._session.from_all(brokers, one)
