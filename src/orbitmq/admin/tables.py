"""Settings of topics and groups at a broker: one, or the whole table.

Tables come in pages; brokers before 5.3.4 send everything at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from orbitmq.admin.errors import RefusedError, refusal
from orbitmq.admin.session import LONG, decode
from orbitmq.protocol.bodies import (
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigAndQueueMapping,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.admin.session import AdminSession
    from orbitmq.protocol.bodies import Body

BodyT = TypeVar("BodyT", bound="Body")
ItemT = TypeVar("ItemT")

PAGE = 2000
"""Entries of a page: what Apache's brokers return at most."""

MAX_RESTARTS = 10
"""A table that changes while it is read is read again, this many times."""


async def all_topic_configs(session: AdminSession, address: str) -> dict[str, TopicConfig]:
    """The settings of all topics of a broker."""
    return await _whole_table(
        session,
        address,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        ("topicSeq", "maxTopicNum", "totalTopicNum"),
        TopicConfigAndMappingSerializeWrapper,
        lambda page: (page.topic_config_table, page.data_version),
    )


async def all_group_configs(session: AdminSession, address: str) -> dict[str, SubscriptionGroupConfig]:
    """The settings of all groups of a broker."""
    return await _whole_table(
        session,
        address,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        ("groupSeq", "maxGroupNum", "totalGroupNum"),
        SubscriptionGroupWrapper,
        lambda page: (page.subscription_group_table, page.data_version),
    )


async def topic_config(session: AdminSession, address: str, topic: str) -> TopicConfigAndQueueMapping | None:
    """The settings of a topic at one broker, or None. Of a broker before 5.0 it takes the whole table."""
    answer = await session.exchange(address, RequestCode.GET_TOPIC_CONFIG, {"topic": topic, "lo": True})
    if answer.code == ResponseCode.SUCCESS:
        return decode(TopicConfigAndQueueMapping, answer, address)
    if answer.code == ResponseCode.TOPIC_NOT_EXIST:
        return None
    if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise refusal(answer.code, answer.remark, address)
    found = (await all_topic_configs(session, address)).get(topic)
    return None if found is None else TopicConfigAndQueueMapping.from_json(found.to_json())


async def group_config(session: AdminSession, address: str, group: str) -> SubscriptionGroupConfig | None:
    """The settings of a group at one broker, or None.

    It reads the whole table: the request for one group creates it at brokers with ``autoCreateSubscriptionGroup``.
    """
    return (await all_group_configs(session, address)).get(group)


async def _whole_table(
    session: AdminSession,
    address: str,
    code: int,
    names: tuple[str, str, str],
    kind: type[BodyT],
    parts: Callable[[BodyT], tuple[dict[str, ItemT], DataVersion]],
) -> dict[str, ItemT]:
    sequence, limit, total_name = names
    for _ in range(MAX_RESTARTS):
        table: dict[str, ItemT] = {}
        version: DataVersion | None = None
        at = 0
        while True:
            fields = {
                sequence: at,
                "dataVersion": "" if version is None else version.encode().decode(),
                limit: PAGE,
            }
            answer = await session.call(address, code, fields, seconds=session.config.timeout * LONG)
            page, stamp = parts(decode(kind, answer, address))
            if version is not None and stamp != version:
                break
            version = stamp
            table.update(page)
            at += len(page)
            total = answer.ext_fields.get(total_name, "")
            if not total.isdecimal() or not page or at >= int(total):
                return table
    raise RefusedError(ResponseCode.SYSTEM_BUSY, "its table changed during every read: try again", address)
