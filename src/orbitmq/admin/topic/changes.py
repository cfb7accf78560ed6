"""Changes of topics: create, alter, delete, order configuration, static mappings."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.admin.changes import Change, differences
from orbitmq.admin.cluster.topology import BrokerAddress, addresses
from orbitmq.admin.errors import InvalidRequestError, NotFoundError
from orbitmq.admin.tables import topic_config
from orbitmq.admin.topic.model import TopicPlacement, TopicSettings
from orbitmq.client.errors import InvalidMessageError
from orbitmq.client.validation import check_topic
from orbitmq.protocol.bodies import CreateTopicListRequestBody, TopicConfig, TopicQueueMappingDetail
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.message.flags import PERM_READ_WRITE
from orbitmq.protocol.names import AUTO_CREATE_TOPIC, ORDER_TOPIC_NAMESPACE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.admin.cluster.brokers import Brokers
    from orbitmq.admin.cluster.name_servers import NameServers
    from orbitmq.admin.session import AdminSession

DEFAULT_QUEUES = 8
"""Queues of a new topic per broker, as RocketMQ's tools create it."""
UNIT, UNIT_SUBSCRIBED = 1, 2
"""Bits of ``topic_sys_flag``."""


class TopicChanges:
    """The changing half of ``Topics``."""

    def __init__(self, session: AdminSession, brokers: Brokers, name_servers: NameServers) -> None:
        self._session = session
        self._brokers = brokers
        self._name_servers = name_servers

    async def create(
        self,
        topic: str,
        settings: TopicSettings | None = None,
        *,
        cluster: str = "",
        broker: str = "",
        dry_run: bool = False,
    ) -> list[Change]:
        """Create a topic on the masters of a cluster or on one broker, or alter it where it exists.

        Raises InvalidRequestError, PartialFailureError.
        """
        _check_name(topic)
        chosen = await self._brokers.targets(cluster, broker)
        return await self._apply(topic, settings or TopicSettings(), chosen, may_create=True, dry_run=dry_run)

    async def alter(
        self,
        topic: str,
        settings: TopicSettings,
        *,
        cluster: str = "",
        broker: str = "",
        dry_run: bool = False,
    ) -> list[Change]:
        """Alter a topic where it exists: at all its brokers, or those of a cluster. Raises NotFoundError."""
        _check_name(topic)
        targets = await self._brokers.targets(cluster, broker, for_change=bool(cluster or broker))
        return await self._apply(topic, settings, targets, may_create=False, dry_run=dry_run)

    async def _apply(
        self,
        topic: str,
        settings: TopicSettings,
        brokers: Sequence[BrokerAddress],
        *,
        may_create: bool,
        dry_run: bool,
    ) -> list[Change]:
        before = await self._session.from_all(
            addresses(brokers), lambda address: topic_config(self._session, address, topic)
        )
        chosen = [one for one in brokers if may_create or before[one.address] is not None]
        if not chosen:
            raise NotFoundError("topic", topic, "create it first")
        plans = {one.address: merged(one.broker_name, before[one.address], settings) for one in chosen}
        changes = [
            change
            for one in chosen
            for change in differences(
                f"topic {topic} at {one.broker_name}",
                _values(one.broker_name, before[one.address]),
                plans[one.address].values(),
            )
        ]
        if not dry_run:
            await self._session.at_all(
                "the change of the topic",
                [one.address for one in chosen],
                lambda address: self._update(address, topic, plans[address], settings, before[address]),
            )
        if plans and any(place.order for place in plans.values()) and settings.order:
            text = ";".join(
                f"{one.broker_name}:{plans[one.address].write_queues}"
                for one in sorted(chosen, key=lambda one: one.broker_name)
            )
            changes += await self.set_order_configuration(topic, text, dry_run=dry_run)
        return changes

    async def _update(
        self,
        address: str,
        topic: str,
        place: TopicPlacement,
        settings: TopicSettings,
        before: TopicConfig | None,
    ) -> None:
        config = TopicConfig(
            topic,
            place.read_queues,
            place.write_queues,
            place.perm,
            topic_sys_flag=place.sys_flag,
            order=place.order,
        )
        await self.put(address, config, attributes=attributes_text(settings, before) or "")

    async def put(self, address: str, config: TopicConfig, *, attributes: str = "") -> None:
        """Write the settings of a topic at one broker as they are; attributes as ``+key=value,-key``."""
        fields = {**_fields_of(config), "attributes": attributes or None}
        await self._session.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, fields)

    async def remove(self, topic: str, *, cluster: str = "") -> None:
        """Delete a topic at the masters and the name servers, also if it does not exist."""
        chosen = addresses(await self._brokers.targets(cluster, for_change=bool(cluster)))
        await self._session.at_all(
            "the deletion of the topic",
            chosen,
            lambda address: self._session.call(address, RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic}),
        )
        fields = {"topic": topic, "clusterName": cluster or None}
        await self._session.call_name_servers(
            "the deletion of the route", RequestCode.DELETE_TOPIC_IN_NAMESRV, fields
        )

    async def create_many(
        self, configs: Sequence[TopicConfig], *, cluster: str = "", broker: str = ""
    ) -> list[str]:
        """Create or alter topics with one request per broker (5.3 and later). Returns the addresses."""
        body = CreateTopicListRequestBody(list(configs)).encode()
        chosen = addresses(await self._brokers.targets(cluster, broker))
        code = RequestCode.UPDATE_AND_CREATE_TOPIC_LIST
        await self._session.at_all(
            "the creation of topics", chosen, lambda address: self._session.call(address, code, body=body)
        )
        return chosen

    async def delete(self, topic: str, *, cluster: str = "", dry_run: bool = False) -> list[Change]:
        """Delete a topic with its messages: at the masters, then at the name servers. Raises NotFoundError.

        Its order configuration, which name servers keep by topic, goes with it.
        """
        cluster = cluster or self._session.config.cluster
        chosen = await self._brokers.targets(cluster, for_change=bool(cluster))
        configs = await self._session.from_all(
            addresses(chosen), lambda address: topic_config(self._session, address, topic)
        )
        changes = [
            Change(f"topic {topic} at {one.broker_name}", "topic", "exists", None)
            for one in chosen
            if configs[one.address] is not None
        ]
        if not changes:
            raise NotFoundError("topic", topic, f"no master of {cluster or 'any cluster'} has it")
        if not dry_run:
            await self.remove(topic, cluster=cluster)
        if await self._name_servers.get(ORDER_TOPIC_NAMESPACE, topic) is not None:
            changes += await self._name_servers.delete(ORDER_TOPIC_NAMESPACE, topic, dry_run=dry_run)
        return changes

    async def set_order_configuration(self, topic: str, text: str, *, dry_run: bool = False) -> list[Change]:
        """Set the queues that producers of an ordered topic use: ``broker:queues;…``; empty removes it."""
        for part in text.split(";") if text else ():
            name, _, count = part.partition(":")
            if not name or not count.isdecimal():
                raise InvalidRequestError(f"an order configuration is broker:queues;…, not {text!r}")
        if not text:
            return await self._name_servers.delete(ORDER_TOPIC_NAMESPACE, topic, dry_run=dry_run)
        return await self._name_servers.put(ORDER_TOPIC_NAMESPACE, topic, text, dry_run=dry_run)

    async def set_static_mapping(
        self, address: str, config: TopicConfig, mapping: TopicQueueMappingDetail, *, force: bool = False
    ) -> None:
        """Put one broker's part of a static topic in force."""
        fields = {**_fields_of(config), "force": force}
        code = RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC
        await self._session.call(address, code, fields, mapping.encode())


def _fields_of(config: TopicConfig) -> dict[str, object]:
    """Header fields of the requests that write a topic."""
    return {
        "topic": config.topic_name,
        "defaultTopic": AUTO_CREATE_TOPIC,
        "readQueueNums": config.read_queue_nums,
        "writeQueueNums": config.write_queue_nums,
        "perm": config.perm,
        "topicFilterType": config.topic_filter_type,
        "topicSysFlag": config.topic_sys_flag,
        "order": config.order,
    }


def merged(broker_name: str, before: TopicConfig | None, settings: TopicSettings) -> TopicPlacement:
    """The settings of a topic on one broker after a change. Raises InvalidRequestError."""
    old = (
        TopicPlacement(broker_name, DEFAULT_QUEUES, DEFAULT_QUEUES, PERM_READ_WRITE)
        if before is None
        else TopicPlacement.of(broker_name, before)
    )
    flag = old.sys_flag
    for wanted, bit in ((settings.unit, UNIT), (settings.unit_subscribed, UNIT_SUBSCRIBED)):
        if wanted is not None:
            flag = flag | bit if wanted else flag & ~bit
    attributes = {**old.attributes, **settings.attributes}
    for name in settings.remove_attributes:
        attributes.pop(name, None)
    new = dataclasses.replace(
        old,
        read_queues=old.read_queues if settings.read_queues is None else settings.read_queues,
        write_queues=old.write_queues if settings.write_queues is None else settings.write_queues,
        perm=old.perm if settings.perm is None else settings.perm,
        sys_flag=flag,
        order=old.order if settings.order is None else settings.order,
        attributes=attributes,
    )
    if new.read_queues < 0 or new.write_queues < 0:
        raise InvalidRequestError(f"a number of queues is 0 or more, not {new.read_queues} and {new.write_queues}")
    if not 0 <= new.perm < 16:
        raise InvalidRequestError(f"a permission is 2 (write), 4 (read) or 6 (both), not {new.perm}")
    return new


def attributes_text(settings: TopicSettings, before: TopicConfig | None) -> str | None:
    """Attributes as a request carries them, ``+key=value,-key``; only those that a broker has are removed."""
    known = {} if before is None else before.attributes
    for text in (*settings.attributes, *settings.attributes.values(), *settings.remove_attributes):
        if "," in text or "=" in text:
            raise InvalidRequestError(f"an attribute cannot contain ',' or '=': {text!r}")
    parts = [f"+{name}={value}" for name, value in sorted(settings.attributes.items())]
    parts += [f"-{name}" for name in settings.remove_attributes if name in known]
    return ",".join(parts) or None


def _values(broker_name: str, config: TopicConfig | None) -> dict[str, object] | None:
    return None if config is None else TopicPlacement.of(broker_name, config).values()


def _check_name(topic: str) -> None:
    try:
        check_topic(topic)
    except InvalidMessageError as error:
        raise InvalidRequestError(str(error)) from error
