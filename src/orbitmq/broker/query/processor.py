"""Look-ups: messages by key and by offset, and the units of a consume queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orbitmq.broker.time_slices import encoded, in_slices
from orbitmq.protocol.bodies import ConsumeQueueData, QueryConsumeQueueResponseBody
from orbitmq.protocol.codes import RequestCode, ResponseCode, SerializeType
from orbitmq.protocol.command.binary_header import encode_binary_header
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.frame import frame_prefix
from orbitmq.protocol.command.json_header import encode_json_header
from orbitmq.protocol.fastjson import dumps
from orbitmq.remoting.processor import RequestRefusedError, fields_of, handler_of
from orbitmq.store.consumequeue.consume_queue import UNIT, ConsumeQueue
from orbitmq.store.consumequeue.ext import is_ext_address, read_ext

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.broker.clients.consumer_filters import ConsumerFilters
    from orbitmq.broker.clients.registry import Clients
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Answer, Connection, Handler
    from orbitmq.remoting.gather_write import Buffer
    from orbitmq.store import MessageStore
    from orbitmq.store.consumequeue.ext import ExtUnit
    from orbitmq.store.consumequeue.table import Queue

MAX_ANSWER_BYTES = 16 * 1024 * 1024 - 4096
"""Clients accept frames of up to 16 MiB; of more messages with one key the newest are returned."""

MAX_UNITS = 10_000
"""Units of a consume queue in one response, some 700 KB of text."""

UNIQUE_KEY_TYPE = "U"
KEY_TYPE = "K"
NOT_SET = "not set any response code"
"""RocketMQ's remark on a successful response to QUERY_CONSUME_QUEUE."""


class QueryRequests:
    """QUERY_MESSAGE, VIEW_MESSAGE_BY_ID and QUERY_CONSUME_QUEUE."""

    def __init__(self, store: MessageStore, clients: Clients, filters: ConsumerFilters) -> None:
        self._store = store
        self._clients = clients
        self._filters = filters

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_MESSAGE: self.by_key,
            RequestCode.VIEW_MESSAGE_BY_ID: self.by_offset,
            RequestCode.QUERY_CONSUME_QUEUE: handler_of(self.consume_queue),
        }

    def by_key(self, _: Connection, header: Header, body: bytes, serialize_type: int) -> Answer:
        """Messages with a key, a unique key or a tag, oldest first.

        ``lastKey``, by which a client pages through an index in RocksDB, means nothing to index files.
        """
        request = Command.of((serialize_type, b"", body), header)
        fields = fields_of(request)
        index_type, most = fields["indexType"] or KEY_TYPE, fields["maxNum"]
        if fields["_UNIQUE_KEY_QUERY"]:
            index_type, most = UNIQUE_KEY_TYPE, self._store.config.default_query_max_num
        found = self._store.query(
            fields["topic"],
            fields["key"],
            max(most, 0),
            fields["beginTimestamp"],
            fields["endTimestamp"],
            index_type,
        )
        records = _newest_that_fit(found.records)
        # As in RocketMQ, without a result the index fields are 0.
        timestamp, offset = (found.last_update_timestamp, found.last_update_offset) if records else (0, 0)
        answer = request.response(
            ResponseCode.SUCCESS if records else ResponseCode.QUERY_NOT_FOUND,
            ext_fields={"indexLastUpdatePhyoffset": str(offset), "indexLastUpdateTimestamp": str(timestamp)},
            remark=None if records else "can not find message, maybe time range not correct",
        )
        return _with_records(answer, records)

    def by_offset(self, _: Connection, header: Header, body: bytes, serialize_type: int) -> Answer:
        """The message at an offset of the log, which is in its offset message id.

        Bytes that are not an intact message are not found; RocketMQ returns them.
        """
        request = Command.of((serialize_type, b"", body), header)
        offset = fields_of(request)["offset"]
        record = self._store.record(offset)
        if record is None:
            remark = f"can not find message by the offset, {offset}"
            return request.response(ResponseCode.SYSTEM_ERROR, remark=remark).encode()
        return _with_records(request.response(ResponseCode.SUCCESS), [record])

    # A consume queue

    async def consume_queue(self, request: Command, _: Connection) -> Command:
        fields = fields_of(request)
        topic, queue_id, index = fields["topic"] or "", fields["queueId"], fields["index"]
        queue = self._store.queues.find(topic, queue_id)
        if queue is None:
            raise RequestRefusedError(f"{queue_id}@{topic} is not exist!")
        answer = QueryConsumeQueueResponseBody(
            max_queue_index=queue.max_offset, min_queue_index=queue.min_offset, queue_data=[]
        )
        if fields["consumerGroup"] is not None:
            self._add_subscription(answer, fields["consumerGroup"], topic)
        remark = NOT_SET
        if queue.min_offset <= index < queue.max_offset:
            count = min(fields["count"], MAX_UNITS)
            answer.queue_data = [
                unit async for unit in in_slices(self._units(queue, index, count, fields["consumerGroup"]))
            ]
        else:
            remark = f"Index {index} of {queue_id}@{topic} is not exist!"
        body = await encoded(answer, len(answer.queue_data or ()))
        return request.response(ResponseCode.SUCCESS, body=body, remark=remark)

    def _add_subscription(self, answer: QueryConsumeQueueResponseBody, group: str, topic: str) -> None:
        online = self._clients.consumers.get(group)
        answer.subscription_data = None if online is None else online.subscriptions.get(topic)
        if answer.subscription_data is None:
            answer.filter_data = f"{group}@{topic} is not online!"
            return
        registered = self._filters.find(group, topic)
        plain = None if registered is None else registered.data.to_json()
        answer.filter_data = dumps(plain, pretty=True).decode()

    def _units(self, queue: Queue, index: int, count: int, group: str | None) -> Iterator[ConsumeQueueData]:
        end = min(index + count, queue.max_offset)
        while index < end:
            if isinstance(queue, ConsumeQueue):
                units = queue.units(index, end - index)
                if not units:
                    return
                index += len(units) // UNIT.size
                for unit in UNIT.iter_unpack(units):
                    yield self._described(queue, group, *unit)
            else:
                batch = queue.unit(index)
                if batch is None:
                    return
                index = batch.base_offset + batch.message_count
                yield self._described(queue, group, batch.physical_offset, batch.size, batch.tags_code)

    def _described(
        self, queue: Queue, group: str | None, offset: int, size: int, tags_code: int
    ) -> ConsumeQueueData:
        unit = ConsumeQueueData(physic_offset=offset, physic_size=size, tags_code=tags_code)
        if not is_ext_address(tags_code):
            return unit
        config = self._store.config
        ext = read_ext(
            self._store.disk,
            config.store_path_root_dir,
            queue.topic,
            queue.queue_id,
            config.mapped_file_size_consume_queue_ext,
            tags_code,
        )
        if ext is None:
            unit.msg = f"Cq extend not exist!addr: {tags_code}"
            return unit
        unit.extend_data_json = dumps(_ext_as_json(ext)).decode()
        if ext.bit_map:
            unit.bit_map = f"{int.from_bytes(ext.bit_map, 'little'):0{len(ext.bit_map) * 8}b}"
        unit.eval = self._matches(group, queue.topic, ext)
        return unit

    def _matches(self, group: str | None, topic: str, ext: ExtUnit) -> bool:
        """True if the extended unit of a record matches the filter of a group that is online."""
        online = None if group is None else self._clients.consumers.get(group)
        wanted = None if online is None else online.filter_of(topic)
        if group is None or wanted is None:
            return False
        registered = self._filters.find(group, topic)
        if registered is not None and ext.bit_map:
            return self._filters.bloom.may_match(ext.bit_map, registered.mask)
        return wanted.matches_code is None or wanted.matches_code(ext.tags_code)


def _newest_that_fit(records: list[memoryview]) -> list[memoryview]:
    """The last records that fit one response together; at least one."""
    size = 0
    for number, record in enumerate(reversed(records)):
        size += len(record)
        if size > MAX_ANSWER_BYTES and number:
            return records[-number:]
    return records


def _with_records(answer: Command, records: list[memoryview]) -> list[Buffer]:
    """A response whose body is records as they are in the log."""
    encode = encode_json_header if answer.serialize_type is SerializeType.JSON else encode_binary_header
    header = encode(answer.header)
    prefix = frame_prefix(answer.serialize_type, len(header), sum(map(len, records)))
    return [prefix + header, *records]


def _ext_as_json(ext: ExtUnit) -> dict[str, Any]:
    return {
        "bitMapSize": len(ext.bit_map),
        "msgStoreTime": ext.store_timestamp,
        "size": 20 + len(ext.bit_map),
        "tagsCode": ext.tags_code,
    }
