"""Sends: single messages and batches, from the frame into the log and the answer back.

What every message passes is in ``SendRequests.send`` and one line long where it can be; what few need (unknown
topics, retries, delays, refusals) is behind one test each.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from orbitmq.broker.message_priority import queue_of_level
from orbitmq.broker.recall import handle_of_parked
from orbitmq.broker.refusing import no_group, no_topic
from orbitmq.broker.send_runs import SendRuns
from orbitmq.broker.timer_parking import is_for_a_time
from orbitmq.broker.topics import topic_name_problem
from orbitmq.kernel import SendRuns as Kernel
from orbitmq.protocol import property_names as names
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.flags import (
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
from orbitmq.protocol.hot import send_fields, send_v2_fields
from orbitmq.protocol.hot_answers import SendAnswers
from orbitmq.protocol.message_id import join_offset_ids
from orbitmq.protocol.names import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    TIMER_TOPIC,
    TOPICS_CLOSED_TO_CLIENTS,
    TRANSACTION_HALF_TOPIC,
)
from orbitmq.protocol.properties import find, values_of, with_property, without
from orbitmq.remoting.processing import RequestRefusedError
from orbitmq.store import AppendRefusedError, PutStatus
from orbitmq.store.config import FlushDiskType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.flow import SendFlow
    from orbitmq.broker.flushed_answers import FlushedAnswers
    from orbitmq.broker.groups import GroupTable
    from orbitmq.broker.locks import QueueLocks
    from orbitmq.broker.schedule import ScheduleService
    from orbitmq.broker.stats import BrokerStats
    from orbitmq.broker.timer import TimerService
    from orbitmq.broker.topics import TopicTable
    from orbitmq.broker.transaction import Transactions
    from orbitmq.protocol.bodies import TopicConfig
    from orbitmq.protocol.header import Header
    from orbitmq.protocol.message_id import UniqueIdFactory
    from orbitmq.remoting import Answer, Connection, Handler
    from orbitmq.store import Appended, MessageStore
    from orbitmq.store.batch_items import Ints

DLQ_QUEUES = 1

HONOURS_LIMIT_SINCE = 121
"""Clients from 3.4.9 on say how often they want a message again."""

_KEPT_SYS_FLAGS = ~(BORN_HOST_V6 | STORE_HOST_V6 | NEED_UNWRAP | INNER_BATCH | TRANSACTION_MASK)
"""Of the sysFlag a client sends, what is the client's to say. RocketMQ keeps the other bits too, and then stores
messages that no reader finds or understands."""

_UNIQ_KEY = names.UNIQUE_KEY.encode()
_DELAY = names.DELAY_LEVEL.encode()
_TRAN_MSG = names.TRANSACTION_PREPARED.encode()
_WAIT = names.WAIT_STORE_OK.encode()
_KEYS = names.KEYS.encode()
_SET_HERE = (names.MESSAGE_REGION.encode(), names.TRACE_SWITCH.encode(), names.CLUSTER.encode())
_GONE = frozenset({b"", b"POP_CK", *_SET_HERE})
"""What is not kept of what a client says. Properties have names, or do not exist."""


class SendRequests:
    """SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        topics: TopicTable,
        groups: GroupTable,
        schedule: ScheduleService,
        timer: TimerService | None,
        transactions: Transactions,
        locks: QueueLocks,
        stats: BrokerStats,
        flow: SendFlow,
        flushed: FlushedAnswers,
        unique_ids: UniqueIdFactory,
    ) -> None:
        self._config = config
        self._store = store
        self._append = store.append
        self._topics = topics
        self._topic_config = topics.configs.get
        self._groups = groups
        self._schedule = schedule
        self._timer = timer
        self._transactions = transactions
        self._locks = locks
        self._stats = stats
        self._count_put = stats.put
        self._flow = flow
        self._flushed = flushed
        self._waits = store.config.flush_disk_type is FlushDiskType.SYNC_FLUSH
        self._unique_ids = unique_ids
        self._answers = SendAnswers(
            store_host=store.log.store_host, region=config.region_id, trace_on=config.trace_on
        )
        self._encode = self._answers.encode
        self._added = b"".join(
            name + b"\x01" + value.encode() + b"\x02"
            for name, value in zip(
                _SET_HERE,
                (config.region_id, "true" if config.trace_on else "false", config.broker_cluster_name),
                strict=True,
            )
        )
        self._told = {"MSG_REGION": config.region_id, "TRACE_ON": "true" if config.trace_on else "false"}

    def runs(self) -> SendRuns | None:
        """What takes sends by the run; None if the kernel was not built, or this store needs more."""
        if Kernel is None or not self._store.appender.runs.takes_sends:
            return None
        return SendRuns(
            Kernel, self._config, self._store, self._topics, self._schedule, self._timer, self._transactions,
            self._stats, self._flow, self._flushed if self._waits else None, self._answers, self._added,
            _KEPT_SYS_FLAGS,
        )  # fmt: skip

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.SEND_MESSAGE: self.send,
            RequestCode.SEND_MESSAGE_V2: self.send,
            RequestCode.SEND_BATCH_MESSAGE: self.send,
        }

    def send(self, connection: Connection, header: Header, body: bytes, serialize_type: int) -> Answer:
        """The handler of all three codes."""
        # Raises ProtocolError for fields that are missing or no numbers, which the connection answers with code 1.
        (
            _, topic, default_topic, default_queues, queue_id, sys_flag, born, flag, property_text, reconsumed,
            unit_mode, most_reconsumed, is_batch, _,
        ) = (send_fields if header[0] == 10 else send_v2_fields)(header[6])  # fmt: skip
        try:
            if self._flow.refusal is not None:
                raise RequestRefusedError(self._flow.refusal[1], self._flow.refusal[0])
            config = self._topic_config(topic)
            if config is None or topic in TOPICS_CLOSED_TO_CLIENTS:
                config = self._admit(topic, default_topic, default_queues, unit_mode)
            queues = config.write_queue_nums
            if queue_id >= queues or queue_id < 0:
                queue_id = self.choose_queue(config, queue_id, connection)
            if not body:
                # Like fields that cannot be read, without the fields that other refusals have.
                raise ProtocolError("the body is empty: a message has at least one byte")
            properties = property_text.encode("utf-8", "replace")
            sys_flag &= _KEPT_SYS_FLAGS
            if is_batch:
                return self._send_batch(
                    connection, header, serialize_type, topic, queue_id, body, properties, sys_flag, born,
                    reconsumed, config,
                )  # fmt: skip

            # The unique key, which is what the client calls the id of the message.
            start = properties.find(b"UNIQ_KEY\x01")
            if start >= 0 and (start == 0 or properties[start - 1] == 2) and properties[-1] == 2:
                unique_key = properties[start + 9 : properties.find(b"\x02", start)]
            else:
                unique_key = b""
            if not unique_key:
                properties, unique_key = self._with_unique_key(properties)
            if "_PRIORITY_\x01" in property_text:
                queue_id, properties = queue_of_level(queue_id, properties, queues)
            # What the client is told, also where the message is put elsewhere first.
            told_queue_id = queue_id
            # In the text and not in the bytes, where each of these searches takes several times as long. "DEL" is
            # in the names of delays and timers, "TRA" in those of transactions and of the switch for traces.
            if (
                "DEL" in property_text
                or "TRA" in property_text
                or "CLUSTER\x01" in property_text
                or "MSG_REGION\x01" in property_text
                or "POP_CK\x01" in property_text
                or "\x01\x02" in property_text
                or topic[0] == "%"
                or config.attributes
                or config.order
            ):
                if header[3] < HONOURS_LIMIT_SINCE:
                    most_reconsumed = None
                topic, queue_id, properties = self._look_closer(
                    topic, queue_id, properties, unique_key, reconsumed, most_reconsumed, config
                )
            else:
                properties += self._added
            appended = self._append(
                topic, queue_id, body, properties, flag=flag, sys_flag=sys_flag, born_timestamp=born,
                born_host=connection.state, reconsume_times=reconsumed,
            )  # fmt: skip
        except AppendRefusedError as error:
            self._stats.put_failed()
            return self._refuse(header, serialize_type, error.status.response_code, self._why(error, body))
        except RequestRefusedError as error:
            return self._refuse(header, serialize_type, error.code, str(error))
        self._count_put(topic, queue_id, 1, appended[1])
        if topic is TRANSACTION_HALF_TOPIC:
            self._transactions.prepared(properties, appended)
        if header[2] & ONEWAY:
            return b""
        if topic is TIMER_TOPIC:
            handle = handle_of_parked(properties, self._config.broker_name, unique_key)
            if handle is not None:
                return self._tell_handle(
                    connection, header, serialize_type, told_queue_id, appended, properties, unique_key, handle
                )
        opaque = header[1]
        answer = self._encode(serialize_type, opaque, 0, told_queue_id, appended[2], appended[0], unique_key)
        if self._waits and find(properties, _WAIT) != b"false":
            self._flushed.wait(connection, header, answer, ResponseCode.FLUSH_DISK_TIMEOUT)
            return None
        return answer

    # What few messages need

    def admitted(self, topic: str, default_topic: str, default_queues: int, *, unit_mode: bool) -> TopicConfig:
        """The settings of a topic that a client may send to. Raises RequestRefusedError."""
        config = self._topic_config(topic)
        if config is None or topic in TOPICS_CLOSED_TO_CLIENTS:
            config = self._admit(topic, default_topic, default_queues, unit_mode)
        return config

    def _admit(self, topic: str, default_topic: str, default_queues: int, unit_mode: bool) -> TopicConfig:
        """The settings of a topic that is not plainly there: closed, wrong, or to be made."""
        problem = topic_name_problem(topic)
        if problem is not None:
            raise RequestRefusedError(problem, ResponseCode.INVALID_PARAMETER)
        if topic in TOPICS_CLOSED_TO_CLIENTS:
            raise RequestRefusedError(
                f"Sending message to topic[{topic}] is forbidden.", ResponseCode.NO_PERMISSION
            )
        is_retry = topic.startswith(RETRY_PREFIX)
        sys_flag = 0
        if unit_mode:
            sys_flag = TOPIC_UNIT_SUBSCRIBED if is_retry else TOPIC_UNIT
        config = self._topics.create_for_send(topic, default_topic, default_queues, sys_flag)
        if config is None and is_retry:
            config = self._topics.create_for_send_back(topic, 1, PERM_READ_WRITE, sys_flag)
        if config is None:
            raise no_topic(topic)
        return config

    def choose_queue(self, config: TopicConfig, queue_id: int, connection: Connection) -> int:
        """The queue that a message goes to. Raises RequestRefusedError."""
        if queue_id >= max(config.write_queue_nums, config.read_queue_nums) or config.write_queue_nums <= 0:
            raise RequestRefusedError(
                f"request queueId[{queue_id}] is illegal, {_described(config)} "
                f"Producer: {connection.remote_address}",
                ResponseCode.INVALID_PARAMETER,
            )
        return queue_id if queue_id >= 0 else random.randrange(config.write_queue_nums)

    def _with_unique_key(self, properties: bytes) -> tuple[bytes, bytes]:
        if properties and properties[-1] != 2:
            properties += b"\x02"
        unique_key = find(properties, _UNIQ_KEY)
        if unique_key is None:
            unique_key = self._unique_ids().encode()
            properties = with_property(properties, _UNIQ_KEY, unique_key)
        return properties, unique_key

    def _look_closer(
        self,
        topic: str,
        queue_id: int,
        properties: bytes,
        unique_key: bytes,
        reconsumed: int,
        most_reconsumed: int | None,
        config: TopicConfig,
    ) -> tuple[str, int, bytes]:
        """Where a message goes that may be more than a plain one, and with which properties."""
        if config.order and not self._config.broker_permission & PERM_WRITE:
            raise RequestRefusedError(
                f"the broker[{self._config.broker_ip1}] sending message is forbidden", ResponseCode.NO_PERMISSION
            )
        values = values_of(properties)
        # Clients before 4.6.1 send back what came out of a transaction as if it were half still.
        is_half = values.get(_TRAN_MSG, b"").lower() == b"true" and not (reconsumed > 0 and _DELAY in values)
        if config.attributes.get("cleanup.policy") == "COMPACTION" and _KEYS not in values:
            raise RequestRefusedError("Required message key is missing", ResponseCode.MESSAGE_ILLEGAL)
        # So many ends say that each of them is there once, and the string has nothing else in it.
        if properties.count(b"\x02") != len(values) or properties[-1:] != b"\x02" or not _GONE.isdisjoint(values):
            items = [item.partition(b"\x01") for item in properties.split(b"\x02")]
            properties = b"".join(
                [name + b"\x01" + value + b"\x02" for name, _, value in items if value and name not in _GONE]
            )
        properties += self._added
        if topic.startswith(RETRY_PREFIX):
            topic, queue_id, properties = self._retry_or_dead(
                topic, queue_id, properties, reconsumed, most_reconsumed
            )
        if is_half:
            return self._transactions.prepare(topic, queue_id, properties, unique_key)
        if b"DELAY\x01" in properties:
            parked = self._schedule.park(properties, topic, queue_id)
            if parked is not None:
                return parked
        if is_for_a_time(values):
            if self._timer is None:
                raise RequestRefusedError("accurate timer message is not enabled, timerWheelEnable is false")
            parked = self._timer.park(properties, topic, queue_id, values)
            if parked is not None:
                return parked
        return topic, queue_id, properties

    def _tell_handle(
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
        """The answer to a message that waits for its time, with what it takes to take it back."""
        encode = self._answers.encode_timed
        offset, _, queue_offset, _ = appended
        answer = encode(serialize_type, header[1], 0, queue_id, queue_offset, offset, unique_key, handle)
        if not self._waits or find(properties, _WAIT) == b"false":
            return answer
        self._flushed.wait(connection, header, answer, ResponseCode.FLUSH_DISK_TIMEOUT)
        return None

    def _retry_or_dead(
        self, topic: str, queue_id: int, properties: bytes, reconsumed: int, most_reconsumed: int | None
    ) -> tuple[str, int, bytes]:
        """A consumer sends to its own retry topic, when sending back did not work: dead letters are told apart."""
        group = topic.removeprefix(RETRY_PREFIX)
        config = self._groups.find(group)
        if config is None:
            raise no_group(group)
        most = config.retry_max_times if most_reconsumed is None else most_reconsumed
        if reconsumed <= most and not self._locks.group_holds_lock(group):
            return topic, queue_id, properties
        dead = DLQ_PREFIX + group
        self._topics.create_for_send_back(dead, DLQ_QUEUES, PERM_READ_WRITE)
        return dead, 0, with_property(properties, _DELAY, b"-1")

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
        """A batch is stored message by message, or as one record if the topic's queues are made for that.

        Raises what ``send`` answers.
        """
        told = dict(self._told)
        sent_key = find(properties, _UNIQ_KEY)
        if sent_key is not None:
            told["transactionId"] = sent_key.decode("utf-8", "replace")
        if config.attributes.get("queue.type") == "BatchCQ":
            properties, unique_key = self._with_unique_key(properties)
            properties = without(properties, (*_SET_HERE, b"POP_CK")) + self._added
            one = self._store.append_inner_batch(
                topic, queue_id, body, properties, sys_flag=sys_flag, born_timestamp=born,
                born_host=connection.state, reconsume_times=reconsumed,
            )  # fmt: skip
            places: Sequence[int] | Ints = [one.offset]
            size, queue_offset = one.size, one.queue_offset
            told["batchUniqId"] = unique_key.decode("utf-8", "replace")
        else:
            many = self._store.append_batch(
                topic, queue_id, body, sys_flag=sys_flag, born_timestamp=born, born_host=connection.state,
                reconsume_times=reconsumed,
            )  # fmt: skip
            places, size, queue_offset = many.places, many.size, many[0].queue_offset
        self._count_put(topic, queue_id, len(places), size)
        told["msgId"] = join_offset_ids(self._store.log.store_host, places)
        told["queueId"] = str(queue_id)
        told["queueOffset"] = str(queue_offset)
        request = Command.of((serialize_type, b"", b""), header)
        answer = request.response(ResponseCode.SUCCESS, ext_fields=told).encode()
        if header[2] & ONEWAY or not self._waits or find(properties, _WAIT) == b"false":
            return answer
        self._flushed.wait(connection, header, answer, ResponseCode.FLUSH_DISK_TIMEOUT)
        return None

    # Refusals

    def _refuse(self, header: Header, serialize_type: int, code: int, remark: str) -> bytes:
        request = Command.of((serialize_type, b"", b""), header)
        return request.response(code, ext_fields=self._told, remark=remark).encode()

    def _why(self, error: AppendRefusedError, body: bytes) -> str:
        if error.status in {PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED}:
            most = self._store.config.max_message_size
            # RocketMQ's sentence is about sizes; any other reason stands behind it.
            is_size = error.status is PutStatus.PROPERTIES_SIZE_EXCEEDED or len(body) > most
            return (
                "the message is illegal, maybe msg body or properties length not matched. msg body length limit "
                f"{most}B, msg properties length limit 32KB." + ("" if is_size else f" ({error})")
            )
        if error.status is PutStatus.SERVICE_NOT_AVAILABLE:
            return self._flow.unavailable(str(error))
        return str(error)


def _described(config: TopicConfig) -> str:
    """A topic as RocketMQ prints it."""
    return (
        f"TopicConfig [topicName={config.topic_name}, readQueueNums={config.read_queue_nums}, "
        f"writeQueueNums={config.write_queue_nums}, perm={perm_text(config.perm)}, "
        f"topicFilterType={config.topic_filter_type}, topicSysFlag={config.topic_sys_flag}, "
        f"order={'true' if config.order else 'false'}, attributes={{{_pairs(config.attributes)}}}]"
    )


def _pairs(attributes: dict[str, str]) -> str:
    return ", ".join(f"{name}={value}" for name, value in attributes.items())
