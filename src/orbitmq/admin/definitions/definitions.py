"""Export of a cluster's definitions, and import of a file: planned against what is there, then applied."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from orbitmq.admin.changes import Change, differences
from orbitmq.admin.cluster.brokers import settings_text
from orbitmq.admin.definitions.model import Definition, Definitions
from orbitmq.admin.errors import InvalidRequestError, NotFoundError
from orbitmq.admin.health.redaction import is_secret
from orbitmq.admin.tables import all_group_configs, all_topic_configs
from orbitmq.admin.topic.changes import attributes_text
from orbitmq.admin.topic.model import TopicKind, TopicSettings, kind_of
from orbitmq.client.errors import InvalidMessageError
from orbitmq.client.validation import check_group, check_topic
from orbitmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import ORDER_TOPIC_NAMESPACE, is_system_group

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from orbitmq.admin.cluster.brokers import Brokers
    from orbitmq.admin.cluster.name_servers import NameServers
    from orbitmq.admin.cluster.topology import BrokerAddress
    from orbitmq.admin.group.groups import Groups
    from orbitmq.admin.session import AdminSession
    from orbitmq.admin.topic.topics import Topics

LOCAL_SETTINGS = frozenset(
    {
        *("brokerName", "brokerId", "brokerClusterName", "brokerIP1", "brokerIP2", "brokerRole", "namesrvAddr"),
        *("listenPort", "bindAddress", "haListenPort", "haMasterAddress", "fastListenPort", "rocketmqHome"),
        *("storePathRootDir", "storePathCommitLog", "storePathDLedgerCommitLog", "storePathConsumeQueue"),
        *("storePathIndex", "storeCheckpoint", "abortFile", "configStorePath", "authConfigPath", "controllerAddr"),
        *("brokerConfigPath", "configBlackList", "dLegerSelfId", "dLegerPeers", "dLegerGroup", "kvConfigPath"),
    }
)
"""Settings of one broker and its machine, which no other broker may take over."""


@dataclasses.dataclass(frozen=True, slots=True)
class ImportPlan:
    """The difference between a file and the cluster."""

    changes: tuple[Change, ...]
    only_in_cluster: tuple[str, ...]
    """Topics and groups that the file does not have: an import leaves them alone."""
    skipped: tuple[str, ...]
    """Parts of the file that cannot be imported here, each as one sentence."""


@dataclasses.dataclass(slots=True)
class _Work:
    """A plan with the requests that carry it out, by address of the broker."""

    changes: list[Change] = dataclasses.field(default_factory=list)
    only_in_cluster: list[str] = dataclasses.field(default_factory=list)
    skipped: list[str] = dataclasses.field(default_factory=list)
    requests: list[tuple[str, Callable[[], Awaitable[object]]]] = dataclasses.field(default_factory=list)

    @property
    def plan(self) -> ImportPlan:
        return ImportPlan(tuple(self.changes), tuple(self.only_in_cluster), tuple(self.skipped))


class DefinitionFiles:
    """Exports and imports definitions."""

    def __init__(
        self, session: AdminSession, brokers: Brokers, name_servers: NameServers, topics: Topics, groups: Groups
    ) -> None:
        self._session = session
        self._brokers = brokers
        self._name_servers = name_servers
        self._topics = topics
        self._groups = groups

    # Export

    async def export(self, *, cluster: str = "", with_settings: bool = False) -> Definitions:
        """The topics and groups of applications, with the settings of brokers if wanted. Raises NotFoundError."""
        chosen = await self._brokers.targets(cluster)
        topics, groups = await self._tables(chosen)
        order = await self._name_servers.table(ORDER_TOPIC_NAMESPACE)
        settings = {}
        for one in chosen if with_settings else ():
            settings[one.broker_name] = portable(await self._brokers.settings(one.address))
        return Definitions(
            cluster or next((one.cluster for one in chosen), ""),
            _definitions(topics, {one.broker_name for one in chosen}),
            _definitions(groups, {one.broker_name for one in chosen}),
            {topic: text for topic, text in order.items() if topic in topics},
            settings,
            self._session.now_ms(),
        )

    async def _tables(
        self, chosen: list[BrokerAddress]
    ) -> tuple[dict[str, dict[str, dict[str, Any]]], dict[str, dict[str, dict[str, Any]]]]:
        """Settings by topic and broker name, and by group and broker name."""
        names = {one.address: one.broker_name for one in chosen}
        servers = set(names.values()) | {one.cluster for one in chosen}
        of_topics = await self._session.from_all(names, lambda at: all_topic_configs(self._session, at))
        of_groups = await self._session.from_all(names, lambda at: all_group_configs(self._session, at))
        topics: dict[str, dict[str, dict[str, Any]]] = {}
        groups: dict[str, dict[str, dict[str, Any]]] = {}
        for address, name in names.items():
            for topic, config in of_topics[address].items():
                if kind_of(topic, servers) is TopicKind.NORMAL:
                    topics.setdefault(topic, {})[name] = _plain(config.to_json(), "topicName")
            for group, settings in of_groups[address].items():
                if not is_system_group(group):
                    groups.setdefault(group, {})[name] = _plain(settings.to_json(), "groupName")
        return topics, groups

    # Import

    async def apply(
        self, file: Definitions, *, cluster: str = "", with_settings: bool = False, dry_run: bool = False
    ) -> ImportPlan:
        """Create and alter what differs from a file. Nothing is deleted. Raises PartialFailureError.

        Definitions that name brokers belong to those, the others to all masters of the cluster. The whole file is
        checked before the first change.
        """
        chosen = await self._brokers.targets(cluster)
        work = _Work()
        topics, groups = await self._tables(chosen)
        self._plan_topics(file, topics, chosen, work)
        self._plan_groups(file, groups, chosen, work)
        if with_settings:
            await self._plan_settings(file, chosen, work)
        await self._plan_order(file, work)
        work.only_in_cluster += [f"topic {one}" for one in sorted(topics.keys() - {it.name for it in file.topics})]
        work.only_in_cluster += [f"group {one}" for one in sorted(groups.keys() - {it.name for it in file.groups})]
        if not dry_run:
            requests = dict(work.requests)
            await self._session.at_all("the import", requests, lambda what: requests[what]())
        return work.plan

    def _plan_topics(
        self,
        file: Definitions,
        known: Mapping[str, Mapping[str, dict[str, Any]]],
        chosen: list[BrokerAddress],
        work: _Work,
    ) -> None:
        for definition in file.topics:
            for broker, settings in _places(definition, "topic", chosen, work):
                config = _topic_config(definition.name, settings)
                old = known.get(definition.name, {}).get(broker.broker_name)
                new = _plain(config.to_json(), "topicName")
                what = f"topic {definition.name} at {broker.broker_name}"
                changes = differences(what, _flat(old), _flat(new))
                if changes:
                    work.changes += changes
                    before = None if old is None else TopicConfig.from_json({**old, "topicName": definition.name})
                    work.requests.append((what, _topic_request(self._topics, broker.address, config, before)))

    def _plan_groups(
        self,
        file: Definitions,
        known: Mapping[str, Mapping[str, dict[str, Any]]],
        chosen: list[BrokerAddress],
        work: _Work,
    ) -> None:
        for definition in file.groups:
            for broker, settings in _places(definition, "group", chosen, work):
                config = _group_config(definition.name, settings)
                old = known.get(definition.name, {}).get(broker.broker_name)
                new = _plain(config.to_json(), "groupName")
                what = f"group {definition.name} at {broker.broker_name}"
                changes = differences(what, _flat(old), _flat(new))
                if changes:
                    work.changes += changes
                    had = (old or {}).get("attributes", {})
                    marked = {f"+{name}": value for name, value in config.attributes.items()}
                    marked |= {f"-{name}": "" for name in had if name not in config.attributes}
                    request = dataclasses.replace(config, attributes=marked)
                    work.requests.append((what, _group_request(self._groups, broker.address, request)))

    async def _plan_settings(self, file: Definitions, chosen: list[BrokerAddress], work: _Work) -> None:
        for broker in chosen:
            wanted = file.settings.get(broker.broker_name)
            if wanted is None:
                if file.settings:
                    work.skipped.append(f"the file has no settings for the broker {broker.broker_name}")
                continue
            current = await self._brokers.settings(broker.address)
            values = {
                name: text for name, text in portable(wanted).items() if name in current and current[name] != text
            }
            what = f"broker {broker.broker_name} ({broker.address})"
            work.changes += differences(what, current, values, only=sorted(values))
            if values:
                work.requests.append((what, _settings_request(self._session, broker.address, values)))

    async def _plan_order(self, file: Definitions, work: _Work) -> None:
        current = await self._name_servers.table(ORDER_TOPIC_NAMESPACE)
        for topic, text in file.order.items():
            if current.get(topic) != text:
                what = f"name server table {ORDER_TOPIC_NAMESPACE}"
                work.changes.append(Change(what, topic, current.get(topic), text))
                request = _order_request(self._name_servers, topic, text)
                work.requests.append((f"order configuration of {topic}", request))


def _topic_config(name: str, settings: Mapping[str, Any]) -> TopicConfig:
    """Raises InvalidRequestError."""
    try:
        check_topic(name)
        config = TopicConfig.from_json({**settings, "topicName": name})
    except (ProtocolError, InvalidMessageError) as error:
        raise InvalidRequestError(f"the topic {name} is invalid: {error}") from error
    if config.read_queue_nums < 0 or config.write_queue_nums < 0 or not 0 <= config.perm < 16:
        raise InvalidRequestError(f"the topic {name} is invalid: its queues or its permission are out of range")
    return config


def _group_config(name: str, settings: Mapping[str, Any]) -> SubscriptionGroupConfig:
    """Raises InvalidRequestError."""
    try:
        check_group(name)
        config = SubscriptionGroupConfig.from_json({**settings, "groupName": name})
    except (ProtocolError, InvalidMessageError) as error:
        raise InvalidRequestError(f"the group {name} is invalid: {error}") from error
    if config.retry_queue_nums < 0 or config.retry_max_times < -1 or config.consume_timeout_minute < 0:
        raise InvalidRequestError(f"the group {name} is invalid: a number is out of range")
    return config


def portable(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings that another broker may take over: not those of a machine, and no secrets."""
    return {
        name: text for name, text in settings.items() if name not in LOCAL_SETTINGS and not is_secret(name) and text
    }


def _definitions(found: Mapping[str, Mapping[str, dict[str, Any]]], brokers: set[str]) -> tuple[Definition, ...]:
    """Compact: settings that all brokers share once, otherwise by broker."""
    result = []
    for name, places in sorted(found.items()):
        first = next(iter(places.values()))
        is_everywhere = places.keys() == brokers and all(one == first for one in places.values())
        result.append(
            Definition(name, first) if is_everywhere else Definition(name, {}, dict(sorted(places.items())))
        )
    return tuple(result)


def _places(
    definition: Definition, kind: str, chosen: list[BrokerAddress], work: _Work
) -> list[tuple[BrokerAddress, Mapping[str, Any]]]:
    names = {one.broker_name for one in chosen}
    if absent := sorted(definition.at.keys() - names):
        if definition.at.keys().isdisjoint(names):
            hint = f"the {kind} {definition.name} belongs to {', '.join(absent)}"
            raise NotFoundError("broker", absent[0], f"{hint}, which the cluster does not have")
        work.skipped.append(f"the {kind} {definition.name} at {', '.join(absent)}: the cluster does not have it")
    found = [(one, definition.settings_at(one.broker_name)) for one in chosen]
    return [(one, settings) for one, settings in found if settings is not None]


def _plain(values: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key != name and value is not None}


def _flat(values: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Settings for differences, each attribute a value of its own."""
    if values is None:
        return None
    attributes = values.get("attributes") or {}
    plain = {name: value for name, value in values.items() if name != "attributes"}
    return {**plain, **{f"attribute {name}": value for name, value in attributes.items()}}


def _topic_request(
    topics: Topics, address: str, config: TopicConfig, before: TopicConfig | None
) -> Callable[[], Awaitable[object]]:
    removed = () if before is None else tuple(before.attributes.keys() - config.attributes.keys())
    settings = TopicSettings(attributes=config.attributes, remove_attributes=removed)
    return lambda: topics.put(address, config, attributes=attributes_text(settings, before) or "")


def _group_request(
    groups: Groups, address: str, config: SubscriptionGroupConfig
) -> Callable[[], Awaitable[object]]:
    return lambda: groups.put(address, config)


def _settings_request(
    session: AdminSession, address: str, values: Mapping[str, str]
) -> Callable[[], Awaitable[object]]:
    body = settings_text(values)
    return lambda: session.call(address, RequestCode.UPDATE_BROKER_CONFIG, body=body)


def _order_request(name_servers: NameServers, topic: str, text: str) -> Callable[[], Awaitable[object]]:
    return lambda: name_servers.put(ORDER_TOPIC_NAMESPACE, topic, text)
