"""Requests of a slave for the tables of its master, which may be OrbitMQ's or Apache's, of any version from 4.9 on.

Topics and groups are requested in pages, with the version of the slave's copy: if the master's table still has that
version the response is an empty page. Masters before 5.3.4 do not know pages and send the whole table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from orbitmq.broker.time_slices import decoded
from orbitmq.protocol.bodies import (
    Body,
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    HARuntimeInfo,
    KVTable,
    MessageRequestModeSerializeWrapper,
    SubscriptionGroupWrapper,
    TimerMetricsSerializeWrapper,
    TopicConfigAndMappingSerializeWrapper,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.request_fields import ONLY_FORWARD
from orbitmq.protocol.errors import ProtocolError
from orbitmq.store.timer.checkpoint import TimerCheckpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orbitmq.protocol.bodies import DataVersion
    from orbitmq.remoting import RemotingClient

BodyT = TypeVar("BodyT", bound=Body)

PAGE = 2000
"""Entries of a page, RocketMQ's ``splitMetadataSize``."""

MAX_RESTARTS = 10
"""A table that changes while its pages are read is read again, this many times."""

PAGE_SECONDS = 30.0
TABLE_SECONDS = 3.0
"""Timeouts of RocketMQ's slaves: for a page of topics or groups, and for any other table."""


class MasterRefusedError(Exception):
    """The master responded with an error, or there is no master."""

    def __init__(self, what: str, code: int = ResponseCode.SYSTEM_ERROR) -> None:
        super().__init__(what)
        self.code = code


class MasterClient:
    """Requests to one master. All of them raise MasterRefusedError, RemotingError and ProtocolError."""

    def __init__(self, address: str, client: RemotingClient) -> None:
        self.address = address
        self._client = client

    # Tables with a version

    async def topics(self, known: DataVersion | None, count: int) -> TopicConfigAndMappingSerializeWrapper | None:
        """All topics; None if the table has the known version. ``count`` is the number of topics known."""
        return await self._versioned(
            RequestCode.GET_ALL_TOPIC_CONFIG,
            ("topicSeq", "maxTopicNum", "totalTopicNum"),
            TopicConfigAndMappingSerializeWrapper,
            _add_topics,
            known,
            count,
        )

    async def groups(self, known: DataVersion | None, count: int) -> SubscriptionGroupWrapper | None:
        """All subscription groups; None if the table has the known version."""
        return await self._versioned(
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            ("groupSeq", "maxGroupNum", "totalGroupNum"),
            SubscriptionGroupWrapper,
            _add_groups,
            known,
            count,
        )

    async def _versioned(
        self,
        code: RequestCode,
        names: tuple[str, str, str],
        shape: type[BodyT],
        add: Callable[[BodyT, BodyT], tuple[DataVersion, int]],
        known: DataVersion | None,
        count: int,
    ) -> BodyT | None:
        if known is not None:
            page, _ = await self._page(code, names, shape, count, known)
            whole = shape()
            if add(whole, page)[0] == known:
                return None
        for _ in range(MAX_RESTARTS):
            whole, at, version = shape(), 0, None
            while True:
                page, total = await self._page(code, names, shape, at, version)
                stamp, size = add(whole, page)
                if version is not None and stamp != version:
                    break
                version, at = stamp, at + size
                if not size or at >= total:
                    return whole
        raise MasterRefusedError(f"{code.name}: the table of {self.address} keeps changing")

    async def _page(
        self,
        code: RequestCode,
        names: tuple[str, str, str],
        shape: type[BodyT],
        at: int,
        version: DataVersion | None,
    ) -> tuple[BodyT, int]:
        """A page, and the number of entries of the whole table: 0 from a master that does not know pages."""
        sequence, limit, total_name = names
        stamp = "" if version is None else version.encode().decode()
        fields = {sequence: str(at), "dataVersion": stamp, limit: str(PAGE)}
        answer = await self._ask(code, fields, PAGE_SECONDS)
        total = answer.ext_fields.get(total_name, "")
        return await decoded(shape, answer.body or b"{}"), int(total) if total.isdecimal() else 0

    # Other tables

    async def consumer_offsets(self) -> tuple[ConsumerOffsetSerializeWrapper, int]:
        """The consumer offsets of all groups, and the bytes of the response."""
        answer = await self._ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        body = answer.body or b"{}"
        return await decoded(ConsumerOffsetSerializeWrapper, body), len(body)

    async def delay_offsets(self) -> DelayOffsetSerializeWrapper:
        answer = await self._ask(RequestCode.GET_ALL_DELAY_OFFSET)
        return DelayOffsetSerializeWrapper.decode(answer.body or b"{}")

    async def request_modes(self) -> MessageRequestModeSerializeWrapper:
        answer = await self._ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        return await decoded(MessageRequestModeSerializeWrapper, answer.body or b"{}")

    async def timer_metrics(self) -> TimerMetricsSerializeWrapper:
        answer = await self._ask(RequestCode.GET_TIMER_METRICS)
        return await decoded(TimerMetricsSerializeWrapper, answer.body or b"{}")

    async def timer_checkpoint(self) -> TimerCheckpoint:
        answer = await self._ask(RequestCode.GET_TIMER_CHECK_POINT)
        try:
            return TimerCheckpoint.decode(answer.body or b"")
        except ValueError as error:
            raise ProtocolError(f"timer checkpoint of {self.address}: {error}") from None

    async def log_end(self) -> int:
        """The end of its commit log."""
        try:
            answer = await self._ask(RequestCode.GET_BROKER_HA_STATUS)
            info = HARuntimeInfo.decode(answer.body or b"{}")
            # A slave that acts for its master answers, too.
            return info.master_commit_log_max_offset if info.master else info.ha_client_runtime_info.max_offset
        except MasterRefusedError as error:
            if error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise
        # Masters before 5.0. Its statistics of disks make this request much more expensive.
        answer = await self._ask(RequestCode.GET_BROKER_RUNTIME_INFO)
        text = KVTable.decode(answer.body or b"{}").table.get("commitLogMaxOffset", "")
        if not text.isdecimal():
            raise ProtocolError(f"runtime information of {self.address} has commitLogMaxOffset {text[:40]!r}")
        return int(text)

    # Consumer offsets for the master

    async def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        """The committed offset of a group at the master; -1 if there is none."""
        fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "setZeroIfNotFound": "false"}
        try:
            answer = await self._ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)
        except MasterRefusedError as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
            return -1
        text = answer.ext_fields.get("offset", "")
        if not text.isdecimal():
            raise ProtocolError(f"consumer offset {text[:40]!r} of {self.address}")
        return int(text)

    async def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commit an offset of a group at the master, which ignores it if it would move the group back."""
        fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "commitOffset": str(offset)}
        await self._ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**fields, ONLY_FORWARD: "true"})

    async def _ask(
        self, code: RequestCode, fields: Mapping[str, str] | None = None, seconds: float = TABLE_SECONDS
    ) -> Command:
        answer = await self._client.call(self.address, Command(code, ext_fields=dict(fields or {})), seconds)
        if answer.code != ResponseCode.SUCCESS:
            reason = (
                f"{code.name} refused by {self.address} with code {answer.code}: {answer.remark or 'no reason'}"
            )
            raise MasterRefusedError(reason, answer.code)
        return answer


def _add_topics(
    whole: TopicConfigAndMappingSerializeWrapper, page: TopicConfigAndMappingSerializeWrapper
) -> tuple[DataVersion, int]:
    """Add a page to the whole; returns the version of the page and its size."""
    whole.topic_config_table.update(page.topic_config_table)
    whole.data_version = page.data_version
    return page.data_version, len(page.topic_config_table)


def _add_groups(whole: SubscriptionGroupWrapper, page: SubscriptionGroupWrapper) -> tuple[DataVersion, int]:
    whole.subscription_group_table.update(page.subscription_group_table)
    whole.forbidden_table.update(page.forbidden_table)
    whole.data_version = page.data_version
    return page.data_version, len(page.subscription_group_table)
