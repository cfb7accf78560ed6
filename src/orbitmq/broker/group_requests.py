"""What tools and proxies ask about consumer groups: to create, change, delete, forbid and show them."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.broker.attributes import GROUP_ATTRIBUTES, altered
from orbitmq.broker.groups import group_name_problem
from orbitmq.broker.table_versions import page_of
from orbitmq.broker.topics import MAX_QUEUES, topic_name_problem
from orbitmq.protocol.bodies import (
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
    SubscriptionGroupWrapper,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.remoting.processing import RequestRefusedError, fields_of, handler_of

if TYPE_CHECKING:
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.config_writer import ConfigWriter
    from orbitmq.broker.groups import GroupTable
    from orbitmq.broker.offsets import OffsetTable
    from orbitmq.broker.stats import BrokerStats
    from orbitmq.protocol.command import Command
    from orbitmq.remoting import Connection, Handler


class GroupRequests:
    """Processors for requests about groups. What changes something is answered when that is on the disk."""

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
        await self._put(SubscriptionGroupList.decode(request.body or b"{}").group_config_list)
        return request.response(ResponseCode.SUCCESS)

    async def _put(self, wanted: list[SubscriptionGroupConfig]) -> None:
        """All of them or, if one is not right, none."""
        # The same group twice: the second is a change of the first.
        result: dict[str, SubscriptionGroupConfig] = {}
        for config in wanted:
            present = result.get(config.group_name) or self._groups.configs.get(config.group_name)
            result[config.group_name] = _checked(config, present)
        self._groups.check_room(sum(name not in self._groups.configs for name in result))
        if result:
            self._groups.update(*result.values())
            await self._writer.saved()

    def all_configs(self, request: Command, _: Connection) -> Command:
        fields = fields_of(request)
        groups = self._groups
        configs, forbidden = groups.configs, groups.forbidden_table
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
            body=SubscriptionGroupWrapper(configs, forbidden, groups.data_version).encode(),
        )

    async def delete(self, request: Command, _: Connection) -> Command:
        fields = fields_of(request)
        group = fields["groupName"]
        self._groups.delete(group)
        # The second name is that of releases before 5.0.
        if fields["cleanOffset"] or fields["removeOffset"]:
            self._offsets.remove_group(group)
            self._offsets.persist()
        if self._stats is not None and self._config.auto_delete_unused_stats:
            self._stats.forget_group(group)
        await self._writer.saved()
        return request.response(ResponseCode.SUCCESS)

    def config(self, request: Command, _: Connection) -> Command:
        """A group's settings. As in RocketMQ, asking for a group makes it, if groups make themselves here."""
        found = self._groups.find(fields_of(request)["group"])
        if found is None:
            raise RequestRefusedError("No group in this broker", ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST)
        return request.response(ResponseCode.SUCCESS, body=found.encode())

    async def forbid(self, request: Command, _: Connection) -> Command:
        """Whether a group may read a topic, after saying so if the request does."""
        fields = fields_of(request)
        group, topic, readable = fields["group"], fields["topic"], fields["readable"]
        if readable is not None:
            problem = group_name_problem(group) or topic_name_problem(topic)
            if problem is not None:
                raise RequestRefusedError(problem, ResponseCode.INVALID_PARAMETER)
            self._groups.set_readable(group, topic, readable)
            await self._writer.saved()
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
