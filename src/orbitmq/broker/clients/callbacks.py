"""Requests from the broker to its clients: its own notifications, and relays for admin tools."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.time_slices import encoded
from orbitmq.platform.threads import in_thread
from orbitmq.protocol.bodies import (
    GetConsumerStatusBody,
    MessageQueueForC,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.fields import decode_fields, encode_fields
from orbitmq.protocol.command.request_fields import REQUEST_FIELDS
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.flags import ONEWAY
from orbitmq.protocol.versions import version_name
from orbitmq.remoting.errors import CallTimeoutError, RemotingError, one_sentence
from orbitmq.remoting.processor import RequestRefusedError, handler_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orbitmq.broker.clients.consumer_group import ClientChannel, ConsumerGroup
    from orbitmq.broker.clients.registry import Clients
    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.broker.metadata.subscription_groups import GroupTable
    from orbitmq.broker.metadata.topics import TopicTable
    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.protocol.command.fields import FieldValue
    from orbitmq.remoting import Connection, Handler
    from orbitmq.store import MessageStore

log = logging.getLogger("orbitmq.broker")

RELAY_SECONDS = 10.0
STATUS_SECONDS = 5.0
"""Seconds that RocketMQ's broker waits for a client; the tools wait a little longer for the broker."""

TAKES_OFFSETS = 28
"""3.0.7-SNAPSHOT: the first client version that supports reading and resetting its offsets."""
TAKES_RELAYED = 62
"""3.1.8-SNAPSHOT: the first client version that reports its running info and consumes a message on request."""


def notify_ids_changed(connections: Iterable[Connection], group: str) -> None:
    """Notify members of a group that its members or topics have changed (NOTIFY_CONSUMER_IDS_CHANGED, 40).

    All of them get the same bytes, because a group may have thousands of members: a oneway request needs no opaque
    of its own.
    """
    notice = b""
    for connection in connections:
        notice = notice or _notice(group, connection.next_opaque())
        connection.send(notice)


def _notice(group: str, opaque: int) -> bytes:
    code = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    return Command(code, opaque, ONEWAY, ext_fields={"consumerGroup": group}).encode()


class MembershipNotices:
    """Pending notifications that the members or topics of a group have changed (40).

    The member whose heartbeat caused the change is notified before the response to its heartbeat, as clients
    expect. The others are notified at the end of the loop iteration: when a whole group reconnects after a restart,
    each member gets one notification for all changes of an iteration.
    """

    __slots__ = ("_pending",)

    def __init__(self) -> None:
        self._pending: dict[str, tuple[ConsumerGroup, Connection | None]] = {}
        """By group name, with the one member that was notified already."""

    def changed(self, group: ConsumerGroup, by: Connection | None = None) -> None:
        """Schedule notifications for a group that the heartbeat of member ``by`` has changed."""
        if by is not None and by in group.members:
            notify_ids_changed([by], group.name)
        if not self._pending:
            asyncio.get_running_loop().call_soon(self._tell_others)
        self._pending[group.name] = group, by

    def _tell_others(self) -> None:
        pending, self._pending = self._pending, {}
        for group, knows in pending.values():
            notify_ids_changed([member for member in group.members if member is not knows], group.name)


async def reset_client_offset(
    clients: Clients, group: str, topic: str, timestamp: int, offsets: Mapping[MessageQueue, int]
) -> None:
    """Reset the offsets of all members of a group (RESET_CONSUMER_CLIENT_OFFSET, 220). Raises
    RequestRefusedError."""
    found = clients.consumers.get(group)
    if found is None:
        raise RequestRefusedError(
            f"Consumer not online, so can not reset offset, Group: {group} Topic: {topic} Timestamp: {timestamp}",
            ResponseCode.CONSUMER_NOT_ONLINE,
        )
    members = list(found.members.values())
    for member in members:
        _check_takes_offsets(member)
    reset_fields: dict[str, FieldValue] = {"topic": topic, "group": group, "queueId": -1, "timestamp": timestamp}
    fields = encode_fields(
        {**reset_fields, "isForce": False}, REQUEST_FIELDS[RequestCode.RESET_CONSUMER_CLIENT_OFFSET]
    )
    body = await encoded(ResetOffsetBody(dict(offsets)), len(offsets))
    body_for_cpp = b""
    if any(member.language is LanguageCode.CPP for member in members):
        body_for_cpp = await in_thread(lambda: _body_for_cpp(offsets))
    for member in members:
        # RocketMQ's broker decides by the language of the tool, but the C++ client is the one that cannot read the
        # other.
        is_cpp = member.language is LanguageCode.CPP
        _tell(
            member.connection,
            Command(
                RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                ext_fields=dict(fields),
                body=body_for_cpp if is_cpp else body,
            ),
        )


async def client_status(clients: Clients, group: str, topic: str, client_id: str = "") -> GetConsumerStatusBody:
    """Offsets of a topic in the members of a group, or in one of them (GET_CONSUMER_STATUS_FROM_CLIENT, 221).

    Members that do not respond are left out. Raises RequestRefusedError.
    """
    found = clients.consumers.get(group)
    if found is None:
        raise RequestRefusedError(f"No Any Consumer online in the consumer group: [{group}]")
    members = list(found.members.values())
    for member in members:
        _check_takes_offsets(member)
    selected = [member for member in members if not client_id.strip() or member.client_id == client_id]
    tables = await asyncio.gather(*[_status_of(member, group, topic) for member in selected])
    return GetConsumerStatusBody(
        consumer_table={
            member.client_id: table for member, table in zip(selected, tables, strict=True) if table is not None
        }
    )


class RelayRequests:
    """Admin requests that the broker relays to one of its clients."""

    def __init__(
        self, config: BrokerConfig, clients: Clients, topics: TopicTable, groups: GroupTable, store: MessageStore
    ) -> None:
        self._config = config
        self._clients = clients
        self._topics = topics
        self._groups = groups
        self._store = store

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_CONSUMER_RUNNING_INFO: handler_of(self.running_info),
            RequestCode.CONSUME_MESSAGE_DIRECTLY: handler_of(self.consume_directly),
        }

    async def running_info(self, request: Command, _: Connection) -> Command:
        fields = decode_fields(request.ext_fields, REQUEST_FIELDS[request.code])
        return await self._relay(request, str(fields["consumerGroup"]), str(fields["clientId"]), request.body)

    async def consume_directly(self, request: Command, _: Connection) -> Command:
        """Relay CONSUME_MESSAGE_DIRECTLY, with the fields that the client cannot know."""
        fields = decode_fields(request.ext_fields, REQUEST_FIELDS[request.code])
        group = str(fields["consumerGroup"])
        request.ext_fields["brokerName"] = self._config.broker_name
        topic = self._topics.configs.get(str(fields["topic"]))
        if topic is not None:
            request.ext_fields["topicSysFlag"] = str(topic.topic_sys_flag)
        config = self._groups.configs.get(group)
        if config is not None:
            request.ext_fields["groupSysFlag"] = str(config.group_sys_flag)
        return await self._relay(request, group, fields["clientId"], self._message(fields["msgId"]))

    def _message(self, message_id: object) -> bytes:
        if not isinstance(message_id, str):
            raise RequestRefusedError("field msgId is missing")
        record = self._store.reader.by_message_id(message_id)
        if record is None:
            raise RequestRefusedError(f"message {message_id} not found")
        return bytes(record)

    async def _relay(self, request: Command, group: str, client_id: object, body: bytes | None) -> Command:
        found = self._clients.consumers.get(group)
        member = None if found is None or not isinstance(client_id, str) else found.member(client_id)
        if member is None:
            asked_for = "null" if client_id is None else client_id
            raise RequestRefusedError(f"The Consumer <{group}> <{asked_for}> not online")
        if member.version < TAKES_RELAYED:
            raise RequestRefusedError(
                f"The Consumer <{client_id}> Version <{_version_of(member)}> too low to finish, "
                "please upgrade it to V3_1_8_SNAPSHOT"
            )
        try:
            relayed = Command(request.code, ext_fields=request.ext_fields, body=body)
            answer = await member.connection.call(relayed, RELAY_SECONDS)
        except CallTimeoutError as error:
            raise RequestRefusedError(
                f"consumer <{group}> <{client_id}> Timeout: {error}", ResponseCode.CONSUME_MSG_TIMEOUT
            ) from error
        except RemotingError as error:
            raise RequestRefusedError(
                f"invoke consumer <{group}> <{client_id}> Exception: {one_sentence(error)}"
            ) from error
        return request.response(answer.code, ext_fields=answer.ext_fields, body=answer.body, remark=answer.remark)


def _tell(connection: Connection, command: Command) -> None:
    try:
        connection.call_oneway(command)
    except RemotingError as error:
        # The connection is being closed or its peer does not read; either way its group is notified of the leave.
        log.info("clients: notification not sent to %s: %s", connection.remote_address, error)


async def _status_of(member: ClientChannel, group: str, topic: str) -> dict[MessageQueue, int] | None:
    status_request = Command(
        RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ext_fields={"topic": topic, "group": group}
    )
    try:
        answer = await member.connection.call(status_request, STATUS_SECONDS)
        if answer.code != ResponseCode.SUCCESS or answer.body is None:
            return None
        return GetConsumerStatusBody.decode(answer.body).message_queue_table
    except (RemotingError, ProtocolError) as error:
        log.info("clients: %s did not report its offsets: %s", member.client_id, one_sentence(error))
        return None


def _check_takes_offsets(member: ClientChannel) -> None:
    if member.version < TAKES_OFFSETS:
        raise RequestRefusedError(
            f"the client does not support this feature. version={_version_of(member)}", ResponseCode.SYSTEM_ERROR
        )


def _version_of(member: ClientChannel) -> str:
    return version_name(max(member.version, 0))


def _body_for_cpp(offsets: Mapping[MessageQueue, int]) -> bytes:
    return ResetOffsetBodyForC(
        [
            MessageQueueForC(queue.topic, queue.broker_name, queue.queue_id, offset)
            for queue, offset in offsets.items()
        ]
    ).encode()
