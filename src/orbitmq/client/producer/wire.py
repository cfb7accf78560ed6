"""Wire format of send requests and responses. The header is preallocated once per queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from orbitmq.client.errors import BrokerError, SendError
from orbitmq.client.message import Receipt, SendStatus
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from orbitmq.protocol.command.frame import FRAME_PREFIX
from orbitmq.protocol.versions import CURRENT_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.protocol.command.command import Command

_pack_prefix = FRAME_PREFIX.pack

_STATUSES: Mapping[int, SendStatus] = {
    int(ResponseCode.SUCCESS): SendStatus.SEND_OK,
    int(ResponseCode.FLUSH_DISK_TIMEOUT): SendStatus.FLUSH_DISK_TIMEOUT,
    int(ResponseCode.SLAVE_NOT_AVAILABLE): SendStatus.SLAVE_NOT_AVAILABLE,
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): SendStatus.FLUSH_SLAVE_TIMEOUT,
}
"""Response codes of stored messages."""

_TAIL = (
    b',"flag":%%d,"language":"%b","opaque":%%d,"serializeTypeCurrentRPC":"JSON","version":%d}'
    % (LanguageCode.PYTHON.name.encode(), CURRENT_VERSION)
)  # fmt: skip


def send_template(
    group: str,
    topic: str,
    default_topic: str,
    default_queues: int,
    queue: MessageQueue,
    *,
    is_batch: bool = False,
    is_reply: bool = False,
    reconsume_times: int = 0,
    max_reconsume_times: int | None = None,
) -> bytes:
    """Header template of sends to a queue, with fields in Java's order.

    Placeholders: sysFlag, born timestamp, flag, properties as JSON, flag of the frame, opaque.
    """
    code = RequestCode.SEND_BATCH_MESSAGE if is_batch else RequestCode.SEND_MESSAGE_V2
    if is_reply:
        code = RequestCode.SEND_REPLY_MESSAGE_V2
    most = "" if max_reconsume_times is None else f',"l":"{max_reconsume_times}"'
    start = (
        f'{{"code":{int(code)},"extFields":{{"a":{_text(group)},"b":{_text(topic)},"c":{_text(default_topic)},'
        f'"d":"{default_queues}","e":"{queue.queue_id}","f":"'
    )
    end = (
        f',"j":"{reconsume_times}","k":"false"{most},"m":"{"true" if is_batch else "false"}",'
        f'"n":{_text(queue.broker_name)}}}'
    )
    return b"".join((_literal(start), b'%d","g":"%d","h":"%d","i":%b', _literal(end), _TAIL))


def _text(value: str) -> str:
    return orjson.dumps(value).decode()


def _literal(text: str) -> bytes:
    """Escape percent signs, which names may contain, for the template."""
    return text.encode().replace(b"%", b"%%")


def fill_template(
    template: bytes,
    sys_flag: int,
    born_ms: int,
    flag: int,
    properties: bytes,
    frame_flag: int,
    opaque: int,
    body: bytes,
) -> bytes:
    """Fill a template: the whole frame of one send."""
    header = template % (sys_flag, born_ms, flag, properties, frame_flag, opaque)
    size = len(header)
    return b"".join((_pack_prefix(size + 4 + len(body), size), header, body))


def properties_json(text: str) -> bytes:
    """A properties string as a JSON value."""
    try:
        return orjson.dumps(text)
    except orjson.JSONEncodeError:
        # A lone surrogate is not valid UTF-8; Java writes a question mark.
        return orjson.dumps(text.encode("utf-8", "replace").decode())


def receipt_of(answer: Command, queue: MessageQueue, address: str, message_id: str) -> Receipt:
    """Parse a send response. Raises BrokerError if the message was not stored."""
    status = _STATUSES.get(answer.code)
    if status is None:
        raise BrokerError(answer.code, answer.remark, address)
    fields = answer.ext_fields
    try:
        queue_id = int(fields["queueId"])
        if queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
        return Receipt(
            status,
            message_id,
            queue,
            int(fields["queueOffset"]),
            fields["msgId"],
            fields.get("transactionId"),
            fields.get("MSG_REGION", "DefaultRegion"),
            fields.get("recallHandle"),
            fields.get("TRACE_ON") != "false",
        )
    except (KeyError, ValueError) as error:
        raise SendError(
            f"the broker {address} stored the message, but its response lacks the position: {fields}"
        ) from error


def member_receipts(receipt: Receipt, message_ids: list[str]) -> list[Receipt]:
    """Receipts of the messages of a batch, from the receipt of the whole batch."""
    stored_as = receipt.offset_message_id.split(",")
    if len(stored_as) != len(message_ids):
        # A batch that is stored as one record has one id.
        stored_as = stored_as[:1] * len(message_ids)
    return [
        Receipt(
            receipt.status,
            message_id,
            receipt.queue,
            receipt.queue_offset + index,
            stored_as[index],
            None,
            receipt.region_id,
        )
        for index, message_id in enumerate(message_ids)
    ]
