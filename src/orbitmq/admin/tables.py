"""Settings of topics and groups at a broker: one, or the whole table.

Tables come in pages; brokers before 5.3.4 send everything at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from orbitmq.admin.errors import RefusedError, refusal
from orbitmq.admin.session import LONG, decode, unreadable
from orbitmq.protocol.bodies import (
    DataVersion,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigAndQueueMapping,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fastjson import loads

if TYPE_CHECKING:
    from orbitmq.admin.session import AdminSession
    from orbitmq.protocol.bodies import Body
    from orbitmq.protocol.command.command import Command

ItemT = TypeVar("ItemT", bound="Body")

PAGE = 2000
"""Entries of a page: what Apache's brokers return at most."""

MAX_RESTARTS = 10
"""A table that changes while it is read is read again, this many times."""


class KnownSettings(Generic[ItemT]):
    """Settings that were decoded before, by name: most are the same at all brokers, and are decoded once."""

    def __init__(self, kind: type[ItemT], *, only: str = "") -> None:
        """``only``: the one name that is wanted; the other settings of a table are not decoded."""
        self._kind = kind
        self._only = only
        self._found: dict[str, tuple[Any, ItemT]] = {}

    def page(self, entries: dict[Any, Any]) -> dict[str, ItemT]:
        """The wanted settings of a part of a table. Raises ProtocolError."""
        if self._only:
            entries = {self._only: entries.get(self._only)}
        return {str(name): self.of(name, entry) for name, entry in entries.items() if entry is not None}

    def of(self, name: str, plain: Any) -> ItemT:
        """The typed form of settings, shared by all brokers that have the same. Raises ProtocolError."""
        before = self._found.get(name)
        if before is not None and before[0] == plain:
            return before[1]
        item = self._kind.from_json(plain)
        self._found[name] = (plain, item)
        return item


async def all_topic_configs(
    session: AdminSession, address: str, known: KnownSettings[TopicConfig] | None = None
) -> dict[str, TopicConfig]:
    """The settings of all topics of a broker. With ``known`` equal settings of brokers are one object."""
    return await _whole_table(
        session,
        address,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        ("topicSeq", "maxTopicNum", "totalTopicNum"),
        "topicConfigTable",
        KnownSettings(TopicConfig) if known is None else known,
    )


async def all_group_configs(
    session: AdminSession, address: str, known: KnownSettings[SubscriptionGroupConfig] | None = None
) -> dict[str, SubscriptionGroupConfig]:
    """The settings of all groups of a broker. With ``known`` equal settings of brokers are one object."""
    return await _whole_table(
        session,
        address,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        ("groupSeq", "maxGroupNum", "totalGroupNum"),
        "subscriptionGroupTable",
        KnownSettings(SubscriptionGroupConfig) if known is None else known,
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
    return (await all_group_configs(session, address, KnownSettings(SubscriptionGroupConfig, only=group))).get(
        group
    )


async def _whole_table(
    session: AdminSession,
    address: str,
    code: int,
    names: tuple[str, str, str],
    table_name: str,
    known: KnownSettings[ItemT],
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
            page, count, stamp = _page(answer, address, table_name, known)
            if version is not None and stamp != version:
                break
            version = stamp
            table.update(page)
            at += count
            total = answer.ext_fields.get(total_name, "")
            if not total.isdecimal() or not count or at >= int(total):
                return table
    raise RefusedError(ResponseCode.SYSTEM_BUSY, "its table changed during every read: try again", address)


def _page(
    answer: Command, address: str, table_name: str, known: KnownSettings[ItemT]
) -> tuple[dict[str, ItemT], int, DataVersion]:
    """The wanted part of a page, the number of its entries, and the table's version. Raises RefusedError."""
    try:
        plain = loads(answer.body or b"{}")
        entries = plain.get(table_name) or {} if type(plain) is dict else None
        if type(entries) is not dict:
            raise ProtocolError(f"expected an object with {table_name}")
        return known.page(entries), len(entries), DataVersion.from_json(plain.get("dataVersion") or {})
    except ProtocolError as error:
        raise unreadable(error, address) from error
