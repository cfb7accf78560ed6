"""SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE: the Python path from the request to the log and back.

``SendRequests.send`` has the steps of every message; rare cases (unknown topics, retries, delays, refusals) are
behind one test each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.errors import append_remark, no_group, no_topic
from orbitmq.broker.fast_path.send import SendEncoding, SendFastPath
from orbitmq.broker.lite.target import LITE_TOPIC, with_light_queue
from orbitmq.broker.metadata.attributes import LITE, MESSAGE_TYPE, is_plain
from orbitmq.broker.metadata.topics import topic_name_problem
from orbitmq.broker.send.priority import queue_of_level
from orbitmq.broker.send.retry_rule import dead_letter_topic, is_exhausted, max_retries
from orbitmq.broker.timer.deliver_time import has_delivery_time
from orbitmq.broker.timer.recall import handle_of_deferred
from orbitmq.platform.limit_counts import Limit, count_refusal
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.fast_decode import send_fields, send_v2_fields
from orbitmq.protocol.command.fast_encode import SendAnswers
from orbitmq.protocol.command.header import CODE, EXT_FIELDS, FLAG, OPAQUE, VERSION
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.java import decode_utf8
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.flags import (
    BORN_HOST_V6,
    INNER_BATCH,
    NEED_UNWRAP,
    ONEWAY,
    PERM_READ_WRITE,
    PERM_WRITE,
    STORE_HOST_V6,
    TOPIC_UNIT,
    TOPIC_UNIT_SUBSCRIBED,
    TRANSACTION_MASK,
    perm_text,
)
from orbitmq.protocol.message.message_id import join_offset_ids
from orbitmq.protocol.message.pop_receipt import normal_topic
from orbitmq.protocol.message.properties import find, values_of, with_property, without
from orbitmq.protocol.names import (
    RETRY_PREFIX,
    TIMER_TOPIC,
    TOPICS_CLOSED_TO_CLIENTS,
    TRANSACTION_HALF_TOPIC,
    is_closed_to_clients,
)
from orbitmq.remoting.error_responses import failed
from orbitmq.remoting.processor import NotReadyError, RequestRefusedError, run_in_background
from orbitmq.store import AppendRefusedError, PutStatus, StoredMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.broker.clients.queue_locks import QueueLocks
    from orbitmq.broker.clients.shares import NamedShares
    from orbitmq.broker.fast_path.epoch import RouteEpoch
    from orbitmq.broker.runtime import BrokerRuntime, DeferredServices, Metadata
    from orbitmq.broker.send.flow_control import SendFlow
    from orbitmq.protocol.bodies import TopicConfig
    from orbitmq.protocol.command.header import Header
    from orbitmq.protocol.message.message_id import UniqueIdFactory
    from orbitmq.remoting import Answer, Connection, Handler
    from orbitmq.store import Appended
    from orbitmq.store.append.batch_decoder import Ints

MAX_POSTPONED_BYTES = 64 << 20
"""Bodies of messages that wait until ``topics.json`` with their new topic is on disk. Further ones are refused with
SYSTEM_BUSY, which clients retry: oneway messages would otherwise be collected without a limit."""

_CLIENT_SYS_FLAGS = ~(BORN_HOST_V6 | STORE_HOST_V6 | NEED_UNWRAP | INNER_BATCH | TRANSACTION_MASK)
"""The bits of sysFlag that a client may set. RocketMQ keeps the others too, and then stores messages that no reader
finds or understands."""

_UNIQ_KEY = names.UNIQUE_KEY.encode()
_DELAY = names.DELAY_LEVEL.encode()
_ORIGIN_GROUP = names.ORIGIN_GROUP.encode()
_TRAN_MSG = names.TRANSACTION_PREPARED.encode()
_KEYS = names.KEYS.encode()
_SET_BY_BROKER = (names.MESSAGE_REGION.encode(), names.TRACE_SWITCH.encode(), names.CLUSTER.encode())
_DROPPED = frozenset({b"", b"POP_CK", *_SET_BY_BROKER})
"""Properties that are dropped from a client's message: those without a name, and those that the broker sets."""


class SendRequests:
    """The send processor."""

    def __init__(
        self,
        runtime: BrokerRuntime,
        metadata: Metadata,
        deferred: DeferredServices,
        locks: QueueLocks,
        flow: SendFlow,
        unique_ids: UniqueIdFactory,
        topic_shares: NamedShares,
    ) -> None:
        self._topic_shares = topic_shares
        self._runtime = runtime
        self._deferred = deferred
        self._config = config = runtime.config
        self._store = store = runtime.store
        self._append = store.append
        self._topics = topics = metadata.topics
        self._topic_config = topics.configs.get
        self._groups = metadata.groups
        self._schedule = deferred.schedule
        self._timer = deferred.timer
        self._transactions = deferred.transactions
        self._locks = locks
        self._random = runtime.random
        self._stats = runtime.stats
        self._count_put = runtime.stats.put
        self._closed = TOPICS_CLOSED_TO_CLIENTS | set(filter(is_closed_to_clients, topics.configs))
        """Known system topics; an unknown topic is checked before it is created."""
        self._flow = flow
        self._flush_waiters = runtime.flush_waiters
        self._answers_later = runtime.flush_waiters.is_needed
        self._unique_ids = unique_ids
        self._answers = SendAnswers(
            store_host=store.log.store_host, region=config.region_id, trace_on=config.trace_on
        )
        self._encode = self._answers.encode
        self._added = b"".join(
            name + b"\x01" + value.encode() + b"\x02"
            for name, value in zip(
                _SET_BY_BROKER,
                (config.region_id, "true" if config.trace_on else "false", config.broker_cluster_name),
                strict=True,
            )
        )
        self._refusal_fields = {"MSG_REGION": config.region_id, "TRACE_ON": "true" if config.trace_on else "false"}
        self._postponed_bytes = 0

    def fast_path(self, epoch: RouteEpoch) -> SendFastPath | None:
        """The fast path of sends; None if this store needs the Python path."""
        if not self._store.appender.native.accepts_sends:
            return None
        return SendFastPath(
            epoch,
            self._runtime,
            self._topics,
            self._deferred,
            self._flow,
            self._flush_waiters if self._answers_later else None,
            SendEncoding(self._answers, self._added, _CLIENT_SYS_FLAGS, self._unique_ids),
        )

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def send(self, connection: Connection, header: Header, body: bytes, serialize_type: int) -> Answer:
        """The handler of all three codes."""
        # Raises ProtocolError for missing or malformed fields, which the connection answers with code 1.
        (
            _, topic, default_topic, default_queues, queue_id, sys_flag, born, flag, property_text, reconsumed,
            unit_mode, most_reconsumed, is_batch, _,
        ) = (send_fields if header[CODE] == 10 else send_v2_fields)(header[EXT_FIELDS])  # fmt: skip
        try:
            if self._flow.refusal is not None:
                raise RequestRefusedError(self._flow.refusal[1], self._flow.refusal[0])
            config = self._topic_config(topic)
            if config is None or topic in self._closed:
                config = self._admit(topic, default_topic, default_queues, unit_mode, connection.remote_address)
            queues = config.write_queue_nums
            if queue_id >= queues or queue_id < 0:
                queue_id = self.choose_queue(config, queue_id, connection)
            if not body:
                # Answered like malformed fields, without the fields of other refusals.
                raise ProtocolError("the body is empty: a message has at least one byte")
            properties = property_text.encode("utf-8", "replace")
            sys_flag &= _CLIENT_SYS_FLAGS
            if is_batch:
                return self._send_batch(
                    connection, header, serialize_type, topic, queue_id, body, properties, sys_flag, born,
                    reconsumed, config,
                )  # fmt: skip

            # The unique key: the message id of the client.
            start = properties.find(b"UNIQ_KEY\x01")
            if start >= 0 and (start == 0 or properties[start - 1] == 2) and properties[-1] == 2:
                unique_key = properties[start + 9 : properties.find(b"\x02", start)]
            else:
                unique_key = b""
            if not unique_key:
                properties, unique_key = self._with_unique_key(properties)
            if "_PRIORITY_\x01" in property_text:
                queue_id, properties = queue_of_level(queue_id, properties, queues)
            # The response names this queue, also if the message is deferred.
            requested_queue_id = queue_id
            # Searched in the text: in bytes each search takes several times as long. "DEL" is in the names of
            # delays and timers, "TRA" in those of transactions and of the trace switch.
            if (
                "DEL" in property_text
                or "TRA" in property_text
                or "CLUSTER\x01" in property_text
                or "MSG_REGION\x01" in property_text
                or "POP_CK\x01" in property_text
                or "\x01\x02" in property_text
                or topic[0] == "%"
                or (config.attributes and not is_plain(config.attributes))
                or config.order
            ):
                topic, queue_id, properties = self._special_target(
                    topic, queue_id, properties, unique_key, reconsumed, most_reconsumed, header[VERSION], config
                )
            else:
                properties += self._added
            appended = self._append(
                StoredMessage(topic, queue_id, body, properties, flag, sys_flag, born, connection.state, reconsumed)
            )
        except AppendRefusedError as error:
            self._stats.put_failed()
            return self._refuse(
                header, serialize_type, error.status.response_code, self._append_remark(error, body)
            )
        except RequestRefusedError as error:
            return self._refuse(header, serialize_type, error.code, str(error))
        except NotReadyError as error:
            return self._postpone(connection, header, body, serialize_type, error)
        self._count_put(topic, queue_id, 1, appended[1])
        if topic is TRANSACTION_HALF_TOPIC:
            self._transactions.prepared(properties, appended)
        if header[FLAG] & ONEWAY:
            return b""
        if topic is TIMER_TOPIC:
            handle = handle_of_deferred(properties, self._config.broker_name, unique_key)
            if handle is not None:
                return self._with_recall_handle(
                    connection, header, serialize_type, requested_queue_id, appended, properties, unique_key, handle
                )
        opaque = header[OPAQUE]
        answer = self._encode(serialize_type, opaque, 0, requested_queue_id, appended[2], appended[0], unique_key)
        return answer if not self._answers_later else self._flushed(connection, header, answer, properties)

    def _flushed(self, connection: Connection, header: Header, answer: bytes, properties: bytes) -> bytes | None:
        return self._flush_waiters.respond(
            connection, header, answer, properties=properties, late_code=ResponseCode.FLUSH_DISK_TIMEOUT
        )

    # Rare cases

    def _postpone(
        self, connection: Connection, header: Header, body: bytes, serialize_type: int, error: NotReadyError
    ) -> Answer:
        """Retry the send when the topic of the message is on disk, in the order of arrival."""
        if self._postponed_bytes + len(body) > MAX_POSTPONED_BYTES:
            count_refusal(Limit.WAITING_SENDS)
            return self._refuse(
                header, serialize_type, ResponseCode.SYSTEM_BUSY,
                f"messages for topics in creation take more than {MAX_POSTPONED_BYTES} bytes: send again later",
            )  # fmt: skip
        self._postponed_bytes += len(body)
        run_in_background(self._send_when_ready(connection, header, body, serialize_type, error))
        return None

    async def _send_when_ready(
        self, connection: Connection, header: Header, body: bytes, serialize_type: int, error: NotReadyError
    ) -> None:
        try:
            await error.wait()
        except RequestRefusedError as refused:
            answer: Answer = self._refuse(header, serialize_type, refused.code, str(refused))
        else:
            try:
                answer = self.send(connection, header, body, serialize_type)
            except Exception as failure:
                answer = failed(failure, header, serialize_type, connection.remote_address)
        finally:
            self._postponed_bytes -= len(body)
        if answer is not None:
            connection.answer(header, answer)

    def admitted(self, topic: str, default_topic: str, default_queues: int, *, unit_mode: bool) -> TopicConfig:
        """The configuration of a topic that accepts sends. Raises RequestRefusedError and NotReadyError."""
        config = self._topic_config(topic)
        if config is None or topic in self._closed:
            config = self._admit(topic, default_topic, default_queues, unit_mode)
        return config

    def _admit(
        self, topic: str, default_topic: str, default_queues: int, unit_mode: bool, client: str = ""
    ) -> TopicConfig:
        """The configuration of a topic after all checks: closed, invalid, or to be created."""
        problem = topic_name_problem(topic)
        if problem is not None:
            raise RequestRefusedError(problem, ResponseCode.INVALID_PARAMETER)
        if is_closed_to_clients(topic):
            raise RequestRefusedError(
                f"Sending message to topic[{topic}] is forbidden.", ResponseCode.NO_PERMISSION
            )
        is_retry = topic.startswith(RETRY_PREFIX)
        sys_flag = 0
        if unit_mode:
            sys_flag = TOPIC_UNIT_SUBSCRIBED if is_retry else TOPIC_UNIT
        self._topic_shares.check(client)
        try:
            config = self._topics.create_for_send(topic, default_topic, default_queues, sys_flag)
            if config is None and is_retry:
                config = self._topics.create_for_send_back(topic, 1, PERM_READ_WRITE, sys_flag)
        except NotReadyError:
            self._topic_shares.created(client, topic)
            raise
        if config is None:
            raise no_topic(topic)
        return config

    def choose_queue(self, config: TopicConfig, queue_id: int, connection: Connection) -> int:
        """The queue of a message. Raises RequestRefusedError."""
        if queue_id >= max(config.write_queue_nums, config.read_queue_nums) or config.write_queue_nums <= 0:
            raise RequestRefusedError(
                f"request queueId[{queue_id}] is illegal, {_described(config)} "
                f"Producer: {connection.remote_address}",
                ResponseCode.INVALID_PARAMETER,
            )
        return queue_id if queue_id >= 0 else self._random.randrange(config.write_queue_nums)

    def _with_unique_key(self, properties: bytes) -> tuple[bytes, bytes]:
        if properties and properties[-1] != 2:
            properties += b"\x02"
        unique_key = find(properties, _UNIQ_KEY)
        if unique_key is None:
            unique_key = self._unique_ids().encode()
            properties = with_property(properties, _UNIQ_KEY, unique_key)
        return properties, unique_key

    def _special_target(
        self,
        topic: str,
        queue_id: int,
        properties: bytes,
        unique_key: bytes,
        reconsumed: int,
        most_reconsumed: int | None,
        version: int,
        config: TopicConfig,
    ) -> tuple[str, int, bytes]:
        """Topic, queue and properties of a message that may be a retry, a half message or deferred."""
        if config.order and not self._config.broker_permission & PERM_WRITE:
            raise RequestRefusedError(
                f"the broker[{self._config.broker_ip1}] sending message is forbidden", ResponseCode.NO_PERMISSION
            )
        values = values_of(properties)
        # Clients before 4.6.1 send back a committed message as if it were still a half message.
        is_half = values.get(_TRAN_MSG, b"").lower() == b"true" and not (reconsumed > 0 and _DELAY in values)
        if config.attributes.get("cleanup.policy") == "COMPACTION" and _KEYS not in values:
            raise RequestRefusedError("Required message key is missing", ResponseCode.MESSAGE_ILLEGAL)
        # If the counts match, each property is there once, and the string has nothing else in it.
        if (
            properties.count(b"\x02") != len(values)
            or properties[-1:] != b"\x02"
            or not _DROPPED.isdisjoint(values)
        ):
            items = [item.partition(b"\x01") for item in properties.split(b"\x02")]
            properties = b"".join(
                [name + b"\x01" + value + b"\x02" for name, _, value in items if value and name not in _DROPPED]
            )
        properties += self._added
        if LITE_TOPIC in values and config.attributes.get(MESSAGE_TYPE) == LITE:
            properties = with_light_queue(self._store, self._topics, topic, values[LITE_TOPIC], properties)
        if topic.startswith(RETRY_PREFIX):
            topic, queue_id, properties = self._retry_or_dead(
                topic, queue_id, properties, reconsumed, most_reconsumed, version
            )
        if is_half:
            return self._transactions.prepare(topic, queue_id, properties, unique_key)
        if b"DELAY\x01" in properties:
            deferred = self._schedule.defer(properties, topic, queue_id)
            if deferred is not None:
                return deferred
        if has_delivery_time(values):
            if self._timer is None:
                raise RequestRefusedError("accurate timer message is not enabled, timerWheelEnable is false")
            deferred = self._timer.defer(properties, topic, queue_id, values)
            if deferred is not None:
                return deferred
        return topic, queue_id, properties

    def _with_recall_handle(
        self,
        connection: Connection,
        header: Header,
        serialize_type: int,
        queue_id: int,
        appended: Appended,
        properties: bytes,
        unique_key: bytes,
        handle: bytes,
    ) -> Answer:
        """The response to a timer message, with its recall handle."""
        encode = self._answers.encode_timed
        offset, _, queue_offset, _ = appended
        answer = encode(serialize_type, header[OPAQUE], 0, queue_id, queue_offset, offset, unique_key, handle)
        return self._flushed(connection, header, answer, properties)

    def _retry_or_dead(
        self,
        topic: str,
        queue_id: int,
        properties: bytes,
        reconsumed: int,
        most_reconsumed: int | None,
        version: int,
    ) -> tuple[str, int, bytes]:
        """Target of a message that a consumer sends to its retry topic because CONSUMER_SEND_MSG_BACK failed."""
        if _is_pop_retry(topic, properties):
            return topic, queue_id, properties  # from a slave that acts for a dead master
        group = topic.removeprefix(RETRY_PREFIX)
        config = self._groups.find(group)
        if config is None:
            raise no_group(group)
        limit = max_retries(config, version, most_reconsumed)
        # The count of the request includes this retry.
        if not is_exhausted(reconsumed - 1, limit) and not self._locks.group_holds_lock(group):
            return topic, queue_id, properties
        return dead_letter_topic(self._topics, group), 0, with_property(properties, _DELAY, b"-1")

    # Batches

    def _send_batch(
        self,
        connection: Connection,
        header: Header,
        serialize_type: int,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes,
        sys_flag: int,
        born: int,
        reconsumed: int,
        config: TopicConfig,
    ) -> Answer:
        """Store a batch message by message, or as one record in a BatchCQ queue.

        Raises the exceptions that ``send`` handles.
        """
        fields = dict(self._refusal_fields)
        sent_key = find(properties, _UNIQ_KEY)
        if sent_key is not None:
            fields["transactionId"] = sent_key.decode("utf-8", "replace")
        batch = StoredMessage(topic, queue_id, body, b"", 0, sys_flag, born, connection.state, reconsumed)
        if config.attributes.get("queue.type") == "BatchCQ":
            properties, unique_key = self._with_unique_key(properties)
            properties = without(properties, (*_SET_BY_BROKER, b"POP_CK")) + self._added
            one = self._store.append_inner_batch(batch._replace(properties=properties))
            offsets: Sequence[int] | Ints = [one.offset]
            size, queue_offset = one.size, one.queue_offset
            fields["batchUniqId"] = unique_key.decode("utf-8", "replace")
        elif config.attributes.get(MESSAGE_TYPE) == LITE and LITE_TOPIC in body:
            # RocketMQ stores them where no consumer of the lite topic finds them.
            raise RequestRefusedError(
                "messages of lite topics cannot be sent in a batch: send each alone", ResponseCode.MESSAGE_ILLEGAL
            )
        else:
            many = self._store.append_batch(batch)
            offsets, size, queue_offset = many.places, many.size, many[0].queue_offset
        self._count_put(topic, queue_id, len(offsets), size)
        fields["msgId"] = join_offset_ids(self._store.log.store_host, offsets)
        fields["queueId"] = str(queue_id)
        fields["queueOffset"] = str(queue_offset)
        request = Command.of((serialize_type, b"", b""), header)
        answer = request.response(ResponseCode.SUCCESS, ext_fields=fields).encode()
        return self._flushed(connection, header, answer, properties)

    # Refusals

    def _refuse(self, header: Header, serialize_type: int, code: int, remark: str) -> bytes:
        self._stats.on_refused(header[CODE], code, "a producer", remark)
        request = Command.of((serialize_type, b"", b""), header)
        return request.response(code, ext_fields=self._refusal_fields, remark=remark).encode()

    def _append_remark(self, error: AppendRefusedError, body: bytes) -> str:
        limit = self._store.config.max_message_size
        remark = append_remark(error, limit, unavailable=self._flow.unavailable)
        # RocketMQ's sentence is about sizes; any other reason follows it.
        is_other_reason = error.status is PutStatus.MESSAGE_ILLEGAL and len(body) <= limit
        return f"{remark} ({error})" if is_other_reason else remark


def _described(config: TopicConfig) -> str:
    """A topic configuration as RocketMQ prints it."""
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm_text(config.perm)}, "
        f"topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag}, "
        f"order={'true' if config.order else 'false'}, attributes={{{_pairs(config.attributes)}}}]"
    )


def _pairs(attributes: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in attributes.items())


def _is_pop_retry(topic: str, properties: bytes) -> bool:
    """True for a message that comes again because its group did not acknowledge it."""
    group = find(properties, _ORIGIN_GROUP)
    return group is not None and normal_topic(topic, decode_utf8(group)) != topic
