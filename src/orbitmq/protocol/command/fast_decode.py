"""Fast-path decoder: the header of any frame, and the typed fields of the frequent requests.

``decode_header`` gives for every frame what ``Command.decode`` gives, as a plain tuple: code and opaque to
dispatch on, and the ext fields as text. For the frequent requests one of the ``…_fields`` functions turns those
into a tuple of typed values; ``HOT_FIELDS`` has them by request code. Rare fields are left in the ext fields.

Every function here tries the usual shape first and leaves everything else to the general decoder, so that both
always give the same answer.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import orjson

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.binary_header import decode_binary_header
from orbitmq.protocol.command.fields import INT32_MAX, INT32_MIN, decode_fields
from orbitmq.protocol.command.header import LANGUAGES_BY_NAME
from orbitmq.protocol.command.json_header import decode_json_header
from orbitmq.protocol.command.request_fields import REQUEST_FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.protocol.command.frame import Frame
    from orbitmq.protocol.command.header import Header

ExtFields: TypeAlias = dict[str, str]

SendFields: TypeAlias = tuple[str, str, str, int, int, int, int, int, str, int, bool, int | None, bool, str | None]
"""producer group, topic, default topic, default topic queue count, queue id, sysFlag, born timestamp, flag,
properties, reconsume times, unit mode, max reconsume times, batch, broker name"""

PullFields: TypeAlias = tuple[
    str, str, int, int, int, int, int, int, str | None, int, str | None, int | None, int | None
]
"""consumer group, topic, queue id, queue offset, max message count, sysFlag, commit offset, suspend milliseconds,
subscription, subscription version, expression type, max message bytes, request source"""

QueryOffsetFields: TypeAlias = tuple[str, str, int, bool | None]
"""consumer group, topic, queue id, 0 for an offset that is not found"""

UpdateOffsetFields: TypeAlias = tuple[str, str, int, int]
"""consumer group, topic, queue id, commit offset"""

PopFields: TypeAlias = tuple[str, str, int, int, int, int, int, int, str | None, str | None, bool, str | None]
"""consumer group, topic, queue id, max message count, invisible milliseconds, poll milliseconds, born time,
init mode, expression type, expression, order, attempt id"""

AckFields: TypeAlias = tuple[str, str, int, str, int]
"""consumer group, topic, queue id, extra info, offset"""

EndFields: TypeAlias = tuple[str, int, int, int, bool, str]
"""producer group, offset in the half-message queue, physical offset, commit or rollback, from a check, id"""

_loads = orjson.loads


class _Int32Texts(dict[str, int]):
    """Cache of parsed int32 texts: queue ids, flags and limits are few and repeat.

    Looking one up takes a third of the time of parsing it. The bound keeps a peer that makes up numbers from
    filling the memory; what does not fit any more is parsed each time.
    """

    __slots__ = ()
    MOST = 8192

    def __missing__(self, text: str) -> int:
        if not text.removeprefix("-").isdecimal():
            raise KeyError(text)
        number = int(text)
        if not INT32_MIN <= number <= INT32_MAX:
            raise KeyError(text)
        # A number has many spellings with leading zeros; only those of usual length are worth a place.
        if len(self) < self.MOST and len(text) <= 11:
            self[text] = number
        return number


_INT32 = _Int32Texts()
_BOOLEAN = {"true": True, "false": False, None: False}
_BOOLEAN_OR_NONE = {"true": True, "false": False, None: None}

_UNUSUAL = (KeyError, TypeError, ValueError, AttributeError)
"""Errors that an unusual header causes on the fast path; the general decoder is the fallback."""


def decode_header(frame: Frame) -> Header:
    """The header of a frame: ``(code, opaque, flag, version, language, remark, ext_fields)``.

    Raises ProtocolError and nothing else.
    """
    if frame[0]:
        return decode_binary_header(frame[1])
    try:
        head = _loads(frame[1])
        code = head["code"]
        opaque = head["opaque"]
        flag = head["flag"]
        version = head["version"]
        remark = head.get("remark")
        # All four are non-negative 32-bit numbers if all their bits together are one.
        if not (code | opaque | flag | version) >> 31 and (remark is None or remark.__class__ is str):
            ext_fields = head.get("extFields")
            if ext_fields is None:
                ext_fields = {}
            else:
                # The cheapest proof that every value is a string: joining anything else fails.
                "".join(ext_fields.values())
            return code, opaque, flag, version, LANGUAGES_BY_NAME[head["language"]], remark, ext_fields
    except _UNUSUAL:
        pass
    return decode_json_header(frame[1])


_SEND_NAMES = (
    *("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag"),
    *("bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes"),
    *("batch", "bname"),
)
_SEND_REQUIRED = itemgetter(*_SEND_NAMES[:8])
_SEND_V2_REQUIRED = itemgetter(*"abcdefgh")


def send_fields(ext_fields: ExtFields) -> SendFields:
    """The fields of SEND_MESSAGE, with full field names."""
    get = ext_fields.get
    try:
        group, topic, default_topic, queues, queue, sys_flag, born, flag = _SEND_REQUIRED(ext_fields)
        most = get("maxReconsumeTimes")
        if born.isdecimal():
            born_timestamp = int(born)
            if not born_timestamp >> 63:
                return (
                    group,
                    topic,
                    default_topic,
                    _INT32[queues],
                    _INT32[queue],
                    _INT32[sys_flag],
                    born_timestamp,
                    _INT32[flag],
                    get("properties", ""),
                    _INT32[get("reconsumeTimes", "0")],
                    _BOOLEAN[get("unitMode")],
                    None if most is None else _INT32[most],
                    _BOOLEAN[get("batch")],
                    get("bname"),
                )
    except _UNUSUAL:
        pass
    return cast("SendFields", _general(RequestCode.SEND_MESSAGE, _SEND_NAMES, ext_fields))


def send_v2_fields(ext_fields: ExtFields) -> SendFields:
    """The fields of SEND_MESSAGE_V2, SEND_BATCH_MESSAGE and SEND_REPLY_MESSAGE_V2, with one-letter names."""
    get = ext_fields.get
    try:
        group, topic, default_topic, queues, queue, sys_flag, born, flag = _SEND_V2_REQUIRED(ext_fields)
        most = get("l")
        if born.isdecimal():
            born_timestamp = int(born)
            if not born_timestamp >> 63:
                return (
                    group,
                    topic,
                    default_topic,
                    _INT32[queues],
                    _INT32[queue],
                    _INT32[sys_flag],
                    born_timestamp,
                    _INT32[flag],
                    get("i", ""),
                    _INT32[get("j", "0")],
                    _BOOLEAN[get("k")],
                    None if most is None else _INT32[most],
                    _BOOLEAN[get("m")],
                    get("n"),
                )
    except _UNUSUAL:
        pass
    return cast("SendFields", _general(RequestCode.SEND_MESSAGE_V2, _SEND_NAMES, ext_fields))


_PULL_NAMES = (
    *("consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag", "commitOffset"),
    *("suspendTimeoutMillis", "subscription", "subVersion", "expressionType", "maxMsgBytes"),
    "requestSource",
)
_PULL_REQUIRED = itemgetter(*_PULL_NAMES[:8], "subVersion")


def pull_fields(ext_fields: ExtFields) -> PullFields:
    """The fields of PULL_MESSAGE and LITE_PULL_MESSAGE."""
    get = ext_fields.get
    try:
        group, topic, queue, at, count, sys_flag, commit, suspend, version = _PULL_REQUIRED(ext_fields)
        most = get("maxMsgBytes")
        source = get("requestSource")
        # A consumer that has nothing to commit says -1.
        digits = f"{at}{suspend}{version}" if commit == "-1" else f"{at}{commit}{suspend}{version}"
        if digits.isdecimal():
            queue_offset = int(at)
            commit_offset = int(commit)
            suspend_ms = int(suspend)
            sub_version = int(version)
            if not (queue_offset | commit_offset + 1 | suspend_ms | sub_version) >> 63:
                return (
                    group,
                    topic,
                    _INT32[queue],
                    queue_offset,
                    _INT32[count],
                    _INT32[sys_flag],
                    commit_offset,
                    suspend_ms,
                    get("subscription"),
                    sub_version,
                    get("expressionType"),
                    None if most is None else _INT32[most],
                    None if source is None else _INT32[source],
                )
    except _UNUSUAL:
        pass
    return cast("PullFields", _general(RequestCode.PULL_MESSAGE, _PULL_NAMES, ext_fields))


_QUERY_OFFSET_NAMES = ("consumerGroup", "topic", "queueId", "setZeroIfNotFound")
_QUEUE = itemgetter("consumerGroup", "topic", "queueId")


def query_offset_fields(ext_fields: ExtFields) -> QueryOffsetFields:
    """The fields of QUERY_CONSUMER_OFFSET."""
    try:
        group, topic, queue = _QUEUE(ext_fields)
        return group, topic, _INT32[queue], _BOOLEAN_OR_NONE[ext_fields.get("setZeroIfNotFound")]
    except _UNUSUAL:
        pass
    return cast("QueryOffsetFields", _general(RequestCode.QUERY_CONSUMER_OFFSET, _QUERY_OFFSET_NAMES, ext_fields))


_UPDATE_OFFSET_NAMES = ("consumerGroup", "topic", "queueId", "commitOffset")
_UPDATE_OFFSET_REQUIRED = itemgetter(*_UPDATE_OFFSET_NAMES)


def update_offset_fields(ext_fields: ExtFields) -> UpdateOffsetFields:
    """The fields of UPDATE_CONSUMER_OFFSET."""
    try:
        group, topic, queue, commit = _UPDATE_OFFSET_REQUIRED(ext_fields)
        if commit.isdecimal() or commit == "-1":
            commit_offset = int(commit)
            if not commit_offset + 1 >> 63:
                return group, topic, _INT32[queue], commit_offset
    except _UNUSUAL:
        pass
    return cast(
        "UpdateOffsetFields", _general(RequestCode.UPDATE_CONSUMER_OFFSET, _UPDATE_OFFSET_NAMES, ext_fields)
    )


_POP_NAMES = (
    *("consumerGroup", "topic", "queueId", "maxMsgNums", "invisibleTime", "pollTime", "bornTime"),
    *("initMode", "expType", "exp", "order", "attemptId"),
)
_POP_REQUIRED = itemgetter(*_POP_NAMES[:8])


def pop_fields(ext_fields: ExtFields) -> PopFields:
    """The fields of POP_MESSAGE."""
    get = ext_fields.get
    try:
        group, topic, queue, count, invisible, poll, born, init_mode = _POP_REQUIRED(ext_fields)
        if f"{invisible}{poll}{born}".isdecimal():
            invisible_ms = int(invisible)
            poll_ms = int(poll)
            born_time = int(born)
            if not (invisible_ms | poll_ms | born_time) >> 63:
                return (
                    group,
                    topic,
                    _INT32[queue],
                    _INT32[count],
                    invisible_ms,
                    poll_ms,
                    born_time,
                    _INT32[init_mode],
                    get("expType"),
                    get("exp"),
                    _BOOLEAN[get("order")],
                    get("attemptId"),
                )
    except _UNUSUAL:
        pass
    return cast("PopFields", _general(RequestCode.POP_MESSAGE, _POP_NAMES, ext_fields))


_ACK_NAMES = ("consumerGroup", "topic", "queueId", "extraInfo", "offset")
_ACK_REQUIRED = itemgetter(*_ACK_NAMES)


def ack_fields(ext_fields: ExtFields) -> AckFields:
    """The fields of ACK_MESSAGE."""
    try:
        group, topic, queue, extra_info, at = _ACK_REQUIRED(ext_fields)
        if at.isdecimal():
            offset = int(at)
            if not offset >> 63:
                return group, topic, _INT32[queue], extra_info, offset
    except _UNUSUAL:
        pass
    return cast("AckFields", _general(RequestCode.ACK_MESSAGE, _ACK_NAMES, ext_fields))


_END_NAMES = (
    *("producerGroup", "tranStateTableOffset", "commitLogOffset", "commitOrRollback", "fromTransactionCheck"),
    "msgId",
)
_END_REQUIRED = itemgetter(*_END_NAMES[:4], "msgId")


def end_fields(ext_fields: ExtFields) -> EndFields:
    """The fields of END_TRANSACTION."""
    try:
        group, queue_at, log_at, how, message_id = _END_REQUIRED(ext_fields)
        if f"{queue_at}{log_at}".isdecimal():
            queue_offset = int(queue_at)
            offset = int(log_at)
            if not (queue_offset | offset) >> 63:
                is_asked = _BOOLEAN[ext_fields.get("fromTransactionCheck")]
                return group, queue_offset, offset, _INT32[how], is_asked, message_id
    except _UNUSUAL:
        pass
    return cast("EndFields", _general(RequestCode.END_TRANSACTION, _END_NAMES, ext_fields))


def _general(code: int, names: tuple[str, ...], ext_fields: ExtFields) -> tuple[Any, ...]:
    values = decode_fields(ext_fields, REQUEST_FIELDS[code])
    return tuple(values[name] for name in names)


HOT_FIELDS: dict[int, Callable[[ExtFields], tuple[Any, ...]]] = {
    int(RequestCode.SEND_MESSAGE): send_fields,
    int(RequestCode.SEND_MESSAGE_V2): send_v2_fields,
    int(RequestCode.SEND_BATCH_MESSAGE): send_v2_fields,
    int(RequestCode.SEND_REPLY_MESSAGE): send_fields,
    int(RequestCode.SEND_REPLY_MESSAGE_V2): send_v2_fields,
    int(RequestCode.PULL_MESSAGE): pull_fields,
    int(RequestCode.LITE_PULL_MESSAGE): pull_fields,
    int(RequestCode.QUERY_CONSUMER_OFFSET): query_offset_fields,
    int(RequestCode.UPDATE_CONSUMER_OFFSET): update_offset_fields,
    int(RequestCode.POP_MESSAGE): pop_fields,
    int(RequestCode.ACK_MESSAGE): ack_fields,
    int(RequestCode.END_TRANSACTION): end_fields,
}
"""The typed fields of the frequent requests. A heartbeat is frequent too, but has no header fields."""

HOT_FIELD_NAMES: dict[int, tuple[str, ...]] = {
    int(RequestCode.SEND_MESSAGE): _SEND_NAMES,
    int(RequestCode.SEND_MESSAGE_V2): _SEND_NAMES,
    int(RequestCode.SEND_BATCH_MESSAGE): _SEND_NAMES,
    int(RequestCode.SEND_REPLY_MESSAGE): _SEND_NAMES,
    int(RequestCode.SEND_REPLY_MESSAGE_V2): _SEND_NAMES,
    int(RequestCode.PULL_MESSAGE): _PULL_NAMES,
    int(RequestCode.LITE_PULL_MESSAGE): _PULL_NAMES,
    int(RequestCode.QUERY_CONSUMER_OFFSET): _QUERY_OFFSET_NAMES,
    int(RequestCode.UPDATE_CONSUMER_OFFSET): _UPDATE_OFFSET_NAMES,
    int(RequestCode.POP_MESSAGE): _POP_NAMES,
    int(RequestCode.ACK_MESSAGE): _ACK_NAMES,
    int(RequestCode.END_TRANSACTION): _END_NAMES,
}
"""Names of the positions of those tuples, as in the general field tables."""
