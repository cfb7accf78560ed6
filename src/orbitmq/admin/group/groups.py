"""Consumer groups: lists, descriptions, and the settings of groups."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

from orbitmq.admin.changes import Change, differences
from orbitmq.admin.cluster.topology import addresses
from orbitmq.admin.errors import ClientOfflineError, InvalidRequestError, NotFoundError
from orbitmq.admin.group.model import (
    GroupDescription,
    GroupPlacement,
    GroupSettings,
    GroupSummary,
    dead_letter_topic,
    retry_topic,
)
from orbitmq.admin.tables import KnownSettings, all_group_configs, group_config
from orbitmq.client.errors import InvalidMessageError
from orbitmq.client.validation import check_group
from orbitmq.protocol.bodies import (
    GroupRetryPolicy,
    MessageRequestMode,
    SetMessageRequestModeRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
)
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import is_system_group

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.admin.cluster.brokers import Brokers
    from orbitmq.admin.group.lag import Lag
    from orbitmq.admin.group.members import Members
    from orbitmq.admin.session import AdminSession
    from orbitmq.admin.topic.topics import Topics

_PLAIN = (
    *("consume_enable", "consume_from_min_enable", "consume_broadcast_enable", "consume_message_orderly"),
    *("retry_queue_nums", "retry_max_times", "broker_id", "which_broker_when_consume_slowly"),
    *("notify_consumer_ids_changed_enable", "consume_timeout_minute"),
)
"""Settings whose value is taken over as it is."""


class Groups:
    """Consumer groups of all clusters, or of one."""

    def __init__(self, session: AdminSession, brokers: Brokers, topics: Topics, members: Members, lag: Lag) -> None:
        self._session = session
        self._brokers = brokers
        self._topics = topics
        self._members = members
        self._lag = lag

    # Lists

    async def all(
        self, *, cluster: str = "", with_system: bool = False, with_lag: bool = False
    ) -> list[GroupSummary]:
        """Groups with their settings, and with their lag, in a few requests per broker however many there are."""
        topology = await self._brokers.topology()
        brokers = topology.readers(cluster or self._session.config.cluster)
        names = {broker.address: broker.broker_name for broker in brokers}
        known = KnownSettings(SubscriptionGroupConfig)
        tables = await self._session.from_all(
            names, lambda address: all_group_configs(self._session, address, known)
        )
        placements: dict[str, list[GroupPlacement]] = {}
        for address, configs in tables.items():
            for name, config in configs.items():
                placements.setdefault(name, []).append(GroupPlacement(names[address], config))
        progress = await self._lag.progress([broker.address for broker in brokers]) if with_lag else {}
        found = []
        for name in sorted(placements.keys() | progress.keys()):
            is_system = is_system_group(name)
            if is_system and not with_system:
                continue
            summary = GroupSummary(name, is_system, tuple(placements.get(name, ())))
            if with_lag:
                one = progress.get(name)
                summary = summary.with_lag(None if one is None else one.totals())
            found.append(summary)
        return found

    async def settings(self, group: str, *, cluster: str = "", broker: str = "") -> list[GroupPlacement]:
        """The settings of a group at each broker that has it."""
        brokers = await self._brokers.targets(cluster, broker, for_change=False)
        found = await self._session.from_all(
            addresses(brokers), lambda address: group_config(self._session, address, group)
        )
        return [
            GroupPlacement(one.broker_name, config) for one in brokers if (config := found[one.address]) is not None
        ]

    async def describe(self, group: str) -> GroupDescription:
        """The group with settings, members, subscriptions, lag and dead letters. Raises NotFoundError."""
        placements, connections = await asyncio.gather(self.settings(group), self._connections(group))
        if not placements and connections is None:
            raise NotFoundError("group", group, "it is not created, and no member is connected")
        check = None if connections is None else await self._members.check_subscriptions(group, connections)
        lag, dead = await asyncio.gather(self._lag_of(group), self.dead_letters(group))
        return GroupDescription(group, tuple(placements), connections, check, lag, dead)

    async def _connections(self, group: str) -> Any:
        try:
            return await self._members.connections(group)
        except (ClientOfflineError, NotFoundError):
            return None

    async def _lag_of(self, group: str) -> Any:
        return await self._lag.of_group(group, with_clients=True, may_be_empty=True)

    async def dead_letters(self, group: str) -> int:
        """Number of messages in the dead letter topic of a group."""
        try:
            stats = await self._topics.stats(dead_letter_topic(group))
        except NotFoundError:
            return 0
        return sum(ends.max_offset - ends.min_offset for ends in stats.offset_table.values())

    # Changes

    async def create(
        self,
        group: str,
        settings: GroupSettings | None = None,
        *,
        cluster: str = "",
        broker: str = "",
        dry_run: bool = False,
    ) -> list[Change]:
        """Create a group on the masters of a cluster or on one broker, or alter it where it exists.

        Raises InvalidRequestError, PartialFailureError.
        """
        return await self._apply(group, settings or GroupSettings(), cluster, broker, True, dry_run)

    async def alter(
        self,
        group: str,
        settings: GroupSettings,
        *,
        cluster: str = "",
        broker: str = "",
        dry_run: bool = False,
    ) -> list[Change]:
        """Alter a group where it exists. Raises NotFoundError, PartialFailureError."""
        return await self._apply(group, settings, cluster, broker, False, dry_run)

    async def _apply(
        self, group: str, settings: GroupSettings, cluster: str, broker: str, may_create: bool, dry_run: bool
    ) -> list[Change]:
        _check_name(group)
        needs_cluster = may_create or bool(cluster or broker)
        brokers = await self._brokers.targets(cluster, broker, for_change=needs_cluster)
        before = await self._session.from_all(
            addresses(brokers), lambda address: group_config(self._session, address, group)
        )
        chosen = [one for one in brokers if may_create or before[one.address] is not None]
        if not chosen:
            raise NotFoundError("group", group, "create it first")
        plans = {one.address: merged(group, before[one.address], settings) for one in chosen}
        if not dry_run:
            await self._session.at_all(
                "the change of the group",
                list(plans),
                lambda address: self.put(address, as_request(plans[address], before[address], settings)),
            )
        return [
            change
            for one in chosen
            for change in differences(
                f"group {group} at {one.broker_name}", _values(before[one.address]), _values(plans[one.address])
            )
        ]

    async def put(self, address: str, config: SubscriptionGroupConfig) -> None:
        """Write the settings of a group at one broker as they are."""
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        await self._session.call(address, code, body=config.encode())

    async def create_many(
        self, configs: Sequence[SubscriptionGroupConfig], *, cluster: str = "", broker: str = ""
    ) -> list[str]:
        """Create or alter groups with one request per broker (5.3.1 and later). Returns the addresses."""
        body = SubscriptionGroupList(list(configs)).encode()
        chosen = addresses(await self._brokers.targets(cluster, broker))
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
        await self._session.at_all(
            "the creation of groups", chosen, lambda address: self._session.call(address, code, body=body)
        )
        return chosen

    async def delete(
        self,
        group: str,
        *,
        cluster: str = "",
        broker: str = "",
        remove_offsets: bool = True,
        remove_topics: bool = True,
        dry_run: bool = False,
    ) -> list[Change]:
        """Delete a group, with its offsets and with its retry and dead letter topics. Raises NotFoundError.

        Topics are removed only where the whole cluster is meant.
        """
        needs_cluster = bool(cluster or broker or self._session.config.cluster)
        brokers = await self._brokers.targets(cluster, broker, for_change=needs_cluster)
        before = await self._session.from_all(
            addresses(brokers), lambda address: group_config(self._session, address, group)
        )
        holders = [one for one in brokers if before[one.address] is not None]
        if not holders:
            raise NotFoundError("group", group)
        changes = [Change(f"group {group} at {one.broker_name}", "group", "exists", None) for one in holders]
        if not dry_run:
            await self._session.at_all(
                "the deletion of the group",
                addresses(holders),
                lambda address: self.delete_at(address, group, remove_offsets=remove_offsets),
            )
        for topic in (retry_topic(group), dead_letter_topic(group)) if remove_topics and not broker else ():
            try:
                changes += await self._topics.delete(topic, cluster=cluster, dry_run=dry_run)
            except NotFoundError:
                continue
        return changes

    async def delete_at(self, address: str, group: str, *, remove_offsets: bool) -> None:
        """Delete a group at one broker, also if that does not have it."""
        fields = {"groupName": group, "cleanOffset": remove_offsets, "removeOffset": remove_offsets}
        await self._session.call(address, RequestCode.DELETE_SUBSCRIPTIONGROUP, fields)

    async def set_request_mode(
        self, address: str, topic: str, group: str, mode: str, pop_share_queues: int = 0
    ) -> None:
        """Set at one broker whether members of a group pull or pop a topic."""
        if mode not in {"PULL", "POP"}:
            raise InvalidRequestError(f"the mode is PULL or POP, not {mode!r}")
        body = SetMessageRequestModeRequestBody(topic, group, MessageRequestMode(mode), pop_share_queues).encode()
        await self._session.call(address, RequestCode.SET_MESSAGE_REQUEST_MODE, body=body)


def merged(group: str, before: SubscriptionGroupConfig | None, settings: GroupSettings) -> SubscriptionGroupConfig:
    """The settings of a group at one broker after a change. Raises InvalidRequestError."""
    old = SubscriptionGroupConfig(group) if before is None else before
    values: dict[str, Any] = {name: value for name in _PLAIN if (value := getattr(settings, name)) is not None}
    for name in ("retry_queue_nums", "retry_max_times", "consume_timeout_minute"):
        if values.get(name, 0) < (-1 if name == "retry_max_times" else 0):
            raise InvalidRequestError(f"{name} cannot be {values[name]}")
    if settings.group_retry_policy is not None:
        try:
            values["group_retry_policy"] = GroupRetryPolicy.from_json(dict(settings.group_retry_policy))
        except ProtocolError as error:
            raise InvalidRequestError(f"the retry policy is invalid: {error}") from error
    attributes = {**old.attributes, **settings.attributes}
    for name in settings.remove_attributes:
        attributes.pop(name, None)
    return dataclasses.replace(old, **values, attributes=attributes)


def as_request(
    config: SubscriptionGroupConfig, before: SubscriptionGroupConfig | None, settings: GroupSettings
) -> SubscriptionGroupConfig:
    """The settings as a broker takes them: attributes are changes, with a plus or a minus before each name."""
    known = {} if before is None else before.attributes
    changes = {f"+{name}": value for name, value in settings.attributes.items()}
    changes |= {f"-{name}": "" for name in settings.remove_attributes if name in known}
    return dataclasses.replace(config, attributes=changes)


def _values(config: SubscriptionGroupConfig | None) -> dict[str, Any] | None:
    if config is None:
        return None
    plain = config.to_json()
    plain.pop("groupName", None)
    attributes = plain.pop("attributes", {})
    return {**plain, **{f"attribute {name}": value for name, value in attributes.items()}}


def _check_name(group: str) -> None:
    try:
        check_group(group)
    except InvalidMessageError as error:
        raise InvalidRequestError(str(error)) from error
