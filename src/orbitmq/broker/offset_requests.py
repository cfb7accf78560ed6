"""What clients and tools ask about offsets: how far a group has come, where a queue begins and ends.

Asking for and committing a group's offset comes in numbers; both answers are prepared bytes. The rest is rare.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from orbitmq.protocol.bodies import QueryCorrectionOffsetBody
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode, SerializeType
from orbitmq.protocol.command import Command
from orbitmq.protocol.fields import INT64_MAX
from orbitmq.protocol.flags import ONEWAY, RESPONSE
from orbitmq.protocol.hot import query_offset_fields, update_offset_fields
from orbitmq.protocol.versions import CURRENT_VERSION
from orbitmq.remoting.processing import fields_of, handler_of
from orbitmq.store import Boundary
from orbitmq.store.consume_queue import FILLER_SIZE, ConsumeQueue

if TYPE_CHECKING:
    from orbitmq.broker.clients import Clients
    from orbitmq.broker.config_writer import ConfigWriter
    from orbitmq.broker.groups import GroupTable
    from orbitmq.broker.offsets import OffsetTable
    from orbitmq.broker.topics import TopicTable
    from orbitmq.protocol.header import Header
    from orbitmq.remoting import Connection, Handler
    from orbitmq.store import MessageStore

NOT_FOUND = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
NOT_FOUND_AND_NOT_ZERO = "Not found, do not set to zero, maybe this group boot first"
WAS_RESET = "Offset has been previously reset"

_JSON_PREFIX = struct.Struct(">iI")
_JSON = (
    b'{"code":0,"extFields":{%%b},"flag":1,"language":"JAVA","opaque":%%d,'
    b'"serializeTypeCurrentRPC":"JSON","version":%d}' % CURRENT_VERSION
)
_BINARY = struct.Struct(">iIhBhiiII")
_BINARY_HEADER = _BINARY.size - _JSON_PREFIX.size
_BINARY_TYPE = int(SerializeType.ROCKETMQ) << 24
_JAVA = int(LanguageCode.JAVA)


class OffsetRequests:
    """Processors for the offsets of groups and queues."""

    def __init__(
        self,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        clients: Clients,
        offsets: OffsetTable,
        writer: ConfigWriter,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._clients = clients
        self._offsets = offsets
        self._writer = writer

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

    # Of a group in a queue

    def query(self, _: Connection, header: Header, __: bytes, serialize_type: int) -> bytes:
        """How far a group has come. QUERY_NOT_FOUND makes the client start where its configuration says."""
        group, topic, queue_id, set_zero = query_offset_fields(header[6])
        offset = self._offsets.query(group, topic, queue_id)
        if offset >= 0:
            return encode_offset_answer(serialize_type, header[1], offset)
        if set_zero is False:
            return _remark_answer(header, serialize_type, ResponseCode.QUERY_NOT_FOUND, NOT_FOUND_AND_NOT_ZERO)
        # A new group of a young topic gets all of it, however it is configured; of a queue with much in it only
        # what its configuration says.
        if self._store.min_offset(topic, queue_id) <= 0 and begins_in_memory(self._store, topic, queue_id):
            return encode_offset_answer(serialize_type, header[1], 0)
        return _remark_answer(header, serialize_type, ResponseCode.QUERY_NOT_FOUND, NOT_FOUND)

    def update(self, connection: Connection, header: Header, _: bytes, serialize_type: int) -> bytes:
        """A commit. Most come oneway; the Go client's do not say so, and are answered."""
        group, topic, queue_id, offset = update_offset_fields(header[6])
        if group not in self._groups.configs:
            return _remark_answer(
                header, serialize_type, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"Group {group} not exist!"
            )
        config = self._topics.configs.get(topic)
        if config is None:
            return _remark_answer(header, serialize_type, ResponseCode.TOPIC_NOT_EXIST, f"Topic {topic} not exist!")
        if not 0 <= queue_id < config.read_queue_nums and not self._is_known(group, topic, queue_id):
            remark = (
                f"queueId[{queue_id}] is illegal, topic:[{topic}] "
                f"topicConfig.readQueueNums:[{config.read_queue_nums}] consumer:[{connection.remote_address}]"
            )
            return _remark_answer(header, serialize_type, ResponseCode.INVALID_PARAMETER, remark)
        if not self._offsets.commit(group, topic, queue_id, offset, connection.remote_address):
            return _remark_answer(header, serialize_type, ResponseCode.SUCCESS, WAS_RESET)
        return b"" if header[2] & ONEWAY else encode_committed_answer(serialize_type, header[1])

    def _is_known(self, group: str, topic: str, queue_id: int) -> bool:
        """Whether there was such a queue before the topic was given fewer: what was consumed there still counts."""
        return (
            self._offsets.query(group, topic, queue_id) >= 0 or self._store.queues.find(topic, queue_id) is not None
        )

    # Of a queue

    def search_by_time(self, request: Command, _: Connection) -> Command:
        fields = fields_of(request)
        # Whatever is not UPPER is LOWER, as for RocketMQ.
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
        answer = _with_field(request, "offset", self._store.min_offset(fields["topic"], fields["queueId"]))
        # This one answer of RocketMQ has a remark, and nothing in it.
        answer.remark = ""
        return answer

    def earliest_time(self, request: Command, _: Connection) -> Command:
        """When the oldest message of a queue was stored; -1 if there is none."""
        fields = fields_of(request)
        time = self._store.reader.earliest_time(fields["topic"], fields["queueId"])
        return _with_field(request, "timestamp", -1 if time is None else time)

    # Of many groups

    def all_offsets(self, request: Command, _: Connection) -> Command:
        """The whole table, for slaves and exports."""
        return request.response(ResponseCode.SUCCESS, body=self._offsets.as_body().encode())

    def corrections(self, request: Command, _: Connection) -> Command:
        """The smallest offset of all groups by queue; the largest number where the group to compare is behind it.

        RocketMQ deletes the offsets of the groups it is told to leave out. Here they are left out.
        """
        fields = fields_of(request)
        topic = fields["topic"]
        left_out = set((fields["filterGroups"] or "").split(","))
        smallest: dict[int, int] = {}
        for group in self._offsets.groups_of(topic) - left_out:
            for queue_id, offset in self._offsets.of_group(group, topic).items():
                if offset >= self._store.min_offset(topic, queue_id):
                    smallest[queue_id] = min(offset, smallest.get(queue_id, offset))
        for queue_id, offset in self._offsets.of_group(fields["compareGroup"], topic).items():
            if smallest.get(queue_id, offset) > offset:
                smallest[queue_id] = INT64_MAX
        return request.response(ResponseCode.SUCCESS, body=QueryCorrectionOffsetBody(smallest).encode())

    async def clone(self, request: Command, _: Connection) -> Command:
        """Put a group where another one is; topics that the other one does not subscribe to are passed over."""
        fields = fields_of(request)
        source, target = fields["srcGroup"], fields["destGroup"]
        topic = (fields["topic"] or "").strip()
        for name in (topic,) if topic else self._offsets.topics_of(source):
            if name not in self._topics.configs:
                continue
            if not fields["offline"] and not is_subscribed(self._clients, source, name):
                continue
            self._offsets.clone(source, target, name)
        self._offsets.persist()
        await self._writer.saved()
        return request.response(ResponseCode.SUCCESS)


def is_subscribed(clients: Clients, group: str, topic: str) -> bool:
    """Whether a group that is online subscribes to a topic; of one that is not, nothing else is known."""
    online = clients.consumers.get(group)
    return online is None or not online.subscriptions or topic in online.subscriptions


def encode_offset_answer(serialize_type: int, opaque: int, offset: int) -> bytes:
    """A successful answer with an offset, byte for byte as Java writes it."""
    text = b"%d" % offset
    if serialize_type:
        fields = b"\0\6offset\0\0\0%c%b" % (len(text), text)
        return _binary_success(opaque, len(fields)) + fields
    return _json_success(opaque, b'"offset":"%b"' % text)


def encode_committed_answer(serialize_type: int, opaque: int) -> bytes:
    """A successful answer that says nothing else, byte for byte as Java writes it."""
    return _binary_success(opaque, 0) if serialize_type else _json_success(opaque, b"")


def begins_in_memory(store: MessageStore, topic: str, queue_id: int) -> bool:
    """Whether the first message ever of a queue is so young that it is still in memory."""
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
    return _JSON_PREFIX.pack(size + 4, size) + header


def _binary_success(opaque: int, fields_size: int) -> bytes:
    size = _BINARY_HEADER + fields_size
    return _BINARY.pack(size + 4, _BINARY_TYPE | size, 0, _JAVA, CURRENT_VERSION, opaque, RESPONSE, 0, fields_size)


def _remark_answer(header: Header, serialize_type: int, code: int, remark: str) -> bytes:
    return Command(
        code=code, opaque=header[1], flag=RESPONSE, remark=remark, serialize_type=SerializeType(serialize_type)
    ).encode()


def _with_field(request: Command, name: str, value: int) -> Command:
    return request.response(ResponseCode.SUCCESS, ext_fields={name: str(value)})
