"""Offset requests: query and commit of consumer offsets, and the bounds of queues.

Queries and commits are frequent, so their responses are prepared bytes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from orbitmq.broker.errors import check_not_of_service
from orbitmq.broker.time_slices import encoded, in_slices
from orbitmq.protocol.bodies import QueryCorrectionOffsetBody
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode, SerializeType
from orbitmq.protocol.command.fast_decode import query_offset_fields, update_offset_fields
from orbitmq.protocol.command.fields import INT64_MAX
from orbitmq.protocol.command.frame import FRAME_PREFIX
from orbitmq.protocol.command.header import EXT_FIELDS, FLAG, OPAQUE
from orbitmq.protocol.command.request_fields import ONLY_FORWARD
from orbitmq.protocol.message.flags import ONEWAY, RESPONSE
from orbitmq.protocol.versions import CURRENT_VERSION
from orbitmq.remoting.error_responses import remark_response
from orbitmq.remoting.processor import fields_of, handler_of
from orbitmq.store import Boundary
from orbitmq.store.consumequeue.consume_queue import FILLER_SIZE, ConsumeQueue

if TYPE_CHECKING:
    from orbitmq.broker.clients.registry import Clients
    from orbitmq.broker.runtime import BrokerRuntime, Metadata
    from orbitmq.protocol.command.command import Command
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Connection, Handler
    from orbitmq.store import MessageStore

NOT_FOUND = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
NOT_FOUND_AND_NOT_ZERO = "Not found, do not set to zero, maybe this group boot first"
WAS_RESET = "Offset has been previously reset"

_JSON = (
    b'{"code":0,"extFields":{%%b},"flag":1,"language":"JAVA","opaque":%%d,'
    b'"serializeTypeCurrentRPC":"JSON","version":%d}' % CURRENT_VERSION
)
JSON_PARTS = (
    *_JSON.replace(b"%b", b"").split(b"%d"),
    *_JSON.replace(b"%b", b'"offset":"%d"').split(b"%d"),
)
"""The text around the opaque of a response to a commit, and around offset and opaque of one to a query, in JSON."""

_BINARY = struct.Struct(">iIhBhiiII")
_BINARY_HEADER = _BINARY.size - FRAME_PREFIX.size
_BINARY_TYPE = int(SerializeType.ROCKETMQ) << 24
_JAVA = int(LanguageCode.JAVA)


class OffsetRequests:
    """The processor of offset requests."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        metadata: Metadata,
        clients: Clients,
    ) -> None:
        self._store = runtime.store
        self._writer = runtime.writer
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._offsets = metadata.offsets
        self._clients = clients

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: self.query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self.update,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: handler_of(self.search_by_time),
            RequestCode.GET_MAX_OFFSET: handler_of(self.max_offset),
            RequestCode.GET_MIN_OFFSET: handler_of(self.min_offset),
            RequestCode.GET_EARLIEST_MSG_STORETIME: handler_of(self.earliest_time),
            RequestCode.GET_ALL_CONSUMER_OFFSET: handler_of(self.all_offsets),
            RequestCode.QUERY_CORRECTION_OFFSET: handler_of(self.corrections),
            RequestCode.CLONE_GROUP_OFFSET: handler_of(self.clone),
        }

    # Offsets of a group

    def query(self, _: Connection, header: Header, __: bytes, serialize_type: int) -> bytes:
        """The committed offset. With QUERY_NOT_FOUND the client starts at its configured position."""
        group, topic, queue_id, set_zero = query_offset_fields(header[EXT_FIELDS])
        offset = self._offsets.query(group, topic, queue_id)
        if offset >= 0:
            return encode_offset_answer(serialize_type, header[OPAQUE], offset)
        if set_zero is False:
            return remark_response(header, serialize_type, ResponseCode.QUERY_NOT_FOUND, NOT_FOUND_AND_NOT_ZERO)
        # A new group reads all of a young topic, whatever its configuration; a queue with many messages it reads
        # from its configured position.
        if self._store.min_offset(topic, queue_id) <= 0 and begins_in_memory(self._store, topic, queue_id):
            return encode_offset_answer(serialize_type, header[OPAQUE], 0)
        return remark_response(header, serialize_type, ResponseCode.QUERY_NOT_FOUND, NOT_FOUND)

    def update(self, connection: Connection, header: Header, _: bytes, serialize_type: int) -> bytes:
        """A commit. Most are oneway; those of the Go client are not, and are answered."""
        group, topic, queue_id, offset = update_offset_fields(header[EXT_FIELDS])
        if group not in self._groups.configs:
            return remark_response(
                header, serialize_type, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!"
            )
        config = self._topics.configs.get(topic)
        if config is None:
            remark = f"Topic {topic} not exist!"
            return remark_response(header, serialize_type, ResponseCode.TOPIC_NOT_EXIST, remark)
        if not 0 <= queue_id < config.read_queue_nums and not self._is_known(group, topic, queue_id):
            remark = (
                f"queueId[{queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{config.read_queue_nums}] consumer:[{connection.remote_address}]"
            )
            return remark_response(header, serialize_type, ResponseCode.INVALID_PARAMETER, remark)
        if ONLY_FORWARD in header[EXT_FIELDS] and offset <= self._offsets.query(group, topic, queue_id):
            return b"" if header[FLAG] & ONEWAY else encode_committed_answer(serialize_type, header[OPAQUE])
        problem = self._offsets.problem(group, topic, queue_id, connection.remote_address)
        if problem is not None:
            return remark_response(header, serialize_type, ResponseCode.SYSTEM_ERROR, problem)
        if not self._offsets.commit(group, topic, queue_id, offset, connection.remote_address):
            return remark_response(header, serialize_type, ResponseCode.SUCCESS, WAS_RESET)
        return b"" if header[FLAG] & ONEWAY else encode_committed_answer(serialize_type, header[OPAQUE])

    def _is_known(self, group: str, topic: str, queue_id: int) -> bool:
        """True if the queue existed before the topic was shrunk: its offsets are still valid."""
        return (
            self._offsets.query(group, topic, queue_id) >= 0 or self._store.queues.find(topic, queue_id) is not None
        )

    # Bounds of a queue

    def search_by_time(self, request: Command, _: Connection) -> Command:
        fields = fields_of(request)
        # Anything but UPPER is LOWER, as in RocketMQ.
        is_upper = (fields["boundaryType"] or "").upper() == Boundary.UPPER.value
        boundary = Boundary.UPPER if is_upper else Boundary.LOWER
        offset = self._store.reader.offset_by_time(
            fields["topic"], fields["queueId"], fields["timestamp"], boundary
        )
        return _with_field(request, "offset", offset or 0)

    def max_offset(self, request: Command, _: Connection) -> Command:
        fields = fields_of(request)
        return _with_field(request, "offset", self._store.max_offset(fields["topic"], fields["queueId"]))

    def min_offset(self, request: Command, _: Connection) -> Command:
        fields = fields_of(request)
        answer = _with_field(request, "offset", self._min_offset(fields["topic"], fields["queueId"]))
        # RocketMQ sends an empty remark in this response.
        answer.remark = ""
        return answer

    def _min_offset(self, topic: str, queue_id: int) -> int:
        """The smallest offset of a queue; -1 for a BatchCQ queue that never had a message, as in RocketMQ."""
        store = self._store
        if topic in store.queues.batch_topics and store.max_offset(topic, queue_id) == 0:
            return -1
        return store.min_offset(topic, queue_id)

    def earliest_time(self, request: Command, _: Connection) -> Command:
        """The store time of the oldest message of a queue; -1 if there is none."""
        fields = fields_of(request)
        time = self._store.reader.earliest_time(fields["topic"], fields["queueId"])
        return _with_field(request, "timestamp", -1 if time is None else time)

    # Offsets of many groups

    async def all_offsets(self, request: Command, _: Connection) -> Command:
        """The whole table, for slaves and exports.

        In standard JSON, other than RocketMQ's own: slaves of RocketMQ 5.5 fail to skip ``pullOffsetTable`` if its
        queue ids are not quoted, and stop copying offsets.
        """
        body = await self._offsets.copy()
        data = await encoded(body, len(self._offsets), standard_json=True)
        return request.response(ResponseCode.SUCCESS, body=data)

    async def corrections(self, request: Command, _: Connection) -> Command:
        """The smallest offset of all groups by queue; the largest number where the group to compare is behind it.

        RocketMQ deletes the offsets of ``filterGroups``. Here they are only excluded.
        """
        fields = fields_of(request)
        topic = fields["topic"]
        left_out = set((fields["filterGroups"] or "").split(","))
        smallest: dict[int, int] = {}
        async for group in in_slices(self._offsets.groups_of(topic) - left_out):
            async for queue_id, offset in in_slices(self._offsets.of_group(group, topic).items()):
                if offset >= self._store.min_offset(topic, queue_id):
                    smallest[queue_id] = min(offset, smallest.get(queue_id, offset))
        async for queue_id, offset in in_slices(self._offsets.of_group(fields["compareGroup"], topic).items()):
            if smallest.get(queue_id, offset) > offset:
                smallest[queue_id] = INT64_MAX
        body = await encoded(QueryCorrectionOffsetBody(smallest), len(smallest))
        return request.response(ResponseCode.SUCCESS, body=body)

    async def clone(self, request: Command, _: Connection) -> Command:
        """Copy the offsets of a group to another one; topics that the source does not subscribe to are skipped."""
        fields = fields_of(request)
        source, target = fields["srcGroup"], fields["destGroup"]
        check_not_of_service(target)
        topic = (fields["topic"] or "").strip()
        async for name in in_slices((topic,) if topic else self._offsets.topics_of(source)):
            if name not in self._topics.configs:
                continue
            if not fields["offline"] and not is_subscribed(self._clients, source, name):
                continue
            self._offsets.clone(source, target, name)
        self._offsets.persist()
        await self._writer.saved()
        return request.response(ResponseCode.SUCCESS)


def is_subscribed(clients: Clients, group: str, topic: str) -> bool:
    """False if a group is online and does not subscribe to a topic."""
    online = clients.consumers.get(group)
    return online is None or not online.subscriptions or topic in online.subscriptions


def encode_offset_answer(serialize_type: int, opaque: int, offset: int) -> bytes:
    """A successful response with an offset, byte for byte as Java writes it."""
    text = b"%d" % offset
    if serialize_type:
        fields = b"\0\6offset\0\0\0%c%b" % (len(text), text)
        return _binary_success(opaque, len(fields)) + fields
    return _json_success(opaque, b'"offset":"%b"' % text)


def encode_committed_answer(serialize_type: int, opaque: int) -> bytes:
    """A successful response without fields, byte for byte as Java writes it."""
    return _binary_success(opaque, 0) if serialize_type else _json_success(opaque, b"")


def begins_in_memory(store: MessageStore, topic: str, queue_id: int) -> bool:
    """True if the first message ever of a queue is so young that it is still in memory."""
    queue = store.queues.find(topic, queue_id)
    if queue is None:
        return False
    if isinstance(queue, ConsumeQueue):
        unit = queue.unit(0)
        if unit is None or unit[1] == FILLER_SIZE:
            return False
        physical = unit[0]
    else:
        batch = queue.unit(0)
        if batch is None:
            return False
        physical = batch.physical_offset
    return store.log.committed - physical <= store.reader.memory_window


def _json_success(opaque: int, fields: bytes) -> bytes:
    header = _JSON % (fields, opaque)
    size = len(header)
    return FRAME_PREFIX.pack(size + 4, size) + header


def _binary_success(opaque: int, fields_size: int) -> bytes:
    size = _BINARY_HEADER + fields_size
    return _BINARY.pack(size + 4, _BINARY_TYPE | size, 0, _JAVA, CURRENT_VERSION, opaque, RESPONSE, 0, fields_size)


def _with_field(request: Command, name: str, value: int) -> Command:
    return request.response(ResponseCode.SUCCESS, ext_fields={name: str(value)})
