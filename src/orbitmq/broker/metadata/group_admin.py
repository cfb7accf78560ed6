"""Admin requests for subscription groups: create, change, delete, forbid, list."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.broker.errors import check_not_of_service
from orbitmq.broker.metadata.attributes import GROUP_ATTRIBUTES, altered
from orbitmq.broker.metadata.data_version import page_of
from orbitmq.broker.metadata.subscription_groups import group_name_problem
from orbitmq.broker.metadata.topics import MAX_QUEUES, topic_name_problem
from orbitmq.broker.time_slices import decoded, encoded, in_slices
from orbitmq.protocol.bodies import (
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.remoting.processor import RequestRefusedError, fields_of, handler_of
from orbitmq.store.config_tables import SUBSCRIPTION_GROUPS

if TYPE_CHECKING:
    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.broker.config.persistence import ConfigWriter
    from orbitmq.broker.metadata.subscription_groups import GroupTable
    from orbitmq.broker.offsets.table import OffsetTable
    from orbitmq.broker.stats.counters import BrokerStats
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, Handler


class GroupRequests:
    """Requests that change something are answered once the change is on disk."""

    def __init__(
        self,
        groups: GroupTable,
        offsets: OffsetTable,
        config: BrokerConfig,
        writer: ConfigWriter,
        stats: BrokerStats | None = None,
    ) -> None:
        self._groups = groups
        self._offsets = offsets
        self._config = config
        self._writer = writer
        self._stats = stats

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: handler_of(self.update),
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: handler_of(self.update_list),
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: handler_of(self.all_configs),
            RequestCode.DELETE_SUBSCRIPTIONGROUP: handler_of(self.delete),
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: handler_of(self.config),
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: handler_of(self.forbid),
        }

    async def update(self, request: Command, _: Connection) -> Command:
        if request.body is not None:
            await self._put([SubscriptionGroupConfig.decode(request.body)])
        return request.response(ResponseCode.SUCCESS)

    async def update_list(self, request: Command, _: Connection) -> Command:
        group_list = await decoded(SubscriptionGroupList, request.body or b"{}")
        await self._put(group_list.group_config_list)
        return request.response(ResponseCode.SUCCESS)

    async def _put(self, wanted: list[SubscriptionGroupConfig]) -> None:
        """Create or change all groups; if one is invalid, none."""
        # A group that is named twice: the second entry changes the first.
        result: dict[str, SubscriptionGroupConfig] = {}
        before = dict(self._groups.configs)
        async for config in in_slices(wanted):
            name = config.group_name
            result[name] = _checked(config, result.get(name) or before.get(name))
        # Groups that others have changed in between are few.
        stale = {name for name in result if self._groups.configs.get(name) is not before.get(name)}
        for name in stale:
            del result[name]
        for config in wanted if stale else ():
            name = config.group_name
            if name in stale:
                result[name] = _checked(config, result.get(name) or self._groups.configs.get(name))
        self._groups.check_room(sum(name not in self._groups.configs for name in result))
        if result:
            self._groups.update(*result.values())
            await self._writer.saved(SUBSCRIPTION_GROUPS)

    async def all_configs(self, request: Command, _: Connection) -> Command:
        fields = fields_of(request)
        groups = self._groups
        # Copies: a thread may encode them while groups are added and removed.
        configs = dict(groups.configs)
        forbidden = {name: dict(topics) for name, topics in groups.forbidden_table.items()}
        page = page_of(
            configs,
            groups.data_version,
            asked_version=fields["dataVersion"],
            start=fields["groupSeq"],
            most=fields["maxGroupNum"],
            page_size=self._config.split_metadata_size if self._config.enable_split_metadata else None,
        )
        if page is not None:
            configs = {name: configs[name] for name in page}
            forbidden = {name: topics for name, topics in forbidden.items() if name in configs}
        return request.response(
            ResponseCode.SUCCESS,
            ext_fields={"totalGroupNum": str(len(groups.configs))},
            body=await encoded(SubscriptionGroupWrapper(configs, forbidden, groups.data_version), len(configs)),
        )

    async def delete(self, request: Command, _: Connection) -> Command:
        fields = fields_of(request)
        group = fields["groupName"]
        if fields["cleanOffset"] or fields["removeOffset"]:
            check_not_of_service(group)
        self._groups.delete(group)
        # The second field name is that of releases before 5.0.
        if fields["cleanOffset"] or fields["removeOffset"]:
            self._offsets.remove_group(group)
            self._offsets.persist()
        if self._stats is not None and self._config.auto_delete_unused_stats:
            self._stats.forget_group(group)
        await self._writer.saved(SUBSCRIPTION_GROUPS)
        return request.response(ResponseCode.SUCCESS)

    def config(self, request: Command, connection: Connection) -> Command:
        """GET_SUBSCRIPTIONGROUP_CONFIG. As in RocketMQ the request creates the group, if auto-creation is
        enabled."""
        found = self._groups.find(fields_of(request)["group"], connection.remote_address)
        if found is None:
            raise RequestRefusedError("No group in this broker", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        return request.response(ResponseCode.SUCCESS, body=found.encode())

    async def forbid(self, request: Command, _: Connection) -> Command:
        """Read, and optionally change, the permission of a group to read a topic."""
        fields = fields_of(request)
        group, topic, readable = fields["group"], fields["topic"], fields["readable"]
        if readable is not None:
            problem = group_name_problem(group) or topic_name_problem(topic)
            if problem is not None:
                raise RequestRefusedError(problem, ResponseCode.INVALID_PARAMETER)
            self._groups.set_readable(group, topic, readable)
            await self._writer.saved(SUBSCRIPTION_GROUPS)
        answer = GroupForbidden(topic, group, not self._groups.is_forbidden(group, topic))
        return request.response(ResponseCode.SUCCESS, body=answer.encode(), remark="")


def _checked(config: SubscriptionGroupConfig, present: SubscriptionGroupConfig | None) -> SubscriptionGroupConfig:
    problem = group_name_problem(config.group_name)
    if problem is not None:
        raise RequestRefusedError(problem, ResponseCode.INVALID_PARAMETER)
    if config.retry_queue_nums > MAX_QUEUES:
        raise RequestRefusedError(
            f"retryQueueNums {config.retry_queue_nums} is more than {MAX_QUEUES}", ResponseCode.INVALID_PARAMETER
        )
    attributes = altered(GROUP_ATTRIBUTES, None if present is None else present.attributes, config.attributes)
    return dataclasses.replace(config, attributes=attributes)
